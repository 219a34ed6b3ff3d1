"""Losses with every option."""

import itertools

import torch
import torch.nn.functional as F
from store import draws, generator, record, save

REDUCTIONS = ("mean", "sum", "none")


def differences(tensors):
    """l1.REDUCTION.CASE: in0 is the input and in1 the target."""
    shapes = {"same": ((3, 4), (3, 4)), "broadcast": ((3, 1), (4,)), "scalar": ((), ())}
    for (case, (a, b)), reduction in itertools.product(shapes.items(), REDUCTIONS):
        record(tensors, f"l1.{reduction}.{case}",
               lambda x, y: F.l1_loss(*torch.broadcast_tensors(x, y), reduction=reduction), draws("l1" + case, a, b))


def classes(tensors):
    """nll.... and ce....: in0 is the input, in1 the target, in2 the weight where there is one; .ignore_index and
    .label_smoothing are the options."""
    shapes = {"rows": (7, 4), "images": (2, 4, 3, 2), "one": (4,)}
    for (case, shape), reduction, weighted, ignore in itertools.product(shapes.items(), REDUCTIONS, (False, True),
                                                                        (-100, 2)):
        dim = 1 if len(shape) > 1 else 0
        places = shape[:dim] + shape[dim + 1:]
        x, = draws("classes" + case, shape)
        weight = draws("weight" + case, (4,), low=0.5, high=2)
        target = torch.randint(4, places, generator=generator(case))
        if ignore < 0 and places:
            target[-1] = ignore
        names = [case, reduction] + ["weighted"] * weighted + ["ignore"] * (ignore >= 0)
        options = {"reduction": reduction, "ignore_index": ignore}

        def record_loss(loss, name, inputs, smoothing=None):
            chosen = options if smoothing is None else options | {"label_smoothing": smoothing}
            record(tensors, ".".join([name, *names]),
                   lambda x, t, w=None: loss(x, t, None if w is None else w.detach(), **chosen),
                   inputs + (weight if weighted else []), ignore_index=ignore, label_smoothing=smoothing or 0.0)

        record_loss(F.nll_loss, "nll", [x.log_softmax(dim).float().double(), target])
        record_loss(F.cross_entropy, "ce", [x, target], 0.0)
        record_loss(F.cross_entropy, "ce_smooth", [x, target], 0.25)
        if ignore < 0:
            p, = draws("probabilities" + case, shape, low=0, high=1)
            record_loss(F.cross_entropy, "ce_probabilities", [x, p], 0.0)
            record_loss(F.cross_entropy, "ce_probabilities_smooth", [x, p], 0.25)


def binary(tensors):
    """bce.... and bce_logits....: in0 is the input, in1 the target, then weight and pos_weight, as the name says."""
    for reduction in REDUCTIONS:
        for case, factors in {"plain": [], "weight": [(4,)], "weight_full": [(3, 4)]}.items():
            x, target, *rest = draws("bce" + case, (3, 4), (3, 4), *factors, low=0.01, high=0.99)
            record(tensors, f"bce.{reduction}.{case}",
                   lambda x, t, *w: F.binary_cross_entropy(x, t, *(f.detach() for f in w), reduction=reduction),
                   [x, target, *rest])
        cases = {"plain": (None, None), "weight": ((4,), None), "pos_weight": (None, (4,)), "both": ((3, 1), (4,))}
        for case, (weight, pos_weight) in cases.items():
            x, = draws("bce_logits" + case, (3, 4), low=-9, high=9)
            given = [shape for shape in (weight, pos_weight) if shape]
            target, *factors = draws("bce_logits target" + case, (3, 4), *given, low=0, high=1)

            def loss(x, t, *f):
                f = [factor.detach() for factor in f]
                return F.binary_cross_entropy_with_logits(x, t, f[0] if weight else None,
                                                          pos_weight=f[-1] if pos_weight else None,
                                                          reduction=reduction)

            record(tensors, f"bce_logits.{reduction}.{case}", loss, [x, target, *factors])


def special(tensors):
    """Losses and gradients, target 0 and 1, where the formulas are extreme."""
    p = torch.tensor([0.0, 1.0, 0.5, 1e-30, 1 - 2.0**-24]).repeat(2)
    z = torch.tensor([1e9, -1e9, 1000.0, -1000.0, 100.0, -100.0, 20.0, -20.0, 0.0, torch.inf, -torch.inf]).repeat(2)
    for name, x, loss in (("bce", p, F.binary_cross_entropy), ("bce_logits", z, F.binary_cross_entropy_with_logits)):
        target = torch.tensor([0.0, 1.0]).repeat_interleave(len(x) // 2)
        x.requires_grad_()
        y = loss(x, target, reduction="none")
        y.sum().backward()
        tensors |= {f"special.{name}.in": x, f"special.{name}.target": target, f"special.{name}.out": y,
                    f"special.{name}.grad": x.grad}


def make_losses(folder):
    tensors = {}
    differences(tensors)
    classes(tensors)
    binary(tensors)
    special(tensors)
    save(folder / "losses.safetensors", tensors)
