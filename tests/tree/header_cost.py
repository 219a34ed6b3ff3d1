"""`#include <mezzo.h>` alone compiles in less than two seconds: header_cost.py ROOT COMPILER..."""
import resource
import subprocess
import sys

import tree

LIMIT = 2.0  # seconds of processor time, which a busy machine changes little


def seconds(compiler, text):
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    subprocess.run([*compiler, "-std=c++20", "-fsyntax-only", f"-I{tree.root()}", "-xc++", "-"],
                   input=text, text=True, check=True)
    return used() - before


def check(seconds):
    return [f"mezzo.h takes {seconds:.2f} s to compile, the limit is {LIMIT:.0f} s"] if seconds >= LIMIT else []


def self_test():
    assert check(2.5) and not check(1.5)


self_test()
best = min(seconds(sys.argv[2:], "#include <mezzo.h>\n") for _ in range(3))
print(f"mezzo.h: {best:.2f} s")
tree.report(check(best))
