"""What autocast makes of each op: dtypes of results inside a guard, for inputs of several dtypes. Needs no GPU: fake tensors
pass through PyTorch's dispatcher and autocast's wrappers, and hold dtypes but no values."""

import itertools
import json
import logging
import warnings

import torch
import torch.nn.functional as F
from ops import BINARY, UNARY
from store import name_of
from torch._subclasses.fake_tensor import FakeTensorMode

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
# Dtypes of the floating inputs, repeated for as many as there are.
PATTERNS = [(F32,), (F16,), (BF16,), (F64,), (F32, F16), (F16, F32), (F32, BF16), (BF16, F32), (BF16, F16), (F16, BF16),
            (F64, F32), (F64, F16)]
SQUARE = (3, 3)


def index(x):
    return torch.zeros(SQUARE, dtype=torch.int64, device=x.device)


def labels(x):
    return torch.zeros(3, dtype=torch.int64, device=x.device)


# Op: its floating inputs' shapes, the call.
OTHERS = {
    "lerp": ((SQUARE,) * 3, torch.lerp),
    "where": ((SQUARE,) * 2, lambda a, b: torch.where(index(a) == 0, a, b)),
    "clamp_min": ((SQUARE,), lambda x: x.clamp(min=0.5)),
    "clamp_max": ((SQUARE,), lambda x: x.clamp(max=0.5)),
    "clone": ((SQUARE,), torch.clone), "view": ((SQUARE,), lambda x: x.view(9)),
    "permute": ((SQUARE,), lambda x: x.permute(1, 0)), "expand": ((SQUARE,), lambda x: x.expand(2, 3, 3)),
    "slice": ((SQUARE,), lambda x: x[1:]), "split": ((SQUARE,), lambda x: x.split([1, 2])[0]),
    "cat": ((SQUARE,) * 2, lambda a, b: torch.cat([a, b])), "stack": ((SQUARE,) * 2, lambda a, b: torch.stack([a, b])),
    "gather": ((SQUARE,), lambda x: x.gather(0, index(x))),
    "scatter": ((SQUARE,) * 2, lambda x, s: x.scatter(0, index(x), s)),
    "scatter_add": ((SQUARE,) * 2, lambda x, s: x.scatter_add(0, index(x), s)),
    "index_select": ((SQUARE,), lambda x: x.index_select(0, labels(x))),
    "sum": ((SQUARE,), torch.sum), "mean": ((SQUARE,), torch.mean), "prod": ((SQUARE,), torch.prod),
    "var": ((SQUARE,), torch.var), "std": ((SQUARE,), torch.std), "norm": ((SQUARE,), torch.norm),
    "amax": ((SQUARE,), torch.amax), "amin": ((SQUARE,), torch.amin), "any": ((SQUARE,), torch.any),
    "all": ((SQUARE,), torch.all), "argmax": ((SQUARE,), torch.argmax), "argmin": ((SQUARE,), torch.argmin),
    "logsumexp": ((SQUARE,), lambda x: torch.logsumexp(x, 1)),
    "softmax": ((SQUARE,), lambda x: torch.softmax(x, 1)), "log_softmax": ((SQUARE,), lambda x: torch.log_softmax(x, 1)),
    "sum_low": ((SQUARE,), lambda x: torch.sum(x, dtype=BF16)),
    "softmax_low": ((SQUARE,), lambda x: torch.softmax(x, 1, dtype=BF16)),
    "matmul": ((SQUARE,) * 2, torch.matmul), "matmul_vector": ((SQUARE, (3,)), torch.matmul),
    "addmm": ((SQUARE,) * 3, torch.addmm), "linear": ((SQUARE, SQUARE, (3,)), F.linear),
    "linear_no_bias": ((SQUARE, SQUARE), F.linear),
    "conv2d": (((1, 3, 3, 3), (3, 3, 1, 1), (3,)), F.conv2d),
    "batch_norm": (((3, 3),), lambda x: F.batch_norm(x, None, None, training=True)),
    "l1_loss": ((SQUARE,) * 2, F.l1_loss), "mse_loss": ((SQUARE,) * 2, F.mse_loss),
    "nll_loss": ((SQUARE,), lambda x: F.nll_loss(x, labels(x))),
    "nll_loss_weighted": ((SQUARE, (3,)), lambda x, w: F.nll_loss(x, labels(x), w)),
    "cross_entropy": ((SQUARE,), lambda x: F.cross_entropy(x, labels(x))),
    "cross_entropy_probabilities": ((SQUARE,) * 2, F.cross_entropy),
    "binary_cross_entropy": ((SQUARE,) * 2, F.binary_cross_entropy),
    "binary_cross_entropy_with_logits": ((SQUARE,) * 2, F.binary_cross_entropy_with_logits),
    "max_pool2d": (((1, 1, 3, 3),), lambda x: F.max_pool2d(x, 2)),
    "embedding": ((SQUARE,), lambda w: F.embedding(labels(w), w)),
    "layer_norm": ((SQUARE,), lambda x: F.layer_norm(x, (3,))),
    "scaled_dot_product_attention": ((SQUARE,) * 3, F.scaled_dot_product_attention),
    "scaled_dot_product_attention_biased": ((SQUARE,) * 4, F.scaled_dot_product_attention),
}


def result(function, inputs):
    try:
        return name_of(function(*inputs).dtype)
    except RuntimeError:
        return "error"


def make_autocast(folder):
    """Rows of [op, device, dtype of the guard, dtypes of the floating inputs, dtype of the result]."""
    warnings.simplefilter("ignore")
    logging.disable()  # fake tensors log the calls that they refuse
    ops = {**{name: ((SQUARE,), f) for name, f in UNARY.items()},
           **{name: ((SQUARE,) * 2, f) for name, f in BINARY.items()}, **OTHERS}
    rows = []
    for (name, (shapes, function)), device, low in itertools.product(ops.items(), ("cpu", "cuda"), (BF16, F16)):
        for pattern in PATTERNS:
            if len(pattern) > len(shapes):
                continue
            with FakeTensorMode():
                dtypes = [pattern[i % len(pattern)] for i in range(len(shapes))]
                inputs = [torch.rand(shape, dtype=dtype, device=device) for shape, dtype in zip(shapes, dtypes)]
                # torch.autocast itself would turn away from a GPU that is not there.
                torch.set_autocast_enabled(device, True)
                torch.set_autocast_dtype(device, low)
                found = result(function, inputs)
                torch.clear_autocast_cache()
                torch.set_autocast_enabled(device, False)
            rows.append([name, device, name_of(low), [name_of(d) for d in dtypes], found])
    text = ",\n".join(json.dumps(row) for row in rows)
    (folder / "autocast.json").write_text(f'{{"torch": "{torch.__version__}", "rows": [\n{text}\n]}}\n')
    print(f"autocast.json: {len(rows)} rows")
    for device, low in (("cpu", BF16), ("cuda", F16)):
        torch.set_autocast_dtype(device, low)
    logging.disable(logging.NOTSET)
