"""Runs of the checkerboard: saved and resumed to the bit, compared, traced. Usage: checkerboard_runs.py PROGRAM DEVICE"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

program, device = sys.argv[1:]


def run(*options, channels=8, fails=False):
    command = [program, "--device", device, "--size", "16", "--channels", str(channels), "--json", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, (command, done.returncode, done.stderr)
    return done.stderr if fails else (json.loads(done.stdout.splitlines()[-1]), done.stderr)


def losses(log):
    return [(line["step"], line["loss"], line["scale"], line["skipped_steps"]) for line in map(json.loads, log.open())]


with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    out = ["--out", folder / "a.png"]
    # A large first scale, so that steps are skipped before and after the file is written.
    half = ["--amp", "fp16", "--init-scale", 2.0**40, "--growth-interval", 3, *out]
    run("--steps", 24, "--log", folder / "whole.jsonl", *half)
    whole = losses(folder / "whole.jsonl")
    assert whole[-1][3] > 0 and whole[0][2] < 2.0**40, whole
    run("--steps", 10, "--save", folder / "half.safetensors", *half)
    run("--steps", 24, "--resume", folder / "half.safetensors", "--log", folder / "rest.jsonl", *half)
    rest = losses(folder / "rest.jsonl")
    assert [row[:3] for row in rest] == [row[:3] for row in whole[10:]], (rest, whole)

    wrong = ["--steps", 24, "--resume", folder / "half.safetensors", *out]
    assert "load_state_dict" in run(*wrong, channels=4, fails=True)
    assert "already" in run("--resume", folder / "half.safetensors", "--steps", 10, *out, fails=True)
    assert "no checkpoint" in run("--resume", Path(__file__).parent.parent / "golden/init.safetensors", *out, fails=True)
    assert "growth_factor" in run("--amp", "fp16", "--growth-factor", 1, "--steps", 1, *out, fails=True)

    result, text = run("--steps", 3, "--amp", "bf16", "--trace", "--report", folder / "gradients.png", *out)
    assert result["amp"] == "bf16" and result["dtype"] == "bfloat16"
    assert "conv1x1_stats" in text and "bfloat16, bfloat16, bfloat16" in text and "overflowed" in text, text
    assert (folder / "gradients.png").stat().st_size > 1000

    result, text = run("--steps", 3, "--amp", "fp16", "--compare", *out)
    assert {"float32", "mixed", "unscaled", "float16", "ratio"} <= set(result), result
    assert result["float32"]["amp"] == "off" and result["mixed"]["amp"] == "fp16"
    assert result["float32"]["dtype"] == "float32" and result["mixed"]["dtype"] == "float16"
    assert result["ratio"]["live_peak_mib"] > 0 and "everything in float16" in text
    assert result["unscaled"]["scale"] == 1 and result["mixed"]["scale"] > 1
    result, _ = run("--steps", 3, "--compare", *out)
    assert set(result) == {"float32", "mixed", "ratio"} and result["mixed"]["dtype"] == "bfloat16"
