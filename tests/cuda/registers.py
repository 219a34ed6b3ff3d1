"""What each CUDA kernel takes of a multiprocessor, as ptxas said when it was compiled: a table, by families of kernels.

    registers.py ROOT FOLDER [NAME...]               those files of cuda/ (all), compiled in FOLDER
    registers.py --markdown ROOT FOLDER > docs/kernels.md

Fails if a kernel for sm_90 spills registers to memory, or if a block of the size that it is launched with could not
run: __launch_bounds__ says how many threads that are, and without it they are at most 512.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

ARCH, REGISTERS, UNBOUND = "sm_90", 65536, 512  # of a multiprocessor; threads of a block whose kernel has no bounds

COMPILED = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
BOUNDS = re.compile(r"__launch_bounds__\(([^()]*)\)\s*(\w+)\(")
CONSTANT = re.compile(r"\b(k[A-Z]\w*) = ([^;,]+)[;,]")


def read(text):
    """(mangled name, architecture) to registers, bytes of shared memory and bytes of spills."""
    kernels, kernel = {}, None
    for line in text.splitlines():
        if match := COMPILED.search(line):
            kernel = kernels.setdefault(match.groups(), {"registers": 0, "shared": 0, "spills": 0})
        elif match := SPILLS.search(line):
            if kernel is not None:
                kernel["spills"] = int(match[1]) + int(match[2])
        elif (match := USED.search(line)) and kernel is not None:
            kernel["registers"] = int(match[1])
            shared = SHARED.search(line)
            kernel["shared"] = int(shared[1]) if shared else 0
            kernel = None  # what follows until the next entry is of functions that were not inlined
    return kernels


def bounds_of(text, headers=""):
    """Kernels of a file and its headers to the threads that their __launch_bounds__ allow: several numbers, in order, where
    they depend on a type."""
    constants = dict(CONSTANT.findall(headers) + CONSTANT.findall(text))

    def values(expression):
        expression = re.sub(r"<[^>]*>", "", expression).strip()
        if "?" in expression:
            return sorted(number for part in re.split("[?:]", expression)[1:] for number in values(part))
        product = 1
        for word in expression.split("*"):
            found = [int(word)] if word.strip().isdigit() else values(constants[word.strip()])
            if len(found) > 1:
                return found  # none has a factor beside it
            product *= found[0]
        return [product]

    return {kernel: values(expression) for expression, kernel in BOUNDS.findall(headers + text)}


def families_of(names):
    """Mangled name to the kernel's name without namespaces and template arguments."""
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    plain = (line.replace("(anonymous namespace)", "").removeprefix("void ") for line in done.stdout.splitlines())
    return {name: re.split(r"[<(]", text)[0].split("::")[-1] for name, text in zip(names, plain)}


def problems_of(file, family, kernel, threads, arch):
    if arch != ARCH:
        return []
    problems = []
    if kernel["spills"]:
        problems.append(f"{file}.cu: {family} spills {kernel['spills']} bytes")
    if kernel["registers"] * threads > REGISTERS:
        problems.append(f"{file}.cu: {family} has {kernel['registers']} registers, too many for a block of {threads}: "
                        "__launch_bounds__ tells ptxas how many threads there are")
    return problems


def self_test():
    text = """ptxas info    : Compiling entry function '_Z1fv' for 'sm_90'
    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 44 registers, used 1 barriers, 8192 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1fv' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers"""
    kernels = read(text)
    assert kernels["_Z1fv", "sm_90"] == {"registers": 44, "shared": 8192, "spills": 12}
    assert kernels["_Z1fv", "sm_80"] == {"registers": 20, "shared": 0, "spills": 0}
    assert len(problems_of("a", "f", kernels["_Z1fv", "sm_90"], 1024, "sm_90")) == 1
    assert len(problems_of("a", "f", {"registers": 65, "shared": 0, "spills": 0}, 1024, "sm_90")) == 1
    assert not problems_of("a", "f", {"registers": 64, "shared": 0, "spills": 0}, 1024, "sm_90")
    headers = "constexpr unsigned kA = 256, kC = 3;\nconstexpr unsigned kB = sizeof(T) == 8 ? 512 : 1024;"
    text = "constexpr int kC = 2;\n__launch_bounds__(kA)\n f(int); __launch_bounds__(kB<T>) g(); __launch_bounds__(kA* kC) h();"
    assert bounds_of(text, headers) == {"f": [256], "g": [512, 1024], "h": [512]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--markdown", action="store_true")
    p.add_argument("root", type=pathlib.Path)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("names", nargs="*")
    a = p.parse_args()

    headers = "\n".join(path.read_text() for path in sorted((a.root / "cuda").glob("*.cuh")))
    files = {name: a.folder / f"{name}.cu.o.ptxas"
             for name in a.names or sorted(path.stem for path in (a.root / "cuda").glob("*.cu"))}
    kernels = {name: read(path.read_text()) for name, path in files.items()}
    archs = {arch for found in kernels.values() for _, arch in found}
    if empty := [name for name, found in kernels.items() if not found]:
        sys.exit(f"ptxas said nothing about the kernels of {', '.join(empty)}")
    arch = ARCH if ARCH in archs else max(archs, key=lambda name: int(re.search(r"\d+", name)[0]))

    rows, problems = [], []
    for file, found in kernels.items():
        found = {name: kernel for (name, which), kernel in found.items() if which == arch}
        bounds = bounds_of((a.root / "cuda" / f"{file}.cu").read_text(), headers)
        families, groups = families_of(list(found)), collections.defaultdict(list)
        for name, kernel in found.items():
            groups[families[name]].append(kernel)
        for family, members in sorted(groups.items()):
            threads = bounds.get(family, [UNBOUND])[0]
            for kernel in members:
                problems += problems_of(file, family, kernel, threads, arch)
            most = {key: max(kernel[key] for kernel in members) for key in members[0]}
            rows.append([f"{file}.cu", family, len(members), most["registers"], " or ".join(map(str, bounds.get(family, []))), most["shared"],
                         most["spills"]])
    show(rows, arch, a.markdown)
    for problem in sorted(set(problems)):
        print(problem)
    return bool(problems)


def show(rows, arch, markdown):
    rows = [["file", "kernel", "instances", "registers", "threads", "shared bytes", "spilt bytes"],
            *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [[cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
             for row in rows]
    instances = sum(int(row[2]) for row in rows[1:])
    if not markdown:
        print(f"{instances} kernels for {arch}")
        for line in lines:
            print("  ".join(line))
        return
    print(f"""# What each CUDA kernel takes

What ptxas says of the {instances} kernels for {arch}, by the templates that they come from: the most of all instances. A multiprocessor has 65,536 registers; "threads" is the largest block that a kernel is compiled for, where it says so, and others are launched with at most {UNBOUND}. Shared memory is what the compiler knows: layer_norm asks for more at the launch. The test `registers` fails if a kernel spills or its block would not fit.

Made by `python3 tests/cuda/registers.py --markdown . build/cuda/libmezzo_cuda.a.p > docs/kernels.md`.
""")
    lines.insert(1, ["-" * width if i < 2 else "-" * (width - 1) + ":" for i, width in enumerate(widths)])
    for line in lines:
        print("| " + " | ".join(line) + " |")


self_test()
sys.exit(main())
