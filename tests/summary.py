"""Counts the test cases of the last run in each of the given build folders: `N passed, N failed, N skipped`.

A doctest program counts with its test cases, any other test as one. A doctest case that could not run has printed a
line `skipped: reason` (tests/support.h). Exits with 1 if anything failed or a folder holds no results.
"""
import json
import pathlib
import re
import sys

DOCTEST = re.compile(r"^\[doctest\] test cases: +\d+ \| +(\d+) passed \| +(\d+) failed", re.MULTILINE)
SKIPPED = re.compile(r"^skipped: .*$", re.MULTILINE)


def count(test):
    """(passed, failed, skipped) of one entry of meson's testlog.json."""
    summary = DOCTEST.search(test.get("stdout", ""))
    ok = test["result"] in ("OK", "EXPECTEDFAIL")
    if summary is None:
        skipped = test["result"] == "SKIP"
        return int(ok), int(not ok and not skipped), int(skipped)
    passed, failed = int(summary[1]), int(summary[2])
    skipped = len(set(SKIPPED.findall(test["stdout"])))
    if not ok and failed == 0:  # every case passed and the process failed: a sanitizer at exit, a timeout
        failed = 1
    return passed - skipped, failed, skipped


def main(folders):
    total = [0, 0, 0]
    for folder in folders:
        log = pathlib.Path(folder, "meson-logs", "testlog.json")
        if not log.exists():
            print(f"{folder}: no results; the build or the set-up failed", file=sys.stderr)
            total[1] += 1
            continue
        for line in log.read_text().splitlines():
            total = [a + b for a, b in zip(total, count(json.loads(line)))]
    print("{} passed, {} failed, {} skipped".format(*total))
    return total[1] > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
