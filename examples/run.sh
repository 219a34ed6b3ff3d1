#!/bin/sh
# Builds and runs an example, or one file of your own:
#   sh examples/run.sh NAME [ARGUMENTS]
#   sh examples/run.sh path/to/my_model.cpp [ARGUMENTS]
#   sh examples/run.sh NAME --device cuda --emulate [--check] [ARGUMENTS]
# The program runs in the folder that you are in. --emulate: CUDA's kernels run on the processor, each thread by
# itself, with no GPU; for learning and for tests, on small sizes. --check: each access to memory is checked too.
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

# Sets $flavour, the end of the program's name, and $arguments, quoted, without those that are about emulation.
take_emulation() {
  flavour= checks= arguments=
  for argument; do
    case $argument in
      --emulate) flavour=_emulated ;;
      --check) checks=yes ;;
      *) arguments="$arguments '$(printf '%s' "$argument" | sed "s/'/'\\\\''/g")'" ;;
    esac
  done
  if [ -n "$checks" ]; then
    [ -n "$flavour" ] || { say "run.sh: --check goes with --emulate" && exit 2; }
    flavour=_checked
    export CUDA_EMULATOR_WORKERS=1
  fi
  [ -z "$flavour" ] || say "CUDA is emulated by the processor: results are a GPU's but for rounding, times are not"
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
    take_emulation "$@"
    eval "set -- $arguments"
    set_up "examples/$name$flavour"
    program=$build/examples/$name$flavour
    ;;
esac
exec "$program" "$@"
