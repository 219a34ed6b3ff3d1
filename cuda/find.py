"""Finds the CUDA toolkit, cuBLAS and cuDNN: for meson.build, which has no way to look where Python's packages put them.

`find.py TOOLKIT`, a folder or nothing, prints a line `name=path` for each of nvcc, include (the toolkit's headers),
cublas_include, cudnn_include, and the libraries cudart, cublas, cudnn, those that are found, and version, the toolkit's.
Nothing here is run. No toolkit is taken that is older than CUDART; of several cuDNNs the newest, and none older than CUDNN.
"""
import glob
import os
import pathlib
import re
import shutil
import site
import sys

CUDART = 12000  # as CUDART_VERSION counts
CUDNN = (9, 8)


def roots(toolkit):
    """Folders that may hold bin/, include/ and lib/, the likeliest first."""
    if toolkit:
        yield toolkit
        return
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            yield os.environ[variable]
    if nvcc := shutil.which("nvcc"):
        yield pathlib.Path(nvcc).resolve().parents[1]
    yield "/usr/local/cuda"
    yield "/usr"


def packages():
    """The same for what Python's packages nvidia-* install."""
    for folder in [*site.getsitepackages(), site.getusersitepackages(), *sys.path]:
        yield from sorted(glob.glob(os.path.join(folder, "nvidia", "*")), reverse=True)


def first(patterns, folders):
    for folder in folders:
        for pattern in patterns:
            for path in sorted(glob.glob(os.path.join(folder, pattern))):
                return path
    return None


def library(name):
    where = ("lib64", "lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "targets/*/lib")
    return [f"{folder}/lib{name}.so{suffix}" for suffix in ("", ".[0-9]*") for folder in where]


def header(name):
    return [f"{folder}/{name}" for folder in ("include", "targets/*/include")]


def defined(macro, path):
    """The number that a header defines a macro as; 0 if there is no header."""
    text = pathlib.Path(path).read_text(errors="replace") if path else ""
    return int(number[1]) if (number := re.search(rf"#define {macro}\s+(\d+)", text)) else 0


def is_old_toolkit(folder):
    path = first(header("cuda_runtime_api.h"), [folder])
    return path and defined("CUDART_VERSION", path) < CUDART


def cudnn_version(folder):
    path = first(header("cudnn_version.h"), [folder])
    return tuple(defined(f"CUDNN_{part}", path) for part in ("MAJOR", "MINOR"))


def cudnn(folders):
    """Those folders that hold a cuDNN that will do: with the library first, then the newest first."""
    versions = {folder: cudnn_version(folder) for folder in folders}
    enough = [folder for folder in folders if versions[folder] >= CUDNN]
    return sorted(enough, key=lambda folder: (first(library("cudnn"), [folder]) is None, [-part for part in versions[folder]]))


def find(folders):
    """Names and paths of what is in the folders."""
    new = [folder for folder in folders if not is_old_toolkit(folder)]
    of_cudnn = cudnn(folders)
    found = {
        "nvcc": first(["bin/nvcc"], new),
        "include": first(header("cuda_runtime_api.h"), new),
        "cublas_include": first(header("cublas_v2.h"), new),
        "cudnn_include": first(header("cudnn.h"), of_cudnn),
        **{name: first(library(name), new) for name in ("cudart", "cublas")},
        "cudnn": first(library("cudnn"), of_cudnn),
    }
    version = defined("CUDART_VERSION", found["include"])
    return {name: os.path.dirname(path) if "include" in name else path for name, path in found.items() if path} | {"version": version}


if __name__ == "__main__":
    everywhere = dict.fromkeys([*roots(sys.argv[1] if len(sys.argv) > 1 else ""), *packages()])
    for name, what in find(list(everywhere)).items():
        print(f"{name}={what}")
