#!/bin/sh
# Removes each __syncthreads() of some files in turn and looks whether the tests notice.
#
#   tests/emulator/mutate.sh "PLAIN [ARGUMENTS]" "CHECKED [ARGUMENTS]" FILE...
#
# PLAIN and CHECKED are test programs as ninja names them, without and with the checker. The tree is copied to $SCRATCH
# (a new temporary folder) and built there with $MESON_OPTIONS. PLAIN runs with threads and blocks forward, in reverse and
# in random order, CHECKED forward, until one notices. What nobody notices is listed at the end: a barrier that a test is
# missing for, or that is not needed. For cuda/, an hour of two cores:
#
#   MESON_OPTIONS='-Dcuda=disabled -Dexamples=false -Dbench=false' tests/emulator/mutate.sh \
#     tests/cuda/cuda_kernels_test_emulated tests/cuda/cuda_kernels_test_checked cuda/*.cu cuda/*.cuh
set -eu

plain=$1
checked=$2
shift 2
root=$(git rev-parse --show-toplevel)
scratch=${SCRATCH:-$(mktemp -d)}
mkdir -p "$scratch/tree"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$scratch/tree")
cd "$scratch/tree"
# shellcheck disable=SC2086  # the options are several words
[ -d ../build ] || meson setup ../build ${MESON_OPTIONS:-} > ../setup.txt
ninja -C ../build ${plain%% *} ${checked%% *} > ../build.txt

# Whether a test fails: fails ORDER COMMAND
fails() {
  ! (cd ../build && CUDA_EMULATOR_ORDER=$1 CUDA_EMULATOR_SEED=7 timeout 600 $2 > ../output.txt 2>&1)
}

for order in forward reverse random; do
  if fails $order "$plain"; then echo "$plain fails as it is, $order: see $scratch/output.txt"; exit 2; fi
done
if fails forward "$checked"; then echo "$checked fails as it is: see $scratch/output.txt"; exit 2; fi

survivors=
for file in "$@"; do
  cp "$file" ../original
  for line in $(grep -n '__syncthreads();' "$file" | cut -d: -f1); do
    sed "${line}s/__syncthreads();/;/" ../original > "$file"
    noticed=
    if ninja -C ../build ${plain%% *} ${checked%% *} > ../build.txt 2>&1; then
      for order in forward reverse random; do
        if [ -z "$noticed" ] && fails $order "$plain"; then noticed=" $order"; fi
      done
      if [ -z "$noticed" ] && fails forward "$checked"; then noticed=" checker"; fi
    else
      noticed=" compiler"
    fi
    echo "$file:$line:${noticed:- nobody}"
    [ -n "$noticed" ] || survivors="$survivors $file:$line"
  done
  cp ../original "$file"
done
if [ -n "$survivors" ]; then
  echo "nobody notices that these are gone:$survivors"
  exit 1
fi
