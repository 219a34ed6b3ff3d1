"""Files have at most 400 lines, headers 200. A longer one has its reason at the top: a first comment with `Long:`."""
import tree

FILE, HEADER = 400, 200


def check(sources):
    problems = []
    for path, text in sources.items():
        limit = HEADER if path.endswith(".h") else FILE
        lines = text.splitlines()
        top = lines[:10]
        reason = any(line.lstrip("/# ").startswith("Long: ") for line in top)
        if len(lines) > limit and not reason:
            problems.append(f"{path} has {len(lines)} lines, the limit is {limit}: split it, or give the reason "
                            "in its first ten lines as `Long: reason`")
        if len(lines) <= limit and reason:
            problems.append(f"{path} explains why it is long and is not")
    return problems


def self_test():
    assert len(check({"a.cpp": "\n" * 401})) == 1
    assert len(check({"a.h": "\n" * 201})) == 1
    assert len(check({"a.py": "\n" * 401})) == 1
    assert len(check({"a.h": "// Long: because.\n"})) == 1
    assert not check({"a.cpp": "\n" * 400, "a.h": "\n" * 200})
    assert not check({"a.h": "// A table.\n// Long: it lists every op.\n" + "\n" * 300})


self_test()
tree.report(check(tree.sources(tree.root(), (".h", ".cpp", ".def", ".py", ".sh", ".cu", ".cuh"))))
