"""`#include <mezzo.h>` costs little more than the standard headers that it includes: header_cost.py ROOT COMPILER...

The aim is two seconds, which the machine decides as much as the header. So it is compared with those headers alone: the
lines that it adds, which another library's header would multiply, and, measured in turn, the time, which templates would.
"""
import re
import resource
import subprocess
import sys

import tree

LINES, TIMES = 5000, 2.0


def compiled(compiler, text, *arguments):
    """Standard output, and seconds of processor time."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    done = subprocess.run([*compiler, "-std=c++20", f"-I{tree.root()}", "-xc++", *arguments, "-"],
                          input=text, text=True, check=True, stdout=subprocess.PIPE)
    return done.stdout, used() - before


def standard_headers(texts):
    """The headers in angle brackets, in the order of their names."""
    return sorted({name for text in texts for name in re.findall(r"^#include <(\w+)>", text, re.MULTILINE)})


def check(lines, seconds, of_standard):
    faults = []
    if lines > LINES:
        faults.append(f"mezzo.h adds {lines} lines to the standard headers that it includes, the limit is {LINES}")
    if seconds > TIMES * of_standard:
        faults.append(f"mezzo.h takes {seconds:.2f} s to compile, its standard headers {of_standard:.2f} s; "
                      f"the limit is {TIMES} times")
    return faults


def self_test():
    assert len(check(5001, 2.5, 1.2)) == 2 and not check(5000, 2.5, 1.3)
    assert standard_headers(["#include <vector>\n#include <map>\n#include <mezzo.h>\n", "#include <map>"]) == ["map", "vector"]


self_test()
user = "#include <mezzo.h>\n"
depends, _ = compiled(sys.argv[2:], user, "-MM")
headers = [path for path in depends.replace("\\\n", " ").split() if path.endswith(".h")]
standard = "".join(f"#include <{name}>\n" for name in standard_headers(open(path).read() for path in headers))
texts = (user, standard)
lines = [compiled(sys.argv[2:], text, "-E", "-P")[0].count("\n") for text in texts]
rounds = [[compiled(sys.argv[2:], text, "-fsyntax-only")[1] for text in texts] for _ in range(4)]
best, of_standard = (min(times) for times in zip(*rounds))
print(f"mezzo.h: {lines[0]} lines, {best:.2f} s; its standard headers alone: {lines[1]} lines, {of_standard:.2f} s")
tree.report(check(lines[0] - lines[1], best, of_standard))
