"""compare.py on a GPU: the checkerboard's training step beside PyTorch's in all its forms, float16 beside float32; single
ops beside a copy from device to device, matrix products beside cuBLAS alone.

Each form runs once, in a process of its own, those that compile last; one that fails, or for which no time is left, is
left out with the reason. What is there is written after each.
"""
import copy
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runner import BENCH, ROOT, print_table, number, run, share

PRECISIONS = {"off": ("float32", []), "tf32": ("TF32", ["--tf32"]), "bf16": ("bfloat16", []), "fp16": ("float16", [])}
DEFAULT = ["off", "fp16", "tf32"]  # in the order in which time may run out
MEZZO = {"mezzo": [], "mezzo, graph": ["--graph"]}
EAGER = {"PyTorch eager": ["--layout", "nchw"], "PyTorch eager channels-last": []}
COMPILED = {"PyTorch compiled": ["--compile", "--fused"], "PyTorch compiled, graph": ["--compile", "--fused", "--graph"]}
FORM_LIMIT = 90  # seconds
NEAR = 1e-4  # as far as first losses in float32 may differ
SKIPPED = "skipped: no CUDA device"


def build(a, targets):
    """Configures the build folder if it is new, and builds the programs."""
    if not (a.build / "build.ninja").exists():
        subprocess.run(["meson", "setup", a.build, ROOT, *([] if a.emulate else ["-Dcuda=enabled"])], check=True, stdout=sys.stderr)
    subprocess.run(["ninja", "-C", a.build, *(f"bench/{name}" for name in targets)], check=True, stdout=sys.stderr)


def forms_of(a, programs, amps):
    """(precision, form) to its command, in the order in which they run: what compiles comes last."""
    size = ["--size", a.size, "--steps", a.steps, "--channels", 8 if a.emulate else 256]
    flags = {amp: [*size, "--amp", "off" if amp == "tf32" else amp, *PRECISIONS[amp][1]] for amp in amps}
    commands = {}
    for amp in amps:
        for name, more in MEZZO.items():
            commands[amp, name] = [programs["workloads"], "checkerboard", "--device", "cuda", *flags[amp], *more]
    if a.torch:
        for forms in (EAGER, {} if a.emulate else COMPILED):
            for amp in amps:
                for name, more in forms.items():
                    commands[amp, name] = [*torch_command(a), *flags[amp], *more]
    return commands


class Results:
    """All that has been measured, as the JSON file has it; written anew after each form."""

    def __init__(self, a):
        self.json, self.a = {"device": None, "emulated": a.emulate, "size": a.size, "steps": a.steps, "training": [], "ops": [], "rows": [], "left_out": []}, a

    def write(self):
        if self.a.json:
            self.a.json.write_text(json.dumps(self.json, indent=1) + "\n")

    def leave_out(self, what, why):
        print(f"{what} is left out: {why}", file=sys.stderr)
        self.json["left_out"].append({"what": what, "why": why})
        self.write()

    def training(self, amp):
        return {row["form"]: row for row in self.json["training"] if row["amp"] == amp}

    def row(self, amp):
        """Of one precision, in the form of compare.py's rows on a CPU; `mezzo_graph_ms` is a replayed step's."""
        rows = self.training(amp)
        torch = {form: row for form, row in rows.items() if not form.startswith("mezzo")}
        best = min(torch, key=lambda form: torch[form]["median_step_ms"], default=None)
        mezzo, peer = rows["mezzo"], torch.get(best, {})
        return {"workload": "checkerboard", "amp": amp, "mezzo_ms": mezzo["median_step_ms"], "torch_ms": peer.get("median_step_ms"),
                "ratio": mezzo["median_step_ms"] / peer["median_step_ms"] if peer else None, "torch_form": best,
                "mezzo_graph_ms": rows.get("mezzo, graph", {}).get("median_step_ms"),
                "mezzo_mib": mezzo["training_mib"], "torch_mib": peer.get("training_mib")}


def torch_command(a):
    return [sys.executable, BENCH / "torch_workloads.py", "checkerboard", "--threads", a.threads, "--device", "cuda", *(["--try-on-cpu"] if a.emulate else [])]


def check_same(a, programs, results):
    """The first loss of PyTorch's weights and data must be the same in both frameworks, on the GPU in both."""
    small = ["--size", "16", "--steps", "1", "--warmup", "0", "--channels", "8"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        found = [run([str(word) for word in command], FORM_LIMIT, a.threads) for command in (
            [*torch_command(a), *small, "--save", file], [programs["workloads"], "checkerboard", "--device", "cuda", *small, "--load", file])]
    if wrong := [result for result in found if isinstance(result, str)]:
        return results.leave_out("the check that both train the same", wrong[0])
    losses = [result["first_loss"] for result in found]
    results.json["first_losses"] = {"PyTorch": losses[0], "mezzo": losses[1]}
    if abs(losses[1] / losses[0] - 1) > NEAR or found[0]["parameters"] != found[1]["parameters"]:
        sys.exit(f"the checkerboard is not the same in both: {found}")


def measure(a, programs, amps, deadline, results):
    def attempt(what, command):
        left = deadline - time.monotonic()
        if left < 5:
            return results.leave_out(what, "no time is left")
        found = run([str(word) for word in command], min(left, FORM_LIMIT), a.threads)
        if isinstance(found, str):
            return results.leave_out(what, found)
        print(f"{what}: done", file=sys.stderr)
        return found

    if ops := attempt("single ops", [programs["cuda_ops"], *(["--tiny"] if a.emulate else [])]):
        results.json["ops"] = ops.pop("rows")
        results.json["device"] = ops
        results.write()
    if a.torch:
        check_same(a, programs, results)
    else:
        results.leave_out("PyTorch", "this Python has none")
    for (amp, form), command in forms_of(a, programs, amps).items():
        if row := attempt(f"{form}, {PRECISIONS[amp][0]}", command):
            results.json["training"].append({**row, "amp": amp, "form": form})
            results.json["rows"] = [results.row(amp) for amp in amps if "mezzo" in results.training(amp)]
            results.write()


def show_training(results, amps, a):
    lines = []
    for amp in amps:
        rows, reference = results.training(amp), results.training("off")
        torch = [row["median_step_ms"] for form, row in rows.items() if not form.startswith("mezzo")]
        for form, row in rows.items():
            base = reference.get(form)
            lines.append([f"{form}, {PRECISIONS[amp][0]}", number(row["median_step_ms"]), number(1e-3 * row["median_step_ms"] * a.steps),
                          share(row["median_step_ms"] / min(torch)) if torch and form.startswith("mezzo") else "",
                          share(row["median_step_ms"] / base["median_step_ms"]) if base and amp != "off" else "",
                          number(row["training_mib"]),
                          share(row["training_mib"] / base["training_mib"]) if base and base["training_mib"] and amp != "off" else "", number(row["loss"])])
    print_table(f"Checkerboard of {a.size} x {a.size}, {a.steps} steps",
                ["", "ms a step", "seconds", "of PyTorch's best", "time of its float32", "adds MiB", "memory of its float32", "last loss"], lines, a.markdown)


def show_ops(results, a):
    rows = {row["op"]: row for row in results.json["ops"]}
    rate = {op: row["bytes"] / row["ms"] / 1e6 for op, row in rows.items() if "bytes" in row}
    if rate:
        print_table("Ops bound by memory, GB/s", ["", "GB/s", "of a copy"], [[op, number(gbs), share(gbs / rate["copy"])] for op, gbs in rate.items()], a.markdown)
    lines = []
    for op, row in rows.items():
        if op.startswith("matmul/"):
            alone = rows[op.replace("matmul/", "cublas/")]
            lines.append([op, number(row["flop"] / row["ms"] / 1e9), number(alone["flop"] / alone["ms"] / 1e9), share(alone["ms"] / row["ms"])])
    if lines:
        print_table("Matrix products, TFLOP/s", ["", "mezzo", "cuBLAS alone", "of cuBLAS"], lines, a.markdown)


def main(a, seconds):
    """Returns the exit status: 77 where there is no device."""
    deadline = time.monotonic() + seconds
    a = copy.copy(a)
    a.steps = a.steps or (2 if a.emulate else 500)
    a.size = a.size or (8 if a.emulate else 512)
    amps = a.amps or DEFAULT
    names = {"workloads": "workloads_emulated", "cuda_ops": "cuda_ops_emulated"} if a.emulate else {"workloads": "workloads_cuda", "cuda_ops": "cuda_ops"}
    programs = {name: a.build / "bench" / file for name, file in names.items()}
    build(a, [program.name for program in programs.values()])
    results = Results(a)
    probe = subprocess.run([programs["cuda_ops"], "--probe"], capture_output=True, text=True)
    if probe.returncode == 77:
        print(SKIPPED)
        results.json["skipped"] = SKIPPED
        results.write()
        return 77
    measure(a, programs, amps, deadline, results)
    device = results.json["device"]
    if device:
        versions = [f"CUDA {v // 1000}.{v % 1000 // 10}" for v in (device["cuda_runtime"], device["cuda_driver"])]
        print(f"{device['device']}, compute capability {device['compute_capability']}, {versions[0]}, driver for {versions[1]}"
              + (": EMULATED, the times mean nothing" if a.emulate else ""))
    show_training(results, amps, a)
    show_ops(results, a)
    for left in results.json["left_out"]:
        print(f"left out: {left['what']}: {left['why']}")
    return 0 if any(row["form"].startswith("mezzo") for row in results.json["training"]) and results.json["ops"] else 1
