#!/bin/sh
# Builds and runs an example, or one file of your own:
#   sh examples/run.sh NAME [ARGUMENTS]
#   sh examples/run.sh path/to/my_model.cpp [ARGUMENTS]
# The program runs in the folder that you are in.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/examples/setup.sh"

# An example is a file here that has a main.
list_examples() {
  (cd "$root/examples" && grep -l '^int main(' -- *.cpp 2>/dev/null | sed 's/\.cpp$//; s/^/  /') || :
}

# True if the program must be compiled: it is not there, or it is older than the library, the file or one of the
# headers that the file includes (a header that is gone makes find fail).
outdated() {
  [ -x "$program" ] || return 0
  headers=$(sed 's/^[^:]*://; s/\\$//' "$program.d")
  newer=$(find "$build/libmezzo.a" "$build/examples/compile" $headers -newer "$program" 2>/dev/null) ||
    return 0
  [ -n "$newer" ]
}

name=${1-}
case $name in
  '' | -h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    echo "Examples:"
    list_examples
    exit
    ;;
  *.cpp)
    if [ ! -f "$name" ]; then
      say "run.sh: there is no file $name"
      exit 2
    fi
    shift
    set_up libmezzo.a
    source=$(cd "$(dirname "$name")" && pwd)/$(basename "$name")
    program=$build/models/$(basename "$name" .cpp)-$(printf '%s' "$source" | cksum | cut -d ' ' -f 1)
    if outdated; then
      mkdir -p "$build/models"
      quietly sh "$build/examples/compile" "$source" "$program"
    fi
    ;;
  *)
    if ! list_examples | grep -qx "  $name"; then
      say "run.sh: there is no example '$name'. Examples:" && list_examples >&2
      exit 2
    fi
    shift
    set_up "examples/$name"
    program=$build/examples/$name
    ;;
esac
exec "$program" "$@"
