"""No two files define different types by one name: programs are linked from the objects of many, and the linker would take
one type's functions for both without a word. Types in anonymous namespaces are a file's own."""
import collections
import re

import tree

OPEN = re.compile(r"^namespace(?: ([\w:]+))? \{")
CLOSE = re.compile(r"^\}\s*// namespace")
TYPE = re.compile(r"^(?:template <.*> ?)?(?:struct|class|enum class|enum|union) (?:alignas\(.*?\) )?([\w:]+)(?![\w:;])")


def types(text):
    """Those that a file defines outside of others, with their namespaces."""
    spaces = []
    for line in text.splitlines():
        if match := OPEN.match(line):
            spaces.append(match[1] or "")
        elif CLOSE.match(line) and spaces:
            spaces.pop()
        elif (match := TYPE.match(line)) and "" not in spaces and "::" not in match[1]:
            yield "::".join([*spaces, match[1]])


def check(sources):
    files = collections.defaultdict(list)
    for path, text in sources.items():
        for name in set(types(text)):
            files[name].append(path)
    return [f"{name} is defined in {' and '.join(paths)}" for name, paths in files.items() if len(paths) > 1]


def self_test():
    a, b = "namespace mezzo {\nstruct Layout {\n};\n}  // namespace mezzo\n", "namespace mezzo {\nenum class Layout { x };\n}  // namespace mezzo\n"
    assert check({"a.h": a, "b.h": b}) == ["mezzo::Layout is defined in a.h and b.h"]
    assert check({"a.cpp": "template <class T>\nclass X : Y {", "b.cpp": "class X final {"})
    assert not check({"a.h": a, "b.h": b.replace("mezzo {", "mezzo::cuda {")})
    assert not check({"a.h": a, "b.cpp": "namespace mezzo {\nnamespace {\nstruct Layout {\n};\n}  // namespace\n}  // namespace mezzo\n"})
    assert not check({"a.h": a, "b.cpp": "namespace mezzo {\nstruct Layout;\nstruct Layout::Inner {\n};\n}  // namespace mezzo\n"})


self_test()
tree.report(check(tree.sources(tree.root(), (".h", ".cpp", ".cu", ".cuh"))))
