"""mezzo beside PyTorch on the same training steps, run in turn on this machine.

    path/to/python bench/compare.py --workloads checkerboard --amp off bf16 --threads 2 --json comparison.json

To be run by a Python that has torch. Builds mezzo first (the folder of examples/run.sh unless --build names another), then
runs every form --rounds times in a rotating order, each run a process of its own, and prints medians over the rounds.

Time: building takes up to 10 minutes, once. A run takes seconds and may take RUN_LIMIT; one that compiles, COMPILE_LIMIT;
what fails or takes longer is left out with the reason. No round begins that could end after TOTAL_LIMIT, so all ends
within 30 minutes.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
BUILD = Path(os.environ.get("MEZZO_BUILD", ROOT / "build"))
BUILD_LIMIT, RUN_LIMIT, COMPILE_LIMIT, TOTAL_LIMIT = 600, 120, 300, 1740
PROGRAMS = {"checkerboard": "checkerboard"}  # workload to program of mezzo
TORCH_FORMS = {"eager": ["--layout", "nchw"], "eager channels-last": [], "compiled channels-last": ["--compile"]}
REQUIRED = "eager channels-last"  # the form that mezzo's speed is promised against


def build(folder, targets, settings=()):
    """Configures and builds; a build that is not optimised is refused."""
    new = not (folder / "build.ninja").exists()
    if new or settings:
        command = ["meson", "setup", *([] if new else ["--reconfigure"]), folder, ROOT, *settings]
        subprocess.run(command, check=True, stdout=sys.stderr, timeout=BUILD_LIMIT)
    options = json.loads(subprocess.run(["meson", "introspect", "--buildoptions", folder], check=True, capture_output=True).stdout)
    kind = next(option["value"] for option in options if option["name"] == "buildtype")
    if kind != "release":
        sys.exit(f"{folder} is a {kind} build: give a release build by --build")
    subprocess.run(["ninja", "-C", folder, *(f"bench/{target}" for target in targets)], check=True, stdout=sys.stderr, timeout=BUILD_LIMIT)


def run(command, limit, threads):
    """The JSON object on the last line that a command prints, or the reason why there is none."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit, env=env)
    except subprocess.TimeoutExpired:
        return f"took more than {limit} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def forms(workload, a):
    """Name to (command, limit in seconds) of everything that is run in turn."""
    shape = ["--size", a.size, "--threads", a.threads, "--steps", a.steps, "--amp", a.amp]
    program = a.build / "bench" / PROGRAMS[workload]
    result = {"mezzo": ([program, *shape], RUN_LIMIT), "products": ([program, *shape, "--products"], RUN_LIMIT)}
    for name, flags in TORCH_FORMS.items():
        command = [sys.executable, BENCH / "torch_workloads.py", workload, *shape, "--device", a.device, *flags]
        result[name] = (command, COMPILE_LIMIT if "--compile" in flags else RUN_LIMIT)
    result["peak"] = ([a.build / "bench" / "peak", a.threads], RUN_LIMIT)
    return result


def measure(workload, a, deadline):
    """Form to its results, one a round, with the forms in another order each time."""
    todo = forms(workload, a)
    results = {name: [] for name in todo}
    longest = 0
    for number in range(a.rounds):
        start = time.monotonic()
        if number > 0 and start + longest > deadline:
            print(f"stopped after {number} rounds: time is up", file=sys.stderr)
            break
        names = list(todo)
        names = names[number % len(names):] + names[:number % len(names)]
        for name in names:
            command, limit = todo[name]
            result = run(command, min(limit, max(1, deadline - time.monotonic())), a.threads)
            if isinstance(result, str):
                if name not in TORCH_FORMS or name == REQUIRED:
                    sys.exit(f"{workload}, {name}: {result}")
                print(f"{workload}: {name} is left out: {result}", file=sys.stderr)
                del todo[name], results[name]
                continue
            results[name].append(result)
            print(f"round {number + 1}: {name}", file=sys.stderr)
        longest = max(longest, time.monotonic() - start)
    return results


def median(results, key):
    return statistics.median(result[key] for result in results)


def summarise(workload, a, results):
    """The row of the JSON file: medians over the rounds."""
    torch = {name: results[name] for name in TORCH_FORMS if results.get(name)}
    best = min(torch, key=lambda name: median(torch[name], "median_step_ms"))
    mezzo_ms, torch_ms = (median(r, "median_step_ms") for r in (results["mezzo"], torch[best]))
    required_ms = median(torch[REQUIRED], "median_step_ms")
    products_ms, gflop = median(results["products"], "median_ms"), results["products"][0]["gflop"]
    peak = max(result["gflops"] for result in results["peak"])
    return {
        "workload": workload, "amp": a.amp, "mezzo_ms": mezzo_ms, "torch_ms": torch_ms, "ratio": mezzo_ms / torch_ms,
        "peak_share": gflop / mezzo_ms * 1e3 / peak if a.amp == "off" else None,  # the peak is float32's
        "mezzo_mib": median(results["mezzo"], "training_mib"), "torch_mib": median(torch[best], "training_mib"),
        "torch_form": best, "torch_eager_channels_last_ms": required_ms, "eager_channels_last_ratio": mezzo_ms / required_ms,
        "products_ms": products_ms, "over_products": mezzo_ms / products_ms, "gflop": gflop, "peak_gflops": peak,
        "size": a.size, "threads": a.threads, "rounds": len(results["mezzo"]),
    }


def show(results, row):
    """The table: a line for each form, then what the row says."""
    print(f"\n{row['workload']} {row['size']} x {row['size']}, {row['threads']} threads, amp {row['amp']}: medians of {row['rounds']} rounds, milliseconds")
    print(f"{'':24}{'step':>8}{'fastest':>9}{'forward':>9}{'backward':>9}{'optimizer':>10}{'adds MiB':>10}{'mezzo is':>10}")
    for name in ["mezzo", *TORCH_FORMS]:
        if not results.get(name):
            continue
        ms = {key: median(results[name], key + "_ms") for key in ("median_step", "forward", "backward", "optimizer")}
        fastest = min(result["min_step_ms"] for result in results[name])
        print(f"{name:24}{ms['median_step']:8.1f}{fastest:9.1f}{ms['forward']:9.1f}{ms['backward']:9.1f}{ms['optimizer']:10.2f}"
              f"{median(results[name], 'training_mib'):10.0f}{row['mezzo_ms'] / ms['median_step']:9.2f}x")
    print(f"products alone          {row['products_ms']:8.1f}   mezzo's step is {row['over_products']:.2f} of it; {row['gflop']:.1f} GFLOP a step")
    if row["peak_share"]:
        print(f"peak measured           {row['gflop'] / row['peak_gflops'] * 1e3:8.1f}   {row['peak_gflops']:.0f} GFLOP/s, of which mezzo's step uses {row['peak_share']:.0%}")
    print(f"{row['ratio']:.2f} of PyTorch's best ({row['torch_form']}), {row['eager_channels_last_ratio']:.2f} of {REQUIRED}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workloads", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    p.add_argument("--amp", nargs="+", choices=["off", "bf16", "fp16"], default=["off", "bf16"], dest="amps")
    p.add_argument("--device", choices=["cpu"], default="cpu")
    p.add_argument("--json", type=Path, metavar="FILE")
    p.add_argument("--size", type=int, default=256)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=7, help="steps of a run that are timed")
    p.add_argument("--build", type=Path, default=BUILD, help="build folder")
    a = p.parse_args()
    deadline = time.monotonic() + TOTAL_LIMIT
    a.build = a.build.resolve()
    build(a.build, ["peak", *(PROGRAMS[workload] for workload in a.workloads)])
    rows = []
    for workload in a.workloads:
        for i, a.amp in enumerate(a.amps):
            now = time.monotonic()
            results = measure(workload, a, now + (deadline - now) / (len(a.amps) - i))
            rows.append(summarise(workload, a, results))
            show(results, rows[-1])
    if a.json:
        a.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
