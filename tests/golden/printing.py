"""Printed tensors."""

import json
import math
import unittest.mock

import torch


def json_value(value):
    return value if isinstance(value, int) or math.isfinite(value) else str(value)


def mezzo_repr(tensor):
    """PyTorch's text with mezzo's dtype names, put in before lines are broken."""
    add_suffixes = torch._tensor_str._add_suffixes

    def renamed(text, suffixes, *rest, **named):
        return add_suffixes(text, [suffix.replace("torch.", "") for suffix in suffixes], *rest, **named)

    with unittest.mock.patch.object(torch._tensor_str, "_add_suffixes", renamed):
        return repr(tensor)


def make_print(folder):
    """Cases {dtype, shape, values, text}. Row-major values, repeated from the start where the shape needs more."""
    ramp, inf, nan = list(range(3000)), math.inf, math.nan
    cases = [
        ("float32", (), [1.5]), ("float32", (), [3.0]), ("int64", (), [7]), ("bool", (), [1]),
        ("float32", (), [1e-7]), ("float32", (), [nan]), ("float64", (), [math.pi]), ("float16", (), [0.1]),
        ("float32", (3,), [1.0, 2.0, 3.0]), ("float32", (3,), [1.5, -2.25, 3.0]),
        ("float32", (4,), [0.0, -0.0, 1.0, -1.0]), ("float32", (2,), [0.0, 0.0]),
        ("float32", (3,), [inf, -inf, nan]), ("float32", (4,), [1.0, inf, -inf, nan]),
        ("float32", (4,), [1.5, inf, -inf, nan]), ("float32", (3,), [1e-5, inf, nan]),
        ("float32", (2,), [1e-5, 1.0]), ("float32", (3,), [1.0, 1000.0, 0.0]),
        ("float32", (2,), [1.0, 1001.0]), ("float32", (2,), [1e8, 1e8]), ("float32", (2,), [1.1e8, 1e8]),
        ("float32", (2,), [0.5, 501.0]), ("float32", (2,), [1e-4, 1e-4]), ("float64", (2,), [1e-4, 1e-4]),
        ("float64", (2,), [2e-4, 0.99e-4]), ("float32", (2,), [99999.5, 12345.678]),
        ("float32", (3,), [1e38, -1e-38, 1e-42]), ("float64", (3,), [1e300, 1e-300, 0.0]),
        ("float64", (2,), [1 / 3, -2 / 3]), ("float64", (3,), [0.5, 1.00005, 2.5]),
        ("float16", (3,), [1.0, 65504.0, 6e-8]), ("float16", (2, 2), [0.1, 0.2, 0.3, 0.4]),
        ("bfloat16", (3,), [0.1, 1 / 3, -257.0]), ("int64", (4,), [1, -20, 300, 2**62 + 1]),
        ("int32", (2, 3), [1, 2, 3, -4, 5, 6]), ("uint8", (3,), [0, 255, 7]), ("bool", (2,), [1, 0]),
        ("bool", (2, 2), [1, 1, 0, 1]), ("int64", (1, 1, 1), [5]),
        ("float32", (2, 3), [1.0, 2.5, -3.0, 4.0, 5.0, 6.0]), ("float32", (2, 2, 2), [1.0, -2.0, 3.0]),
        ("float32", (2, 1, 2, 3), [0.125, 10.0, -3.5]), ("int64", (3, 1), ramp), ("float32", (0,), []),
        ("int64", (0,), []), ("float32", (0, 3), []), ("float16", (2, 0, 3), []), ("bool", (0,), []),
        ("float32", (30,), [0.1, -0.25, 1.75]), ("int64", (40,), ramp), ("int64", (2, 50), ramp),
        ("bool", (20,), [1, 0, 0]), ("float64", (2, 12), [1e-3, 1e3, 1.5]), ("float32", (1000,), ramp),
        ("float32", (1001,), ramp), ("int64", (3000,), ramp),
        ("float32", (40, 40), [0.5, -1.25, 3.0, 700.0]), ("float16", (7, 6, 30), [0.5, -1.25, 3.0]),
        ("int64", (2, 600), ramp), ("int64", (600, 2), ramp), ("bool", (8, 200), [1, 0, 0]),
        ("float32", (3, 1, 5, 100), [1e-5, 1.0]), ("float32", (10, 1, 200), [0.0]), ("int32", (13,), [123]),
        ("float64", (8,), [0.123456789]), ("float64", (7,), [0.1]), ("float64", (60,), [0.1, 12.5]),
        ("uint8", (15,), [200]), ("int32", (14,), [12]), ("bfloat16", (7,), [0.1]),
        ("float16", (33,), [1.5]),
    ]
    written = []
    for dtype, shape, values in cases:
        numel = math.prod(shape)
        used = values[:numel]
        filled = [used[i % len(used)] for i in range(numel)]
        text = mezzo_repr(torch.tensor(filled, dtype=getattr(torch, dtype)).reshape(shape))
        written.append({"dtype": dtype, "shape": shape, "values": [json_value(v) for v in used], "text": text})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in written)
    path = folder / "print.json"
    path.write_text(f'{{"torch": "{torch.__version__}", "cases": [\n{lines}\n]}}\n')
    print(f"{path.name}: {len(written)} cases, {path.stat().st_size / 1024:.0f} KiB")
