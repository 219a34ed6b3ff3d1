#!/bin/sh
# examples/run.sh as a user meets it: run_sh_test.sh ROOT BUILD. The package manager is a stand-in.
set -eu
root=$1
export MEZZO_BUILD=$2
here=$(mktemp -d)
touch "$here/start"
trap 'find "$MEZZO_BUILD/models" -type f -newer "$here/start" -delete; rm -rf "$here"' EXIT
cd "$here"

fail() {
  printf '%s\n' "FAILED: $1" "stdout:" "$(cat out)" "stderr:" "$(cat err)"
  exit 1
}
# run STATUS ARGUMENTS...: runs run.sh, leaves its output in out and err, and checks its exit status.
run() {
  expected=$1 status=0
  shift
  PATH=$path sh "$root/examples/run.sh" "$@" >out 2>err || status=$?
  [ "$status" = "$expected" ] || fail "run.sh $* exited with $status, not $expected"
}
contains() { grep -qF -e "$2" "$1" || fail "no '$2' in $1"; }

mkdir fake
cat >fake/dpkg-query <<'END'
#!/bin/sh
while [ "$1" != -f ]; do shift; done
shift 2
for package; do [ "$package" = "${MISSING-}" ] || printf '=%s=installed=' "$package"; done
END
cat >fake/ninja <<END
#!/bin/sh
echo "\$@" >>$here/built
exec $(command -v ninja) "\$@"
END
chmod +x fake/dpkg-query fake/ninja
path=$here/fake:$PATH

# Names and errors.
run 0
contains out "Examples:"
run 2 no_such_example
contains err "no example 'no_such_example'"
run 2 01_tensor --check
contains err "--check goes with --emulate"
run 2 no_such_file.cpp
contains err "no file no_such_file.cpp"

# A file of the user's: compiled, run in the user's folder with the user's arguments, nothing else on stdout.
cat >answer.h <<'END'
inline const char* answer = "first";
END
cat >model.cpp <<'END'
#include <mezzo.h>
#include <fstream>
#include <iostream>
#include "answer.h"
int main(int, char** arguments) {
  std::ofstream(arguments[1]) << answer;
  std::cout << mezzo::Device("cpu").index << answer << std::endl;
  return 7;
}
END
run 7 model.cpp "a file"
[ "$(cat out)" = 0first ] || fail "stdout is not the program's"
[ "$(cat 'a file')" = first ] || fail "the path was not the caller's"
contains built "-C $MEZZO_BUILD model"

# Compiled again only if something changed, be it a header.
program=$(echo "$MEZZO_BUILD"/models/model-*[0-9])
touch -d '1 hour' "$program"
before=$(stat -c %Y "$program")
run 7 model.cpp x
[ "$(stat -c %Y "$program")" = "$before" ] || fail "an unchanged file was compiled again"
touch -d '2 hours' answer.h
run 7 model.cpp x
[ "$(stat -c %Y "$program")" != "$before" ] || fail "a changed header was not noticed"

# CUDA is built for those who name it, where there is a toolkit; the emulator where there are headers.
sed 's/"cpu"/"cuda"/' model.cpp >cuda_model.cpp
backend=
[ ! -f "$MEZZO_BUILD/examples/compile_cuda" ] || backend=_cuda
run 7 cuda_model.cpp x
[ "$(tail -n 1 built)" = "-C $MEZZO_BUILD model$backend" ] || fail "not built with '$backend'"
run 7 model.cpp "a word about cuda"
[ "$(tail -n 1 built)" = "-C $MEZZO_BUILD model$backend" ] || fail "not built with '$backend'"
if [ -f "$MEZZO_BUILD/examples/compile_emulated" ]; then
  sed 's/Device("cpu").index/device_count()/' model.cpp >emulated_model.cpp
  run 7 emulated_model.cpp "a file" --emulate
  [ "$(cat out)" = 1first ] || fail "no emulated device"
  contains err "CUDA is emulated"
  run 0 06_cuda_graph --emulate
  contains out "2 steps and 10 times a graph"
else
  run 1 model.cpp x --emulate
  contains err "this build has no emulator"
fi

echo 'int main( {' >broken.cpp
run 1 broken.cpp
contains err "broken.cpp:1"

# Missing packages: with sudo they are named and installed; without it the line to type is printed.
export MISSING=libdnnl-dev
cat >fake/id <<'END'
#!/bin/sh
echo 1000
END
cat >fake/sudo <<'END'
#!/bin/sh
echo "$@" >>sudo.log
END
chmod +x fake/id fake/sudo
run 7 model.cpp x
contains err "Installing libdnnl-dev"
contains sudo.log "apt-get update"
contains sudo.log "apt-get install -y --no-install-recommends libdnnl-dev"

rm fake/sudo
for tool in basename cat cut dirname grep mktemp rm sed sh; do ln -s "$(command -v "$tool")" "fake/$tool"; done
path=$here/fake
run 1 model.cpp x
contains err "apt-get update && apt-get install -y --no-install-recommends libdnnl-dev"
