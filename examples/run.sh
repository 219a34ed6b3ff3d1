#!/bin/sh
# Builds and runs an example, or one file of your own:
#   sh examples/run.sh NAME [ARGUMENTS]
#   sh examples/run.sh path/to/my_model.cpp [ARGUMENTS]
#   sh examples/run.sh NAME_OR_FILE --device cuda --emulate [--check] [ARGUMENTS]
# The program runs in the folder that you are in. CUDA is built if the name, an argument or your file says cuda.
# --emulate: CUDA's kernels run on the processor, each thread by itself, with no GPU; for learning and for tests, on
# small sizes. --check: each access to memory is checked too.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/examples/setup.sh"

# An example is a file here that has a main.
list_examples() {
  (cd "$root/examples" && grep -l '^int main(' -- *.cpp 2>/dev/null | sed 's/\.cpp$//; s/^/  /') || :
}

# True if the program must be compiled: it is not there, or it is older than a library, the file or one of the headers
# that the file includes (a header that is gone makes find fail).
outdated() {
  [ -x "$program" ] || return 0
  headers=$(sed 's/^[^:]*://; s/\\$//' "$program.d")
  newer=$(find $headers "$build/examples/compile$backend" -newer "$program" 2>/dev/null &&
    find "$build" -maxdepth 3 -name '*.a' -newer "$program") || return 0
  [ -n "$newer" ]
}

# Configures and sets $backend, the end of the program's name: _emulated or _checked with --emulate, _cuda if the
# arguments of this function name CUDA and the build has it (building it takes minutes), else nothing.
choose_backend() {
  backend=
  case "$*" in *cuda*) backend=_cuda ;; esac
  [ -z "$emulated" ] || backend=$emulated
  configure
  [ -z "$backend" ] || build_targets build.ninja  # what there is to choose from, as the files say now
  [ ! -f "$build/examples/compile$backend" ] || return 0
  if [ -n "$emulated" ]; then
    say "run.sh: this build has no emulator: it needs the headers of CUDA, cuBLAS and cuDNN"
    exit 1
  fi
  backend=
}

name=${1-}
[ $# = 0 ] || shift

# Sets $emulated, and leaves the arguments, quoted, without those that are about emulation.
emulated= arguments=
case " $* " in *" --emulate "*)
  emulated=_emulated
  for argument; do
    case $argument in
      --emulate) ;;
      --check) emulated=_checked ;;
      *) arguments="$arguments '$(printf '%s' "$argument" | sed "s/'/'\\\\''/g")'" ;;
    esac
  done
  eval "set -- $arguments"
  [ "$emulated" = _emulated ] || export CUDA_EMULATOR_WORKERS=1
  say "CUDA is emulated by the processor: results are a GPU's but for rounding, times are not"
  ;;
esac

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
    source=$(cd "$(dirname "$name")" && pwd)/$(basename "$name")
    choose_backend "$@" "$(cat "$source")"
    build_targets "model$backend"
    program=$build/models/$(basename "$name" .cpp)-$(printf '%s' "$source" | cksum | cut -d ' ' -f 1)$backend
    if outdated; then
      mkdir -p "$build/models"
      quietly sh "$build/examples/compile$backend" "$source" "$program"
    fi
    ;;
  *)
    if ! list_examples | grep -qx "  $name"; then
      say "run.sh: there is no example '$name'. Examples:" && list_examples >&2
      exit 2
    fi
    case " $* " in *" --check "*) say "run.sh: --check goes with --emulate" && exit 2 ;; esac
    choose_backend "$name" "$@"
    build_targets "examples/$name$backend"
    program=$build/examples/$name$backend
    ;;
esac
exec "$program" "$@"
