"""Includes point one way, and the libraries that kernels stand on are seen by kernels alone."""
import re

import tree

# Who may include whom, besides itself.
KNOWS = {
    "tensor": (),
    "autograd": ("tensor",),
    "nn": ("autograd", "tensor"),
    "optim": ("autograd", "tensor"),
    "data": ("autograd", "tensor"),
    "amp": ("autograd", "optim", "tensor"),
    "cuda": ("tensor",),
}
# Where an outside library may be included. What is not listed is the standard library's.
OUTSIDE = {
    r"Eigen/|unsupported/Eigen/|omp\.h": "tensor/cpu/ tests/emulator/",  # the emulator's cuBLAS
    r"dnnl|oneapi/|\w+intrin\.h": "tensor/cpu/ bench/",  # what a product can reach at most is measured by them
    r"cuda|cudnn|cublas|curand": "cuda/ bench/ tests/cuda/ tests/emulator/",  # cuBLAS alone and a plain copy
    r"doctest/": "tests/",
    r"nlohmann/": "tensor/io/ examples/ bench/ tests/",
    r"CLI/|png\.h": "examples/ bench/ tests/",
    r"benchmark/": "bench/",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
OPENMP = re.compile(r"^\s*#\s*pragma\s+omp\b", re.MULTILINE)


def check(sources):
    problems = []
    for path, text in sources.items():
        text = tree.without_comments(text)
        folder = path.split("/")[0]
        for own, outside in INCLUDE.findall(text):
            for name, places in OUTSIDE.items():
                if re.match(name, own or outside) and not path.startswith(tuple(places.split())):
                    problems.append(f"{path} includes {own or outside}, which belongs into {places}")
            if folder not in KNOWS:
                continue
            target = (own or outside).split("/")[0]
            if own and target != folder and target not in KNOWS[folder]:
                problems.append(f"{path} includes {own}: {folder} knows {' and '.join(KNOWS[folder]) or 'nobody'}")
            if outside.endswith("mezzo.h") or (outside and target in KNOWS):
                problems.append(f"{path} includes <{outside}>: inside the library by path, in quotes")
        if OPENMP.search(text) and not path.startswith("tensor/cpu/"):
            problems.append(f"{path} uses OpenMP, which belongs into tensor/cpu/")
    return problems


def self_test():
    def one(path, line):
        return len(check({path: line})) == 1

    assert one("tensor/a.cpp", '#include "autograd/node.h"')
    assert one("autograd/a.cpp", '#include "nn/module.h"')
    assert one("nn/a.cpp", '#include "optim/adam.h"')
    assert one("optim/a.cpp", '#include "tests/support.h"')
    assert one("optim/a.cpp", "#include <mezzo.h>")
    assert one("nn/a.cpp", '#include "module.h"')
    assert one("tensor/shape.cpp", "#include <Eigen/Core>")
    assert one("tensor/reference/a.cpp", "#include <omp.h>")
    assert one("tensor/a.cpp", "#include <dnnl.hpp>")
    assert one("autograd/a.cpp", "  #pragma omp parallel for")
    assert one("nn/a.cpp", "#include <CLI/CLI.hpp>")
    assert one("nn/a.cpp", "#include <nlohmann/json.hpp>")
    assert not check({"nn/a.cpp": '#include "tensor/tensor.h"\n#include <vector>\n// #include "optim/adam.h"'})
    assert not check({"tensor/cpu/a.cpp": "#include <Eigen/Core>\n#pragma omp simd"})
    assert not check({"examples/a.cpp": "#include <mezzo.h>\n#include <CLI/CLI.hpp>"})


self_test()
tree.report(check(tree.sources(tree.root())))
