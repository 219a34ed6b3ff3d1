"""Nothing in tensor/cpu runs before main: it would crash on a processor that lacks what it was compiled for, before
check_cpu could say so. early_code.py ROOT LIBRARY"""
import pathlib
import re
import subprocess
import sys
import tempfile

import tree


def check(library):
    """Objects of a static library that have initialisers of namespace-scope variables."""
    listing = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
    problems, member = [], library
    for line in listing.splitlines():
        if line.startswith("File: "):
            member = line[len("File: "):]
        elif re.search(r"\s\.(init_array|ctors)\b", line):
            problems.append(f"{member} runs code before main: make the variable constexpr, constinit or local")
    return sorted(set(problems))


def self_test(compiler):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "a.o")
        for code, runs in (("int f(); int a = f();", True), ("int a = 1;", False)):
            subprocess.run([*compiler, "-xc++", "-", "-c", "-o", file], input=code, text=True, check=True)
            assert bool(check(str(file))) == runs


self_test(sys.argv[3:])
tree.report(check(sys.argv[2]))
