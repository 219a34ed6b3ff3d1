"""What run_gpu.sh does, phase by phase: each has a time that it may take, and what has been found is written after it."""
import argparse
import ctypes
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOTAL = 470  # seconds
# The most that a phase takes; what the earlier ones leave of the total is the last one's.
BUILD, SUITE, SANITIZER = 240, 120, 60
SKIP, NO_DEVICE = 77, "skipped: no CUDA device"
TARGETS = ["tests/cuda/cuda_test", "tests/cuda/cuda_kernels_test", "bench/workloads_cuda", "bench/cuda_ops"]
# Kernels with shared memory, atomics or edges; a test runs tens of times as long under the sanitizer.
SANITIZED = ["reductions: long lines*", "softmax: lines longer*", "softmax: infinity*", "layer_norm: many rows*",
             "batch_norm: channels of many*", "scatter_add: more*", "norm and clip: nothing*", "adam: a tensor of several*",
             "update_scale*", "conv1x1_stats_grad*", "matmul on CUDA: integers*", "attention: long rows*"]


class Report:
    """The table and the JSON file."""

    def __init__(self, folder, start):
        self.folder, self.start, self.phases, self.measured = folder, start, [], ""
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, phase, result, seconds, failed=False):
        self.phases.append({"phase": phase, "result": result, "seconds": round(seconds, 1), "failed": failed})
        print(f"{phase}: {result} ({seconds:.0f} s)", flush=True)
        self.write()

    def write(self):
        lines = [f"{p['phase']:<12} {p['seconds']:>6.1f} s  {p['result']}" for p in self.phases]
        (self.folder / "gpu.txt").write_text("\n".join(lines) + "\n" + self.measured)
        compared = self.folder / "compare.json"
        found = json.loads(compared.read_text()) if compared.exists() else {}
        (self.folder / "gpu.json").write_text(json.dumps({"phases": self.phases, **found}, indent=1) + "\n")

    def left(self):
        return TOTAL - (time.monotonic() - self.start)

    def failed(self):
        return any(phase["failed"] for phase in self.phases)


def card():
    """Names and compute capabilities of the CUDA devices, from the driver itself; none without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, found = ctypes.c_int(), []
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    for index in range(count.value):
        device, name, parts = ctypes.c_int(), ctypes.create_string_buffer(256), []
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(name, 256, device)
        for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
            part = ctypes.c_int()
            driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device)
            parts.append(str(part.value))
        found.append((name.value.decode(), "".join(parts)))
    return found


def tools(folder):
    """A folder at the head of PATH with python3, this one, which find.py and the tests then are run by, and with meson and
    ninja where only Python has them."""
    folder.mkdir(parents=True, exist_ok=True)

    def script(name, *command):
        path = folder / name
        path.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in command) + ' "$@"\n')
        path.chmod(0o755)

    script("python3", sys.executable)
    beside = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([str(folder), beside, os.environ.get("PATH", "")])
    if not shutil.which("meson"):
        script("meson", sys.executable, "-m", "mesonbuild.mesonmain")
    if not shutil.which("ninja") and (program := ninja_of_python()):
        script("ninja", program)


def ninja_of_python():
    """The program in Python's package ninja; `-m ninja` would look for it by name, and find what we are about to make."""
    spec = importlib.util.find_spec("ninja")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    places = [package / "data/bin", package.parent / "bin", Path(sysconfig.get_path("scripts")), *(parent / "bin" for parent in package.parents)]
    return next((place / "ninja" for place in places if os.access(place / "ninja", os.X_OK)), None)


def compiler():
    """CXX, or the first g++ that knows C++20 well enough."""
    if os.environ.get("CXX"):
        return os.environ["CXX"]
    for name in ("g++", "g++-12", "g++-13", "g++-14"):
        if shutil.which(name):
            version = subprocess.run([name, "-dumpversion"], capture_output=True, text=True).stdout
            if int(version.split(".")[0]) >= 12:
                return name
    return "g++"


def run(command, seconds, log, env=None):
    """Exit status, or None if there was no time; what the command says goes to `log` too. Its children end with it."""
    with open(log, "a") as file:
        process = subprocess.Popen([str(word) for word in command], stdout=file, stderr=subprocess.STDOUT,
                                   env={**os.environ, **(env or {})}, start_new_session=True)
        try:
            return process.wait(timeout=max(1, seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return None


def tail(log, lines=40):
    print("\n".join(Path(log).read_text(errors="replace").splitlines()[-lines:]), file=sys.stderr)


def build(a, report, arch):
    start, log = time.monotonic(), a.out / "build.log"
    log.unlink(missing_ok=True)
    settings = ["-Dcuda=enabled", "-Demulator=disabled", "-Donednn=disabled", "-Dexamples=false", f"-Dgpu_arch={arch}",
                f"-Dheaders={a.headers.resolve() if a.headers else ''}"]
    again = ["--reconfigure"] if (a.build / "build.ninja").exists() else []
    os.environ["CXX"] = compiler()
    for command in (["meson", "setup", *again, a.build, ROOT, *settings],
                    ["ninja", "-C", a.build, *(["-j", a.jobs] if a.jobs else []), *TARGETS]):
        seconds = (a.build_seconds or BUILD) - (time.monotonic() - start)
        status = run(command, seconds, log)
        if status != 0:
            tail(log)
            why = "took too long" if status is None else f"failed, see {log}"
            report.add("build", f"{command[0]} {why}", time.monotonic() - start, failed=True)
            return False
    report.add("build", f"for sm_{arch}", time.monotonic() - start)
    return True


def suite(a, report):
    start, log = time.monotonic(), a.out / "suite.log"
    log.unlink(missing_ok=True)
    (a.build / "meson-logs/testlog.json").unlink(missing_ok=True)
    status = run(["meson", "test", "-C", a.build, "--no-rebuild", "--suite", "gpu", "--num-processes", 4, "--print-errorlogs"],
                 min(SUITE, report.left()), log)
    sums = subprocess.run([sys.executable, ROOT / "tests/summary.py", a.build], capture_output=True, text=True).stdout.strip()
    counts = [int(count) for count in re.findall(r"\d+", sums)] or [0, 1, 0]
    if status != 0:
        tail(log)
    if status == 0 and counts[0] == counts[1] == 0:
        report.add("suite", NO_DEVICE, time.monotonic() - start)
    else:
        report.add("suite", sums + ("; took too long" if status is None else ""), time.monotonic() - start,
                   failed=status != 0 or counts[1] > 0)


def sanitize(a, tool, until, results):
    """Test case by test case, as many as there is time for; one that is not there any more is an error too."""
    log, clean, wrong = a.out / f"{tool}.log", 0, []
    log.unlink(missing_ok=True)
    for case in SANITIZED:
        if until - time.monotonic() < 5:
            break
        command = [a.sanitizer, "--tool", tool, "--error-exitcode", 9, "--report-api-errors", "no",
                   a.build / "tests/cuda/cuda_kernels_test", f"-tc={case}"]
        status = run(command, until - time.monotonic(), log, {"MEZZO_TEST_DEVICE": "cuda"})
        none = re.search(r"test cases: +0 ", log.read_text(errors="replace")[-500:])
        clean += status == 0 and not none
        if status not in (0, None) or none:
            wrong.append(case)
    left = len(SANITIZED) - clean - len(wrong)
    results[tool] = (f"{clean} test cases clean" + (f", {left} not run for want of time" if left else "")
                     + (f"; ERRORS in {', '.join(wrong)}, see {log}" if wrong else ""), bool(wrong) or clean == 0)


def sanitizers(a, report):
    start = time.monotonic()
    folders = [os.environ.get("PATH", ""), "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"]
    a.sanitizer = shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if not a.sanitizer:
        return report.add("sanitizer", "compute-sanitizer is not installed", 0)
    results, until = {}, start + min(SANITIZER, report.left())
    threads = [threading.Thread(target=sanitize, args=(a, tool, until, results)) for tool in ("memcheck", "racecheck")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for tool, (result, failed) in sorted(results.items()):
        report.add(tool, result, time.monotonic() - start, failed)


def compare(a, report):
    start, log = time.monotonic(), a.out / "compare.log"
    command = [sys.executable, ROOT / "bench/compare.py", "--device", "cuda", "--build", a.build, "--json", a.out / "compare.json",
               "--seconds", f"{report.left() - 15:.0f}", "--threads", min(16, os.cpu_count())]
    with open(log, "w") as file:
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True)
        try:
            report.measured, _ = process.communicate(timeout=max(1, report.left()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            report.measured, _ = process.communicate()
    if process.returncode != 0:
        tail(log)
    report.add("compare", "measured" if process.returncode == 0 else f"ended with {process.returncode}, see {log}",
               time.monotonic() - start, failed=process.returncode != 0)


def main():
    start = time.monotonic()
    p = argparse.ArgumentParser(prog="run_gpu.sh", description="Builds, tests and measures the CUDA backend on this machine's GPU")
    p.add_argument("--headers", type=Path, metavar="FOLDER", help="with Eigen/, nlohmann/, doctest/ and CLI/, in place of packages")
    p.add_argument("--python", help="that runs meson, finds cuDNN and has PyTorch; default python3")
    p.add_argument("--build", type=Path, metavar="FOLDER", default=ROOT / "build-gpu", help="default build-gpu/")
    p.add_argument("--out", type=Path, metavar="FOLDER", help="of results and logs; default: results/ in the build folder")
    p.add_argument("--arch", help="compute capability to build for, as 90; default: the card's")
    p.add_argument("--jobs", type=int, help="of the build")
    p.add_argument("--build-seconds", type=float, help=f"that the build may take, not {BUILD}; the whole then takes longer too")
    a = p.parse_args()
    a.build = a.build.resolve()
    a.out = (a.out or a.build / "results").resolve()
    report = Report(a.out, start)
    (a.out / "compare.json").unlink(missing_ok=True)
    tools(a.out / "tools")

    cards = card()
    report.add("card", ", ".join(f"{name} (sm_{arch})" for name, arch in cards) or NO_DEVICE, time.monotonic() - start)
    built = build(a, report, a.arch or (cards[0][1] if cards else "90"))
    report.start += max(0, time.monotonic() - start - BUILD)  # of --build-seconds
    if built:
        suite(a, report)
        if cards:
            sanitizers(a, report)
            compare(a, report)
        else:
            report.add("sanitizer", NO_DEVICE, 0)
            report.add("compare", NO_DEVICE, 0)
    print(f"\n{(a.out / 'gpu.txt').read_text()}\nwritten to {a.out}/gpu.txt and gpu.json", flush=True)
    return 1 if report.failed() else 0 if cards else SKIP


if __name__ == "__main__":
    sys.exit(main())
