"""What a user gets: the installed copy builds and runs a program through pkg-config, its headers need the standard
library alone, and none is installed that no public one includes. installed.py ROOT BUILD MESON COMPILER..."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import tree

PUBLIC = ("mezzo.h", "autograd/call.h")  # all of mezzo, and what a function of one's own needs beside it
PROGRAM = "".join(f"#include <{name}>\n" for name in PUBLIC) + """
int main() { return mezzo::matmul(mezzo::ones({2, 3}), mezzo::ones({3, 2})).sum().item<float>() == 12 ? 0 : 1; }
"""


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def check(headers, used):
    """`headers` is {path: text} of what is installed, `used` the files that the compiler read."""
    problems = [f"{path} is installed and no public header includes it" for path in headers if path not in used]
    for path, text in headers.items():
        for name in re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE):
            if not re.fullmatch(r"\w+", name):  # a name without a folder or an ending is the standard library's
                problems.append(f"{path} includes {name}")
    return problems


def install(build, meson, folder):
    """Installs into the folder; the headers, and the environment in which pkg-config finds the copy."""
    output(meson, "install", "-C", build, "--no-rebuild", "--destdir", folder)
    package = next(folder.rglob("mezzo.pc")).parent
    # Listed as the compiler will name them.
    headers = {str(path): path.read_text() for path in next(folder.rglob("include/mezzo")).rglob("*") if path.is_file()}
    return headers, dict(os.environ, PKG_CONFIG_PATH=str(package), PKG_CONFIG_SYSROOT_DIR=str(folder))


def self_test():
    assert not check({"a.h": "#include <vector>\n#include <cstdint>\n#include \"b.h\""}, ["a.h", "c.h"])
    assert check({"a.h": ""}, ["b.h"])
    assert check({"a.h": "#include <Eigen/Core>"}, ["a.h"]) and check({"a.h": "# include <omp.h>"}, ["a.h"])


self_test()
_, _, build, meson, *compiler = sys.argv
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder).resolve()
    headers, environment = install(build, meson, folder)
    flags = {kind: output("pkg-config", kind, "mezzo", env=environment).split() for kind in ("--cflags", "--libs")}
    source, program = folder / "program.cpp", folder / "program"
    source.write_text(PROGRAM)
    rule = folder / "program.d"
    output(*compiler, "-std=c++20", "-MD", *flags["--cflags"], source, "-o", program, *flags["--libs"])
    output(program)
    used = rule.read_text().replace("\\\n", " ").split()
tree.report(check(headers, used))
