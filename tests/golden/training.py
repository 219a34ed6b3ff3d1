"""Optimizers, and the checkerboard: its pictures, its network and a short run."""

import torch
import torch.nn.functional as F
from store import COMPARED, draws, generator, name_of, save


def make_optim(folder):
    """DTYPE.param0 and param1 at the start, DTYPE.grads0 and grads1 [100, ...]; after step N = 1, 10, 100:
    CASE.DTYPE.stepN.param0 and param1. The table `cases` says the class and its options."""
    cases = {
        "sgd": ("SGD", {}),
        "sgd_momentum": ("SGD", {"momentum": 0.9}),
        "sgd_dampening": ("SGD", {"momentum": 0.9, "dampening": 0.5}),
        "sgd_nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
        "sgd_weight_decay": ("SGD", {"weight_decay": 0.05}),
        "sgd_momentum_weight_decay": ("SGD", {"momentum": 0.8, "weight_decay": 0.05}),
        "sgd_maximize": ("SGD", {"momentum": 0.9, "weight_decay": 0.05, "maximize": True}),
        "adam": ("Adam", {}),
        "adam_betas_eps": ("Adam", {"betas": (0.7, 0.9), "eps": 1e-3}),
        "adam_weight_decay": ("Adam", {"weight_decay": 0.05}),
        "adam_amsgrad": ("Adam", {"amsgrad": True, "weight_decay": 0.05}),
        "adam_maximize": ("Adam", {"maximize": True}),
    }
    shapes = ((3, 4), (5,))
    params = draws("optim.params", *shapes)
    order = torch.randperm(100, generator=generator("optim.scales"))
    scales = torch.logspace(-3, 1, 100, dtype=torch.float64)[order]
    grads = [(g * scales.view(-1, *[1] * (g.dim() - 1))).float().double()
             for g in draws("optim.grads", *[(100, *s) for s in shapes], low=-1, high=1)]
    tensors = {}
    for dtype in COMPARED:
        for i in range(2):
            tensors[f"{name_of(dtype)}.param{i}"] = params[i].to(dtype)
            tensors[f"{name_of(dtype)}.grads{i}"] = grads[i].to(dtype)
        for case, (kind, options) in cases.items():
            trained = [p.to(dtype).clone().requires_grad_() for p in params]
            optimizer = getattr(torch.optim, kind)(trained, lr=0.01, **options)
            for step in range(1, 101):
                for p, g in zip(trained, grads):
                    p.grad = g[step - 1].to(dtype)
                optimizer.step()
                if step in (1, 10, 100):
                    for i in range(2):
                        tensors[f"{case}.{name_of(dtype)}.step{step}.param{i}"] = trained[i].detach().clone()
    save(folder / "optim.safetensors", tensors,
         cases={case: {"class": kind, "lr": 0.01, **options} for case, (kind, options) in cases.items()})


def grid(width, height):
    hrange = torch.arange(width).unsqueeze(0).repeat([height, 1]).div(width)
    vrange = torch.arange(height).unsqueeze(1).repeat([1, width]).div(height)
    return torch.stack([hrange, vrange], 0)


def checker(width, height, freq):
    hrange = torch.arange(width).reshape([1, width]).mul(freq / width / 2.0).fmod(1.0).gt(0.5)
    vrange = torch.arange(height).reshape([height, 1]).mul(freq / height / 2.0).fmod(1.0).gt(0.5)
    return hrange.logical_xor(vrange).float()


class Net(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        layers = []
        for inputs in (2, channels, channels):
            layers += [torch.nn.Conv2d(inputs, channels, 1), torch.nn.BatchNorm2d(channels), torch.nn.ReLU()]
        self.net = torch.nn.Sequential(*layers, torch.nn.Conv2d(channels, 1, 1))

    def forward(self, x):
        return self.net(x)


def make_checkerboard(folder):
    """grid and board at 48 x 32; a run: run.inputs, run.targets, initial.KEY (float32, the network's state dict),
    run.DTYPE.losses of 50 steps, run.float64.output in evaluation mode afterwards. In bfloat16 the network is
    float32, runs under autocast, and keeps the biases before BatchNorms: their gradients are nothing but rounding,
    Adam moves them as far as any other, and by that alone two runs of PyTorch in two layouts come 2.7 % apart."""
    tensors = {"grid": grid(48, 32), "board": checker(48, 32, 8)}
    inputs, targets = grid(16, 16).unsqueeze(0), checker(16, 16, 4).unsqueeze(0).unsqueeze(1)
    tensors |= {"run.inputs": inputs, "run.targets": targets}
    for run in (*COMPARED, torch.bfloat16):
        autocast = run == torch.bfloat16
        dtype = torch.float32 if autocast else run
        torch.manual_seed(0)
        net = Net(16)
        tensors |= {f"initial.{k}": v.clone() for k, v in net.state_dict().items()}
        net.to(dtype)
        if autocast:
            for i in (0, 3, 6):
                net.net[i].bias.requires_grad_(False)
        optimizer = torch.optim.Adam(net.parameters(), 0.001)
        losses = []
        for _ in range(50):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = F.mse_loss(net(inputs.to(dtype)), targets.to(dtype))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        tensors[f"run.{name_of(run)}.losses"] = torch.stack(losses)
        if run == torch.float64:
            tensors["run.float64.output"] = net.eval()(inputs.to(dtype))
    save(folder / "checkerboard.safetensors", tensors, keys=list(net.state_dict()))
