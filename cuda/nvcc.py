"""Runs nvcc on one file and keeps what ptxas says about its kernels, which tests/cuda/registers.py reads.

`nvcc.py OUTPUT COMMAND...`: what the command writes to stderr is passed on, without ptxas's lines (-Xptxas=-v), which go
to OUTPUT.ptxas.
"""
import re
import subprocess
import sys

PTXAS = re.compile(r"ptxas info|\s+\d+ bytes stack frame")


def main(output, *command):
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    lines = done.stderr.splitlines(keepends=True)
    with open(output + ".ptxas", "w") as file:
        file.writelines(line for line in lines if PTXAS.match(line))
    sys.stderr.writelines(line for line in lines if not PTXAS.match(line))
    return done.returncode


sys.exit(main(*sys.argv[1:]))
