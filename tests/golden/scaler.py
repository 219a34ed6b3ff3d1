"""A GradScaler and its optimizer over gradients of which some are not finite."""

import math

import torch
from store import draws, save

STEPS = 40
BAD = {4: math.inf, 5: -math.inf, 6: math.nan, 20: math.inf, 33: math.nan}  # the last gradient's last element


def make_scaler(folder):
    """param0 and param1 at the start, grads0 and grads1 [STEPS, ...] without their scale; for each case CASE.scale and
    CASE.tracker [STEPS], after each update, and CASE.param0 and param1 at the end. The table `cases` says the
    optimizer and the scaler's options."""
    cases = {
        "sgd": ("SGD", {"momentum": 0.9, "weight_decay": 0.05},
                {"init_scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3}),
        "adam": ("Adam", {"weight_decay": 0.05},
                 {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.25, "growth_interval": 5}),
        "adamw": ("AdamW", {"weight_decay": 0.05},
                  {"init_scale": 1000.0, "growth_factor": 1.1, "backoff_factor": 0.7, "growth_interval": 1}),
    }
    shapes = ((3, 4), (5,))
    params = [p.float() for p in draws("scaler.params", *shapes)]
    grads = [g.float() for g in draws("scaler.grads", *[(STEPS, *s) for s in shapes], low=-1, high=1)]
    for step, value in BAD.items():
        grads[1][step, -1] = value
    tensors = {f"param{i}": p for i, p in enumerate(params)} | {f"grads{i}": g for i, g in enumerate(grads)}
    for case, (kind, options, scaling) in cases.items():
        trained = [p.clone().requires_grad_() for p in params]
        optimizer = getattr(torch.optim, kind)(trained, lr=0.01, **options)
        scaler = torch.amp.GradScaler("cpu", **scaling)
        scaler.scale(torch.zeros(()))
        scales, trackers = [], []
        for step in range(STEPS):
            for p, g in zip(trained, grads):
                p.grad = g[step] * scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
            trackers.append(scaler.state_dict()["_growth_tracker"])
        tensors[f"{case}.scale"] = torch.tensor(scales, dtype=torch.float64)
        tensors[f"{case}.tracker"] = torch.tensor(trackers)
        for i, p in enumerate(trained):
            tensors[f"{case}.param{i}"] = p
    save(folder / "scaler.safetensors", tensors,
         cases={case: {"class": kind, "lr": 0.01, **options, **scaling}
                for case, (kind, options, scaling) in cases.items()})
