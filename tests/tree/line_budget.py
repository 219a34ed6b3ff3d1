"""The library without its kernels stays within the number of lines that README.md promises.

Counted are lines of code, not blank ones and comments, of tensor, autograd, nn, optim and amp; kernels are
tensor/cpu and tensor/reference.
"""
import re

import tree

COUNTED = ("tensor/", "autograd/", "nn/", "optim/", "amp/")
KERNELS = ("tensor/cpu/", "tensor/reference/")


def count(sources):
    total = 0
    for path, text in sources.items():
        if path.startswith(COUNTED) and not path.startswith(KERNELS):
            total += sum(1 for line in tree.without_comments(text).splitlines() if line.strip())
    return total


def check(sources, readme):
    budget = re.search(r"Line budget: ([\d,]+)", readme)
    if budget is None:
        return ["README.md has no line `Line budget: N`"]
    lines, budget = count(sources), int(budget[1].replace(",", ""))
    return [f"{lines:,} lines of code, README.md promises {budget:,}"] if lines > budget else []


def self_test():
    text = 'int a;  // one\n\n// none\n/* none\n none */\nconst char* b = "// two";\nint c = 1\'000;\n'
    assert count({"nn/a.cpp": text}) == 3
    assert count({"tensor/cpu/a.cpp": text, "tests/a.cpp": text, "tensor/reference/a.cpp": text}) == 0
    assert check({"nn/a.cpp": text}, "Line budget: 2") and not check({"nn/a.cpp": text}, "Line budget: 1,000")
    assert check({}, "")


self_test()
readme = tree.root() / "README.md"
tree.report(check(tree.sources(tree.root()), readme.read_text() if readme.exists() else ""))
