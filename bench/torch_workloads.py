"""Training workloads in PyTorch: the peer that mezzo is measured against.

    python torch_workloads.py checkerboard --size 256 --layout channels_last
    python torch_workloads.py resnet18 lenet mlp gpt --steps 10
    python torch_workloads.py checkerboard --device cuda --size 512 --steps 500 --amp fp16

Prints one JSON object a workload: median milliseconds of a training step (forward, loss, backward, Adam), its parts, its
matrix products and convolutions in GFLOP, first and last loss, peak memory of the process and what training added to it.
On a GPU, where a step's calls return before its work is done, runs of steps are timed, as bench/workloads does; memory is
what tensors hold.
The shapes are the contract: bench/workloads trains the same networks on the same shapes; --save gives it weights and data.
"""
import argparse
import json
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

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


class BasicBlock(nn.Module):
    def __init__(self, c_in, c, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c_in, c, 3, stride, 1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c)
        self.short = nn.Sequential() if stride == 1 and c_in == c else nn.Sequential(nn.Conv2d(c_in, c, 1, stride, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


class ResNet18(nn.Module):
    """The CIFAR form: 3x3 stem, stages of 64, 128, 256 and 512 channels, two blocks each, 10 classes."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        blocks, c_in = [], 64
        for c, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(c_in, c, stride), BasicBlock(c, c, 1)]
            c_in = c
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(512, 10)

    def forward(self, x):
        return self.fc(self.blocks(F.relu(self.bn(self.conv(x)))).mean((2, 3)))


class GPT(nn.Module):
    """4 layers, 128 channels, 4 heads, 128 tokens, 256 bytes; pre-norm; output weights tied to the embedding."""

    def __init__(self, vocab=256, t=128, d=128, heads=4, layers=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(t, d)
        for e in (self.tok, self.pos):
            nn.init.normal_(e.weight, std=0.02)
        self.heads, self.norm = heads, nn.LayerNorm(d)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "n1": nn.LayerNorm(d), "qkv": nn.Linear(d, 3 * d), "out": nn.Linear(d, d),
            "n2": nn.LayerNorm(d), "up": nn.Linear(d, 4 * d), "down": nn.Linear(4 * d, d)}) for _ in range(layers))

    def forward(self, ids):
        b, t = ids.shape
        x = self.tok(ids) + self.pos(torch.arange(t, device=ids.device))
        for k in self.blocks:
            q, key, v = k["qkv"](k["n1"](x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            x = x + k["out"](F.scaled_dot_product_attention(q, key, v, is_causal=True).transpose(1, 2).reshape(b, t, -1))
            x = x + k["down"](F.gelu(k["up"](k["n2"](x))))
        return F.linear(self.norm(x), self.tok.weight)


class LeNet(nn.Module):
    """Two convolutions and two linear layers for digits of 28 x 28."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def mlp():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


WORKLOADS = {
    "checkerboard": lambda a: (Checkerboard(a.channels), coordinates(a.size), F.mse_loss, checkerboard(a.size)),
    "resnet18": lambda a: (ResNet18(), torch.randn(32, 3, 32, 32), F.cross_entropy, torch.randint(0, 10, (32,))),
    "lenet": lambda a: (LeNet(), torch.randn(64, 1, 28, 28), F.cross_entropy, torch.randint(0, 10, (64,))),
    "mlp": lambda a: (mlp(), torch.randn(32, 64), F.cross_entropy, torch.randint(0, 10, (32,))),
    "gpt": lambda a: gpt(torch.randint(0, 256, (8, 129))),
}


def gpt(ids):
    return GPT(), ids[:, :-1].contiguous(), lambda y, t: F.cross_entropy(y.reshape(-1, 256), t.reshape(-1)), ids[:, 1:].contiguous()


def step_gflop(net, x, loss_fn, target):
    """Of the products and convolutions of a step, a multiply-add counting two."""
    with FlopCounterMode(display=False) as counter:
        loss_fn(net(x), target).backward()
    return counter.get_total_flops() / 1e9


def save(path, net, x, target):
    from safetensors.torch import save_file
    save_file({"input": x, "target": target, **{"net." + key: value.contiguous() for key, value in net.state_dict().items()}}, path)


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def prepare(name, a):
    """The workload's model, input, loss and target on their device, the net behind the model, optimizer and scaler."""
    torch.manual_seed(a.seed)
    net, x, loss_fn, target = WORKLOADS[name](a)
    if a.save:
        save(a.save, net, x, target)
    net, x, target = net.to(a.device), x.to(a.device), target.to(a.device)
    if a.layout == "channels_last" and x.dim() == 4:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    model = torch.compile(net, mode="reduce-overhead" if a.graph else None) if a.compile else net
    adam = torch.optim.Adam(net.parameters(), 0.001, fused=a.fused)
    return model, x, loss_fn, target, net, adam, torch.amp.GradScaler(a.device, enabled=a.amp == "fp16")


def about(name, a, net):
    """What a result says besides times."""
    return {"workload": name, "framework": "torch " + torch.__version__, "device": a.device, "amp": a.amp, "layout": a.layout, "compile": a.compile,
            "fused_adam": a.fused, "graph": a.graph, "tf32": a.tf32, "threads": a.threads, "parameters": sum(p.numel() for p in net.parameters())}


def run(name, a):
    model, x, loss_fn, target, net, adam, scaler = prepare(name, a)
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
    training_mib = peak_mib() - before
    return about(name, a, net) | {
        "step_gflop": step_gflop(net, x, loss_fn, target),
        "median_step_ms": 1e3 * step_s, "min_step_ms": 1e3 * times[0][0], "forward_ms": 1e3 * forward, "backward_ms": 1e3 * backward, "optimizer_ms": 1e3 * optimizer,
        "first_loss": losses[0].item(), "loss": losses[-1].item(), "peak_mib": before + training_mib, "training_mib": training_mib}


class NoGpu:
    """In place of torch.cuda, so that the loop for a GPU can be tried without one: --device cuda --try-on-cpu."""
    synchronize = reset_peak_memory_stats = staticmethod(lambda: None)
    memory_allocated = max_memory_allocated = staticmethod(lambda: 0)


def run_on_gpu(name, a):
    gpu = torch.cuda if a.device == "cuda" else NoGpu
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = a.tf32
    model, x, loss_fn, target, net, adam, scaler = prepare(name, a)

    def step():
        if a.graph:
            torch.compiler.cudagraph_mark_step_begin()
        adam.zero_grad()
        with torch.autocast(a.device, AMP[a.amp], enabled=a.amp != "off"):
            loss = loss_fn(model(x), target)
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        return loss.detach()

    gpu.synchronize()
    before = gpu.memory_allocated()
    gpu.reset_peak_memory_stats()
    first_loss = step().item()
    for _ in range(a.warmup + (2 if a.graph else 0)):  # graphs are recorded after a few
        loss = step()
    times, runs = [], min(a.steps, 10)
    for i in range(runs):
        count = a.steps * (i + 1) // runs - a.steps * i // runs
        gpu.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            loss = step()
        gpu.synchronize()
        times.append((time.perf_counter() - start) / count)
    peak = gpu.max_memory_allocated()
    loss = loss.item()
    return about(name, a, net) | {
        "median_step_ms": 1e3 * statistics.median_high(times), "min_step_ms": 1e3 * min(times), "first_loss": first_loss, "loss": loss,
        "training_mib": (peak - before) / 2**20, "live_peak_mib": peak / 2**20, "step_gflop": step_gflop(net, x, loss_fn, target)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("workloads", nargs="+", choices=list(WORKLOADS))
    p.add_argument("--size", type=int, default=256, help="pixels of the checkerboard's side")
    p.add_argument("--channels", type=int, default=256, help="channels of its hidden layers")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--try-on-cpu", action="store_true", help="runs the loop of --device cuda on the CPU")
    p.add_argument("--tf32", action="store_true", help="on a GPU, products of float32 may use TensorFloat-32")
    p.add_argument("--amp", choices=list(AMP), default="off")
    p.add_argument("--layout", choices=["nchw", "channels_last"], default="channels_last")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--graph", action="store_true", help="with --compile, on a GPU: as CUDA graphs")
    p.add_argument("--fused", action="store_true", help="Adam in one kernel")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--save", metavar="FILE.safetensors", help="writes weights and data as they are before the first step")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    measure = run_on_gpu if a.device == "cuda" else run
    if a.try_on_cpu:
        a.device = "cpu"
    for name in a.workloads:
        print(json.dumps(measure(name, a)), flush=True)


if __name__ == "__main__":
    main()
