"""Conv2d, MaxPool2d, BatchNorm1d, BatchNorm2d, Embedding, LayerNorm, MSE and initial bounds."""

import functools
import itertools
import math

import torch
import torch.nn.functional as F
from store import COMPARED, draws, generator, halves, name_of, record, save


def make_conv2d(folder):
    """CASE.geometry is [stride 2, padding 2, dilation 2, groups], CASE.same [dilation 2, groups] with padding="same";
    in0, in1, in2 are input, weight, bias."""
    #        input           weight        bias   stride  padding dilation groups
    cases = {
        "1x1": ((2, 3, 4, 5), (6, 3, 1, 1), True, (1, 1), (0, 0), (1, 1), 1),
        "1x1_strided": ((2, 3, 5, 5), (4, 3, 1, 1), False, (2, 2), (0, 0), (1, 1), 1),
        "3x3": ((2, 3, 6, 5), (4, 3, 3, 3), True, (1, 1), (0, 0), (1, 1), 1),
        "padding": ((2, 3, 5, 4), (4, 3, 3, 3), False, (1, 1), (1, 1), (1, 1), 1),
        "padding_uneven": ((1, 2, 4, 5), (3, 2, 3, 3), True, (1, 1), (2, 0), (1, 1), 1),
        "stride": ((2, 3, 7, 6), (4, 3, 3, 3), True, (2, 2), (1, 1), (1, 1), 1),
        "stride_uneven": ((1, 2, 7, 7), (3, 2, 3, 3), True, (3, 2), (0, 1), (1, 1), 1),
        "dilation": ((2, 2, 8, 7), (3, 2, 3, 3), True, (1, 1), (2, 2), (2, 2), 1),
        "dilation_uneven": ((1, 2, 8, 7), (3, 2, 3, 2), False, (1, 2), (1, 1), (3, 2), 1),
        "groups": ((2, 4, 5, 5), (6, 2, 3, 3), True, (1, 1), (1, 1), (1, 1), 2),
        "depthwise": ((2, 4, 5, 6), (4, 1, 3, 3), True, (1, 1), (1, 1), (1, 1), 4),
        "depthwise_multiplied": ((1, 3, 6, 6), (6, 1, 3, 3), False, (2, 2), (1, 1), (1, 1), 3),
        "kernel_wide": ((2, 2, 4, 8), (3, 2, 1, 5), True, (1, 1), (0, 2), (1, 1), 1),
        "kernel_tall": ((2, 2, 7, 4), (3, 2, 4, 1), True, (1, 1), (1, 0), (1, 1), 1),
        "kernel_whole": ((2, 3, 4, 4), (5, 3, 4, 4), True, (1, 1), (0, 0), (1, 1), 1),
        "everything": ((2, 4, 9, 8), (6, 2, 3, 2), True, (2, 1), (2, 1), (2, 3), 2),
    }
    tensors = {}
    for case, (x, w, bias, stride, padding, dilation, groups) in cases.items():
        inputs = draws("conv2d" + case, x, w, *([(w[0],)] if bias else []))
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        record(tensors, case, functools.partial(F.conv2d, **options), inputs,
               geometry=[*stride, *padding, *dilation, groups])
    #        input           weight        dilation groups
    cases = {
        "same": ((2, 3, 5, 4), (4, 3, 3, 5), (1, 1), 1),
        "same_even": ((2, 2, 5, 6), (3, 2, 2, 4), (1, 1), 1),
        "same_uneven": ((1, 4, 6, 5), (2, 2, 4, 2), (3, 1), 2),
        "same_beyond": ((1, 1, 2, 3), (2, 1, 6, 4), (1, 2), 1),
    }
    for case, (x, w, dilation, groups) in cases.items():
        record(tensors, case, functools.partial(F.conv2d, padding="same", dilation=dilation, groups=groups),
               draws("conv2d" + case, x, w, (w[0],)), same=[*dilation, groups])
    save(folder / "conv2d.safetensors", tensors)


def make_batch_norm(folder):
    """Three steps of training, then one of evaluation; entry i of each stored tensor belongs to step i.
    The table `cases` says momentum (null: cumulative), affine and track_running_stats; the rank of x says whether the
    layer is a BatchNorm1d or a BatchNorm2d."""
    cases = {f"momentum_{m}".replace(".", "_"): {"momentum": m, "affine": True, "track_running_stats": True}
             for m in (0.1, None, 0.0, 1.0)}
    cases |= {
        "plain": {"momentum": 0.1, "affine": False, "track_running_stats": True},
        "untracked": {"momentum": 0.1, "affine": True, "track_running_stats": False},
        "plain_untracked": {"momentum": 0.1, "affine": False, "track_running_stats": False},
    }
    shapes = {"rows": (5, 3), "rows_plain": (5, 3), "sequences": (2, 3, 4)}  # the others: images
    cases |= {case: cases["plain" if "plain" in case else "momentum_0_1"] for case in shapes}
    tensors = {}
    for (case, options), dtype in itertools.product(cases.items(), COMPARED):
        shape = (4, *shapes.get(case, (4, 3, 3, 2)))
        layer = (torch.nn.BatchNorm2d if len(shape) == 5 else torch.nn.BatchNorm1d)(3, **options, dtype=dtype)
        x, grad_out, weight, bias = draws("batch_norm" + case, shape, shape, (3,), (3,))
        x = (x + torch.arange(3.0).view(3, *[1] * (len(shape) - 3))).to(dtype).requires_grad_()  # a different mean for each channel
        found = {"x": x, "grad_out": grad_out.to(dtype)}
        if options["affine"]:
            found |= {"weight": weight.to(dtype), "bias": bias.to(dtype)}
            with torch.no_grad():
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
        steps = {}
        for step in range(4):
            layer.train(step < 3)
            layer.zero_grad()
            out = layer(x[step])
            out.backward(found["grad_out"][step])
            grads = {f"grad_{name}": parameter.grad for name, parameter in layer.named_parameters()}
            for key, value in {"out": out, **grads, **dict(layer.named_buffers())}.items():
                steps.setdefault(key, []).append(value.detach().clone())
        found |= {key: torch.stack(values) for key, values in steps.items()} | {"grad_x": x.grad}
        tensors |= {f"{case}.{name_of(dtype)}.{key}": value for key, value in found.items()}
    save(folder / "batch_norm.safetensors", tensors, cases=cases)


def make_max_pool2d(folder):
    """CASE.geometry is [kernel 2, stride 2, padding 2, dilation 2, ceil_mode]."""
    nan = halves("max_pool2d.nan", (1, 2, 6, 6))[0]
    nan[0, 0, 1, 1] = nan[0, 0, 1, 2] = nan[0, 1, 4, 3] = nan[0, 1, 4, 4] = math.nan
    infinite = halves("max_pool2d.infinite", (1, 1, 6, 6))[0]
    infinite[0, 0, :4, :4] = -math.inf
    #        input        kernel  stride  padding dilation ceil_mode
    cases = {
        "plain": ((2, 3, 6, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),
        "overlapping": ((2, 2, 7, 6), (3, 3), (1, 1), (0, 0), (1, 1), False),
        "padded": ((2, 2, 7, 6), (3, 3), (2, 2), (1, 1), (1, 1), False),
        "gaps": ((1, 2, 7, 8), (1, 2), (3, 3), (0, 0), (1, 1), False),
        "oblong": ((1, 3, 7, 9), (2, 4), (2, 1), (1, 2), (1, 1), False),
        "dilated": ((1, 2, 8, 9), (3, 2), (1, 2), (1, 0), (2, 3), False),
        "ceil": ((2, 2, 6, 8), (3, 3), (2, 2), (0, 0), (1, 1), True),
        "ceil_padded": ((1, 2, 5, 6), (2, 3), (3, 2), (1, 1), (1, 1), True),
        "ceil_none_begins_outside": ((1, 1, 4, 5), (2, 2), (3, 4), (1, 1), (1, 1), True),
        "everything": ((2, 2, 9, 11), (3, 2), (2, 3), (1, 1), (2, 3), True),
        "ties": (halves("max_pool2d.ties", (2, 2, 6, 6))[0], (3, 3), (1, 1), (1, 1), (1, 1), False),
        "nan": (nan, (3, 3), (1, 1), (1, 1), (1, 1), False),
        "infinite": (infinite, (2, 2), (1, 1), (1, 1), (1, 1), False),
        "large_window": ((1, 1, 20, 19), (17, 16), (2, 1), (0, 0), (1, 1), False),
    }
    tensors = {}
    for case, (x, kernel, stride, padding, dilation, ceil_mode) in cases.items():
        inputs = draws("max_pool2d" + case, x) if isinstance(x, tuple) else [x]
        record(tensors, case, functools.partial(F.max_pool2d, kernel_size=kernel, stride=stride, padding=padding,
                                                dilation=dilation, ceil_mode=ceil_mode), inputs,
               geometry=[*kernel, *stride, *padding, *dilation, ceil_mode])
    save(folder / "max_pool2d.safetensors", tensors)


def make_embedding(folder):
    """CASE.padding_idx where one is given; in0 is the weight, in1 the ids."""
    cases = {"list": ((5,), None), "sequences": ((3, 4), None), "one": ((), None), "none": ((0, 2), None),
             "padding": ((3, 4), 2), "padding_first": ((7,), 0), "padding_from_the_end": ((3, 4), -1)}
    tensors = {}
    for case, (shape, padding_idx) in cases.items():
        ids = torch.randint(0, 5, shape, generator=generator("embedding.ids" + case))
        facts = {} if padding_idx is None else {"padding_idx": padding_idx}
        record(tensors, case, lambda w, i, p=padding_idx: F.embedding(i, w, padding_idx=p),
               [*draws("embedding" + case, (5, 3)), ids], **facts)
    save(folder / "embedding.safetensors", tensors)


def make_layer_norm(folder):
    """CASE.normalized_shape, CASE.eps; in1 and in2, where they are, are weight and bias."""
    #        input         normalized  weight and bias  eps
    cases = {
        "rows": ((6, 7), (7,), 2, 1e-5), "sequences": ((2, 3, 20), (20,), 2, 1e-5),
        "two_dimensions": ((2, 3, 4, 5), (4, 5), 2, 1e-5), "all": ((3, 4), (3, 4), 2, 1e-5),
        "long": ((2, 700), (700,), 2, 1e-5), "many": ((150, 3), (3,), 2, 1e-5),
        "no_bias": ((4, 6), (6,), 1, 1e-5), "plain": ((4, 6), (6,), 0, 1e-5),
        "eps": ((4, 6), (6,), 2, 0.5),
    }
    tensors = {}
    for case, (shape, normalized, parameters, eps) in cases.items():
        record(tensors, case, lambda x, w=None, b=None, n=normalized, e=eps: F.layer_norm(x, n, w, b, e),
               draws("layer_norm" + case, shape, *[normalized] * parameters), normalized_shape=normalized, eps=torch.tensor(eps, dtype=torch.float64))
    save(folder / "layer_norm.safetensors", tensors)


def make_mse(folder):
    """Keys REDUCTION.CASE.DTYPE..., in0 is the input and in1 the target; both get a gradient."""
    tensors = {}
    shapes = {"same": ((3, 4), (3, 4)), "image": ((2, 1, 4, 3), (2, 1, 4, 3)), "broadcast": ((3, 1), (4,)),
              "scalar": ((), ())}
    for (case, (a, b)), reduction in itertools.product(shapes.items(), ("mean", "sum", "none")):
        a, b = draws("mse" + case, a, b)
        record(tensors, f"{reduction}.{case}",
               lambda x, y: F.mse_loss(*torch.broadcast_tensors(x, y), reduction=reduction), [a, b])
    save(folder / "mse.safetensors", tensors)


def make_init(folder):
    """linear.shapes: [in, out]; conv2d.shapes: [in, out, kernel height, kernel width, groups]. bounds: the end of the
    uniform distribution of weights and biases, from PyTorch's fan_in, confirmed by what PyTorch draws."""
    linear = [(1, 1), (2, 3), (7, 64), (64, 10), (300, 20)]
    conv2d = [(2, 256, 1, 1, 1), (3, 8, 3, 3, 1), (4, 8, 3, 5, 2), (6, 6, 3, 3, 6), (8, 16, 1, 2, 4)]
    make = {"linear": lambda shape: torch.nn.Linear(*shape),
            "conv2d": lambda shape: torch.nn.Conv2d(shape[0], shape[1], shape[2:4], groups=shape[4])}
    tensors = {}
    torch.manual_seed(0)
    for kind, shapes in {"linear": linear, "conv2d": conv2d}.items():
        bounds = []
        for shape in shapes:
            layers = [make[kind](shape) for _ in range(300)]
            fan_in, _ = torch.nn.init._calculate_fan_in_and_fan_out(layers[0].weight)
            bounds.append(1 / math.sqrt(fan_in))
            for parameter in ("weight", "bias"):
                largest = max(getattr(layer, parameter).abs().max().item() for layer in layers)
                assert 0.97 * bounds[-1] < largest <= bounds[-1] * (1 + 1e-6), (kind, shape, parameter, largest)
        tensors[f"{kind}.shapes"] = torch.tensor(shapes)
        tensors[f"{kind}.bounds"] = torch.tensor(bounds, dtype=torch.float64)
    save(folder / "init.safetensors", tensors)
