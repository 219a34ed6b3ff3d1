"""A program may use Eigen and oneDNN itself: compiled by other flags, its copies of their inline functions differ from
ours, and the linker keeps one of two that have a name in common. So ours have names of their own (meson.build).
symbols.py ROOT LIBRARY COMPILER..."""
import pathlib
import re
import subprocess
import sys
import tempfile

import tree


def check(library):
    """Symbols that an object or a library defines in a namespace of Eigen or oneDNN, or as a template of theirs."""
    listing = subprocess.run(["nm", "--demangle", "--defined-only", "--extern-only", "--no-sort", library],
                             capture_output=True, text=True, check=True).stdout
    return [f"{pathlib.Path(library).name} defines {line[19:]}"
            for line in listing.splitlines() if re.search(r"\b(Eigen|dnnl)::", line)]


def self_test(compiler):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "a.o")
        for code, leaks in (("namespace Eigen { inline void f() {} } void g() { Eigen::f(); }", True),
                            ("namespace dnnl { struct A; } void g(dnnl::A*) {}", True),
                            ("namespace dnnl { void f(); } void g() { dnnl::f(); }", False),
                            ("namespace mezzo_Eigen { void f() {} }", False)):
            subprocess.run([*compiler, "-xc++", "-", "-c", "-o", file], input=code, text=True, check=True)
            assert bool(check(file)) == leaks, code


self_test(sys.argv[3:])
tree.report(check(sys.argv[2]))
