#!/bin/sh
# Builds everything and runs the whole suite; arguments go to meson test, which takes names of tests. The last line sums all test cases.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/examples/setup.sh"

rm -f "$build/meson-logs/testlog.json"
status=0
(set -e; configure; build_targets ${MEZZO_TARGETS:-}) && meson test -C "$build" --no-rebuild --print-errorlogs "$@" || status=1
python3 "$root/tests/summary.py" "$build" || status=1
exit "$status"
