"""How compare.py builds programs, runs them in turn, and prints tables."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
BUILD_LIMIT, RUN_LIMIT, COMPILE_LIMIT = 600, 120, 300  # seconds


class Form:
    """A command that a task runs in every round; one that is not needed may fail, and is then left out."""

    def __init__(self, command, limit=RUN_LIMIT, needed=True):
        self.command, self.limit, self.needed = [str(word) for word in command], limit, needed


class Task:
    """What is run in turn: `forms` by name. `results` gets what each printed, a JSON object a round."""

    def __init__(self, name, forms):
        self.name, self.forms, self.results = name, forms, {form: [] for form in forms}


def introspect(folder, what):
    return json.loads(subprocess.run(["meson", "introspect", f"--{what}", folder], check=True, capture_output=True).stdout)


def build(folder, needed, optional, settings):
    """Configures and builds programs of bench/, of the optional ones those that this build has. Returns their names. A build
    that is not optimised is refused."""
    again = ["--reconfigure"] if (folder / "build.ninja").exists() else []
    subprocess.run(["meson", "setup", *again, folder, ROOT, *settings], check=True, stdout=sys.stderr, timeout=BUILD_LIMIT)
    kind = next(option["value"] for option in introspect(folder, "buildoptions") if option["name"] == "buildtype")
    if kind != "release":
        sys.exit(f"{folder} is a {kind} build: give a release build by --build")
    known = {target["name"] for target in introspect(folder, "targets")}
    programs = [*needed, *(name for name in optional if name in known)]
    subprocess.run(["ninja", "-C", folder, *(f"bench/{name}" for name in programs)], check=True, stdout=sys.stderr, timeout=BUILD_LIMIT)
    return programs


def run(command, limit, threads):
    """The JSON object that a command prints, alone or on its last line, or the reason why there is none."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=env)
    except subprocess.TimeoutExpired:
        return f"took more than {limit:.0f} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    last = (done.stdout.splitlines() or [""])[-1]
    if not last:
        return (done.stderr.strip().splitlines() or ["printed nothing"])[-1]
    return json.loads(last if last.startswith("{") else done.stdout)


def run_rounds(tasks, rounds, threads, deadline):
    """Fills the tasks' results: every form once a round, in another order each time. A round that could end after the
    deadline is not begun."""
    longest = 0
    for number in range(rounds):
        start = time.monotonic()
        if number > 0 and start + longest > deadline:
            print(f"stopped after {number} rounds: time is up", file=sys.stderr)
            break
        for task in tasks:
            names = list(task.forms)
            turn = number % max(1, len(names))
            for name in names[turn:] + names[:turn]:
                form, label = task.forms[name], name if isinstance(name, str) else " ".join(map(str, name))
                left = deadline - time.monotonic()
                # What may be left out takes at most half of what is left, so that there is time for what may not.
                result = run(form.command, max(1, min(form.limit, left if form.needed else left / 2)), threads)
                if not isinstance(result, str):
                    task.results[name].append(result)
                    print(f"round {number + 1}: {task.name}, {label}", file=sys.stderr)
                elif form.needed:
                    sys.exit(f"{task.name}, {label}: {result}")
                else:
                    print(f"{task.name}: {label} is left out: {result}", file=sys.stderr)
                    del task.forms[name], task.results[name]
        longest = max(longest, time.monotonic() - start)


def number(value, digits=3):
    """Three significant digits without an exponent; nothing for what was not measured."""
    if value is None:
        return ""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def share(value):
    return "" if value is None else f"{value:.2f}"


def print_table(title, header, rows, markdown):
    """Columns of text, the first to the left, the others to the right."""
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    pad = [[cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))] for row in table]
    print(f"\n{title}\n" if markdown else f"\n{title}")
    if markdown:
        pad.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    for row in pad:
        print("| " + " | ".join(row) + " |" if markdown else "  ".join(row).rstrip())
