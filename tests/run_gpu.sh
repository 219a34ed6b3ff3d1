#!/bin/sh
# The CUDA backend on the GPU of this machine: builds it for the card, tests and measures it, within 8 minutes on 16
# cores, with no package manager and no network. Writes gpu.txt, a table, and gpu.json.
#   sh tests/run_gpu.sh [--headers FOLDER] [--python PYTHON] [--build FOLDER] [--out FOLDER]
# Needs g++ 12 or later, the CUDA toolkit, cuBLAS and cuDNN; meson, ninja and cuDNN may be packages of PYTHON, and PyTorch
# is measured beside mezzo if PYTHON has it. --headers: a folder with Eigen/, nlohmann/, doctest/ and CLI/ where the
# system has no packages of them. Without a GPU it builds, and all that needs one is skipped: exit status 77.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=python3 before=
for argument; do
  [ "$before" != --python ] || python=$argument
  before=$argument
done
exec "$python" "$root/tests/run_gpu.py" "$@"
