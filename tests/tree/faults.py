"""Each test that tests/faults.md names exists."""
import re

import tree


def check(page, sources):
    code = re.sub(r'"\s*\n\s*"', "", "\n".join(sources.values()))
    return [f"faults.md names a test that does not exist: {name}"
            for name in re.findall(r"\| `([^`]+)` \|$", page, re.MULTILINE)
            if not re.search(rf'TEST_CASE\(\s*"{re.escape(name)}"\)', code)]


def self_test():
    page = "| a | `b: c` |\n| | `d` |\n"
    assert len(check(page, {"x.cpp": 'TEST_CASE("b: c") {'})) == 1
    assert not check(page, {"x.cpp": 'TEST_CASE(\n    "b: c") {', "y.cpp": 'TEST_CASE("d") {'})


self_test()
tree.report(check((tree.root() / "tests/faults.md").read_text(), tree.sources(tree.root() / "tests", (".cpp",))))
