"""mezzo beside PyTorch on the same work, run in turn on this machine.

    path/to/python bench/compare.py                          everything, within 30 minutes
    path/to/python bench/compare.py --quick --markdown       one round, as the README's tables
    path/to/python bench/compare.py --workloads ops --filter 'softmax|cast' --threads 1
    path/to/python bench/compare.py --channels               what bfloat16 gains, by channels
    path/to/python bench/compare.py --device cuda            on a GPU (gpu.py), within 8 minutes; --emulate tries it without one

To be run by a Python that has torch. Builds mezzo first (the folder of examples/run.sh unless --build names another),
checks that the networks are the same in both, then runs every form once a round in a rotating order, each run a process
of its own, and prints medians over the rounds. NOTES.md says what each workload is.

Time: building takes up to 10 minutes, once. A form of PyTorch's may fail or take too long, and is then left out with
the reason. No round begins that could end after TOTAL_LIMIT, so all ends within 30 minutes.
"""
import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import time
from pathlib import Path

import gpu
import training
from op_rows import Ops
from runner import ROOT, Form, Task, build, number, run_rounds

TOTAL_LIMIT, GPU_LIMIT = 1740, 460  # seconds
BUILD = Path(os.environ.get("MEZZO_BUILD", ROOT / "build"))
PROGRAMS = ["limits", "workloads", "products", "libtorch_mlp", "ops", "libtorch_ops"]
TORCH = importlib.util.find_spec("torch")  # found, not imported: processes begin with this one's peak memory
DEFAULT = [*training.STEPS, "ops", "overhead"]


def make_tasks(a, programs):
    """What the workloads run, by the programs that are built."""
    tasks = []
    for name in a.workloads:
        if name in training.STEPS:
            tasks.append(training.Training(name, a))
        elif name == "channels":
            tasks.append(training.Channels(a))
        elif name == "scaling":
            tasks += [training.Pixels(a), Ops("chain", "^chain/", a, programs)]
        elif name == "overhead":
            tasks.append(Ops(name, "^(tiny/|chain/1000 )", a, programs))
        else:
            tasks.append(Ops(name, a.filter, a, programs))
    return tasks


def machine(limits, a):
    """The processor, and what it can do at most."""
    text = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    parts = [f"{a.threads} {'thread' if a.threads == 1 else 'threads'} of {name[1] if name else 'an unknown processor'}"]
    for dtype in ("float32", "bfloat16"):
        best = max((result[dtype] for result in limits if result[dtype]), key=lambda peak: peak["gflops"], default=None)
        if best:
            parts.append(f"{number(best['gflops'])} GFLOP/s in {dtype} ({best['instruction']})")
    parts.append(f"{number(max(result['memory']['multiply']['gbs'] for result in limits))} GB/s of memory")
    return ", ".join(parts) + f"; PyTorch {importlib.metadata.version('torch')}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workloads", nargs="+", choices=[*DEFAULT, "scaling", "channels"], default=DEFAULT)
    p.add_argument("--channels", action="store_const", dest="workloads", const=["channels"], help="short for --workloads channels")
    p.add_argument("--amp", nargs="+", choices=list(gpu.PRECISIONS), dest="amps")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--emulate", action="store_true", help="with --device cuda: mezzo on the emulator, PyTorch on the CPU; whether all of it runs")
    p.add_argument("--seconds", type=float, help="until which no more is begun")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--quick", action="store_const", dest="rounds", const=1, help="one round")
    p.add_argument("--steps", type=int, help="steps of a run that are timed; else some seconds of them")
    p.add_argument("--size", type=int, help="pixels of the checkerboard's side: 256, on a GPU 512")
    p.add_argument("--filter", default="-^(tiny|chain)/", metavar="REGEX", help="which rows of ops; with - before it, which not")
    p.add_argument("--json", type=Path, metavar="FILE", help="writes all results")
    p.add_argument("--markdown", action="store_true", help="tables as the README has them")
    p.add_argument("--build", type=Path, default=BUILD, help="build folder")
    a = p.parse_args()
    a.build = a.build.resolve()
    a.torch = TORCH is not None
    if a.device == "cuda":
        sys.exit(gpu.main(a, a.seconds or GPU_LIMIT))
    if not a.torch:
        sys.exit("compare.py is run by a Python that has torch")
    if "tf32" in (a.amps or []):
        p.error("TF32 is of GPUs")
    a.amps, a.size = a.amps or list(training.DTYPES), a.size or 256
    deadline = time.monotonic() + (a.seconds or TOTAL_LIMIT)
    programs = build(a.build, PROGRAMS, ["onednn_ops"], [f"-Dtorch={Path(TORCH.origin).parent}"])

    tasks = make_tasks(a, programs)
    trainings = [task for task in tasks if isinstance(task, training.Training)]
    for task in trainings:
        training.check_same(task.name, a)
    limits = Task("limits", {"limits": Form([a.build / "bench/limits", a.threads])})
    run_rounds([limits, *tasks], a.rounds, a.threads, deadline)

    limits = limits.results["limits"]
    print(machine(limits, a))
    rows = [(task, task.row(amp, limits)) for task in trainings for amp in task.amps]
    if not a.markdown:
        for task, row in rows:
            task.show(row)
    rows = [row for _, row in rows]
    if rows:
        training.show_summary(rows, a)
    for task in tasks:
        if task not in trainings:
            task.show(a)
            rows += task.rows()
    if a.json:
        a.json.write_text(json.dumps([row | {"machine": machine(limits, a)} for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
