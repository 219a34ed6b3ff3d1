"""Training workloads in PyTorch on the CPU: the peer that mezzo is measured against.

    python torch_workloads.py checkerboard --size 256 --layout channels_last

Prints one JSON object a workload: median milliseconds of a training step (forward, loss, backward, Adam), its parts, first and last loss, peak memory of the process and what training added to it.
The shapes are the contract: mezzo's bench programs train the same networks on the same shapes.
"""
import argparse
import json
import resource
import time

import torch
from torch import nn
from torch.nn import functional as F


AMP = {"off": torch.bfloat16, "bf16": torch.bfloat16, "fp16": torch.float16}


class Checkerboard(nn.Sequential):
    """1x1 convolutions 2-256-256-256-1 with BatchNorm and ReLU over a grid of coordinates."""

    def __init__(self, width=256):
        layers, channels = [], 2
        for _ in range(3):
            layers += [nn.Conv2d(channels, width, 1), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        super().__init__(*layers, nn.Conv2d(width, 1, 1))


def coordinates(size):
    """[1, 2, size, size]: column / size and row / size."""
    line = torch.arange(size) / size
    return torch.stack([line.expand(size, size), line[:, None].expand(size, size)])[None].contiguous()


def checkerboard(size, freq=8):
    """[1, 1, size, size] of 0 and 1."""
    line = (torch.arange(size) * (freq / size / 2.0)).fmod(1.0) > 0.5
    return (line[None, :] ^ line[:, None]).float()[None, None]


def workload(name, size):
    """Network, input, loss as a function of the network's output and the target, and target."""
    if name == "checkerboard":
        return Checkerboard(), coordinates(size), F.mse_loss, checkerboard(size)
    raise SystemExit(f"unknown workload {name}")


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(name, a):
    torch.manual_seed(a.seed)
    net, x, loss_fn, target = workload(name, a.size)
    if a.layout == "channels_last" and x.dim() == 4:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    model = torch.compile(net) if a.compile else net
    adam = torch.optim.Adam(net.parameters(), 0.001)
    scaler = torch.amp.GradScaler("cpu", enabled=a.amp == "fp16")

    before = peak_mib()
    times, losses = [], []
    for step in range(a.steps + a.warmup):
        t0 = time.perf_counter()
        adam.zero_grad()
        with torch.autocast("cpu", AMP[a.amp], enabled=a.amp != "off"):
            loss = loss_fn(model(x), target)
        t1 = time.perf_counter()
        scaler.scale(loss).backward()
        t2 = time.perf_counter()
        scaler.step(adam)
        scaler.update()
        t3 = time.perf_counter()
        losses.append(loss.detach())
        if step >= a.warmup:
            times.append((t3 - t0, t1 - t0, t2 - t1, t3 - t2))
    times.sort()
    step_s, forward, backward, optimizer = times[len(times) // 2]
    return {"workload": name, "framework": "torch " + torch.__version__, "device": a.device, "amp": a.amp, "layout": a.layout, "compile": a.compile,
            "threads": a.threads, "size": a.size,
            "median_step_ms": 1e3 * step_s, "min_step_ms": 1e3 * times[0][0], "forward_ms": 1e3 * forward, "backward_ms": 1e3 * backward, "optimizer_ms": 1e3 * optimizer,
            "first_loss": losses[0].item(), "loss": losses[-1].item(), "peak_mib": peak_mib(), "training_mib": peak_mib() - before}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("workloads", nargs="+", choices=["checkerboard"])
    p.add_argument("--size", type=int, default=256)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--device", choices=["cpu"], default="cpu")
    p.add_argument("--amp", choices=list(AMP), default="off")
    p.add_argument("--layout", choices=["nchw", "channels_last"], default="channels_last")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    for name in a.workloads:
        print(json.dumps(run(name, a)), flush=True)


if __name__ == "__main__":
    main()
