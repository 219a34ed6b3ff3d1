"""Single ops beside libtorch's, run in turn on this machine: a line for each row that both programs have.

    path/to/python bench/compare_ops.py --threads 2 --filter 'softmax|cast'

To be run by a Python that has torch. Builds bench/ops and bench/libtorch_ops first, the latter for that torch. Figures
are medians over the rounds; a ratio below 1 says that mezzo is the faster one. With one thread, processor time is
compared, which a busy machine changes little.
"""
import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

import torch

import compare

PROGRAMS = ("ops", "libtorch_ops")


def measure(program, a):
    """Row to its figures as Google Benchmark names them, with `time` for the one that counts."""
    command = [program, "--benchmark_format=json", f"--benchmark_filter={a.filter}", "--benchmark_min_time=0.2"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS=str(a.threads)))
    rows = {row["name"].removesuffix("/real_time"): row for row in json.loads(done.stdout)["benchmarks"]}
    for row in rows.values():
        row["time"] = row["cpu_time" if a.threads == 1 else "real_time"]
    return rows


def figure(row):
    """A rate where the row counts something, else a time, and the unit."""
    for key, unit in (("bytes_per_second", "GB/s"), ("FLOP/s", "GFLOP/s")):
        if key in row:
            return row[key] * row["real_time"] / row["time"] / 1e9, unit
    return row["time"], row["time_unit"]


def show(name, mezzo, libtorch):
    """Medians of the figures, and of the ratios of the times in each round."""
    figures = "".join(f"{statistics.median(figure(row)[0] for row in rows):9.1f} {figure(rows[0])[1]:7}"
                      for rows in (mezzo, libtorch))
    ratio = statistics.median(a["time"] / b["time"] for a, b in zip(mezzo, libtorch))
    print(f"{name:56}{figures}{ratio:6.2f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--filter", default=".", metavar="REGEX", help="which rows")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--build", type=Path, default=compare.BUILD, help="build folder")
    a = p.parse_args()
    a.build = a.build.resolve()
    compare.build(a.build, PROGRAMS, [f"-Dtorch={torch.__path__[0]}"])
    rounds = [[measure(a.build / "bench" / program, a) for program in PROGRAMS] for _ in range(a.rounds)]
    print(f"{'':56}{'mezzo':>9}{'libtorch':>17}{'ratio':>14}")
    for name in rounds[0][0]:
        if name in rounds[0][1]:
            show(name, *([run[i][name] for run in rounds] for i in range(len(PROGRAMS))))


if __name__ == "__main__":
    main()
