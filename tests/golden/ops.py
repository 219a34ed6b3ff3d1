"""Pointwise ops, reductions, indexing, products, type promotion and casts."""

import functools
import itertools
import math

import torch
import torch.nn.functional as F
from store import DTYPES, draws, generator, halves, name_of, record, save

UNARY = {
    "neg": torch.neg, "abs": torch.abs, "square": torch.square, "exp": torch.exp, "log": torch.log,
    "sqrt": torch.sqrt, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "log_sigmoid": F.logsigmoid,
    "relu": torch.relu, "softsign": F.softsign, "logical_not": torch.logical_not,
    "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc,
    "expm1": torch.expm1, "log1p": torch.log1p, "log2": torch.log2, "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal, "erf": torch.erf, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "softplus": F.softplus,
    "isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite,
}
LOWEST = {"log": 0.2, "sqrt": 0.2, "log2": 0.2, "rsqrt": 0.2, "reciprocal": 0.2, "log1p": -0.9}  # others: -3
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "fmod": torch.fmod,
    "maximum": torch.maximum, "minimum": torch.minimum,
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
    "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    "remainder": torch.remainder, "pow": torch.pow,
    "floor_divide": lambda a, b: torch.floor_divide(a.detach(), b.detach()),  # its backward is not implemented
}
DIVISIONS = ("div", "fmod", "remainder", "floor_divide")
REDUCTIONS = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin,
              "any": torch.any, "all": torch.all}
SPECIAL = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, -1e-40, 1.1754944e-38, 1e-20, 88.5, -88.5,
           89.0, -104.0, 1e5, -1e5, 3e15, 1e30, 3.4028235e38, -3.4028235e38]


def pointwise(tensors):
    for name, function in UNARY.items():
        low = LOWEST.get(name, -3.0)
        record(tensors, f"{name}.random", function, draws(name, (3, 7), low=low, high=3.0))
        if low < -1:
            record(tensors, f"{name}.zeros", function, halves(name, (2, 5)))
        # PyTorch's vectors of float32 make NaN of gelu at infinity, those of float64 do not.
        special = torch.tensor(SPECIAL)
        tensors[f"special.{name}"] = function(special.double()).float() if name == "gelu" else function(special)
    tensors["special.in"] = torch.tensor(SPECIAL)
    shapes = {"same": ((2, 5), (2, 5)), "broadcast": ((3, 1, 4), (2, 1)), "scalar": ((3, 4), ())}
    for (name, function), (case, (a, b)) in itertools.product(BINARY.items(), shapes.items()):
        case = f"{name}.{case}"
        if name in DIVISIONS:  # a divisor away from 0
            inputs = draws(case, a, low=-4, high=4) + draws(case + ".b", b, low=0.5, high=2)
        elif name == "pow":
            inputs = draws(case, a, low=0.2) + draws(case + ".b", b)
        else:  # equal values matter to the others
            inputs = (draws if name in ("add", "sub", "mul") else halves)(case, a, b)
        record(tensors, case, function, inputs)
    for case, (a, b) in shapes.items():
        case = f"where.{case}"
        condition = draws(case + ".condition", a)[0] > 0
        record(tensors, case, torch.where, [condition, *draws(case, a, b)])
        case = case.replace("where", "lerp")
        record(tensors, case, torch.lerp, draws(case, a, a, b))
    corners(tensors)


def corners(tensors):
    """Where pointwise ops are special: signs, zeros, infinities, bounds."""
    def doubles(*rows):
        return [torch.tensor(row, dtype=torch.float64) for row in rows]

    inf = math.inf
    for name in ("fmod", "remainder", "floor_divide"):
        record(tensors, f"{name}.signs", BINARY[name],
               doubles([5, -5, 5, -5, 1, -1, 0.0, -0.0, 6, -6], [3, 3, -3, -3, 7, 7, 1, 1, 3, 3]))
        record(tensors, f"{name}.infinite", lambda a, b: BINARY[name](a.detach(), b.detach()),
               doubles([inf, 1, -1, 1, 1, -1, 0, math.nan, 0.75], [2, inf, inf, -inf, 0, 0, 0, 1, 0.125]))
    record(tensors, "pow.zeros", torch.pow, doubles([0, 0, 0, 2, -2, -2, 0, -8], [0, 2, 0.5, 0, 2, 3, -1, 1 / 3]))
    record(tensors, "pow.infinite", torch.pow,
           doubles([inf, -inf, 0, 1, math.nan, math.nan], [0, 3, inf, inf, 0, 1]))
    for exponent in (0, 1, 2, -1, 0.5):
        record(tensors, f"pow_number.{exponent}", lambda x: torch.pow(x, exponent), halves("pow", (2, 5)),
               exponent=exponent)
    bounds = {"both": (-0.5, 1.0), "low": (-0.5, None), "high": (None, 1.0), "crossed": (1.0, -0.5)}
    for case, (low, high) in bounds.items():
        facts = {name: bound for name, bound in (("low", low), ("high", high)) if bound is not None}
        record(tensors, f"clamp.{case}", lambda x: torch.clamp(x, low, high), halves("clamp", (4, 5)), **facts)
    record(tensors, "clamp_tensors.both", torch.clamp,
           doubles([1, 2, 3, 0, 2, 0, 5, 1.5], [1, 1, 1, 2, 1, 3, 3, 2], [3, 2, 2, 3, 3, 2, 2, 1]))
    for case, value in {"number": 1.5, "infinite": -inf}.items():
        (mask,) = draws("masked_fill", (3, 1))
        record(tensors, f"masked_fill.{case}", lambda mask, x: x.masked_fill(mask, value),
               [mask > 0, *draws("masked_fill" + case, (3, 4))], value=torch.tensor(value, dtype=torch.float64))


def reductions(tensors):
    dims = {"all": [], "first": [0], "last": [-1], "pair": [0, 2], "middle": [1]}
    for (name, function), (case, dim) in itertools.product(REDUCTIONS.items(), dims.items()):
        for keepdim in (False, True):
            case_name = f"{name}.{case}{'_keepdim' if keepdim else ''}"
            inputs = halves if name in ("amax", "amin", "any", "all") else draws  # ties share the gradient
            reduced = tuple(dim) if dim else tuple(range(3))
            record(tensors, case_name, lambda x: function(x, dim=reduced, keepdim=keepdim),
                   inputs(name + case, (3, 4, 2)), dims=torch.tensor(dim, dtype=torch.int64), keepdim=keepdim)
    for dim, keepdim in itertools.product((0, 1, -1), (False, True)):
        where = f"{dim % 3}{'_keepdim' if keepdim else ''}"
        for name, function in {"argmax": torch.argmax, "argmin": torch.argmin}.items():
            record(tensors, f"{name}.{where}", lambda x: function(x, dim=dim, keepdim=keepdim),
                   draws(f"{name}.{where}", (3, 4, 2)), dims=torch.tensor([dim]), keepdim=keepdim)
        for name, function in {"max": torch.max, "min": torch.min}.items():  # ties: one place has the gradient
            record(tensors, f"{name}.{where}", lambda x: function(x, dim=dim, keepdim=keepdim)[0],
                   halves(f"{name}.{where}", (3, 4, 2)), dims=torch.tensor([dim]), keepdim=keepdim)
    for name, function in {"argmax": torch.argmax, "argmin": torch.argmin}.items():
        record(tensors, f"{name}.all", function, draws(f"{name}.all", (3, 4, 2)), dims=[], keepdim=False)


def statistics(tensors):
    """.dims (none: all) and .keepdim as for reductions; .parameter is var's correction or norm's p."""
    def one(case, function, inputs, dim, keepdim, parameter=0.0):
        record(tensors, case, function, inputs, dims=torch.tensor(dim, dtype=torch.int64), keepdim=keepdim,
               parameter=torch.tensor(parameter, dtype=torch.float64))

    shape, dims = (3, 4, 2), {"all": [], "last": [-1], "pair_keepdim": [0, 2]}
    for case, dim in dims.items():
        keepdim, over = case.endswith("keepdim"), tuple(dim) or None
        for correction in (0, 1, 3):
            for name, function in {"var": torch.var, "std": torch.std}.items():
                # With no more elements than the correction PyTorch's gradient means nothing; its result is NaN or infinite.
                differentiable = case != "last" or correction < 2
                one(f"{name}.{case}_{correction}",
                    lambda x: function(x if differentiable else x.detach(), dim=over, correction=correction, keepdim=keepdim),
                    draws(f"{name}.{case}", shape), dim, keepdim, correction)
        for p in (0.0, 0.5, 1.0, 2.0, 3.0, -1.0, math.inf, -math.inf):
            make = draws if p < 0 else halves  # zeros matter to the others
            one(f"norm.{case}_{p}",  # PyTorch's norm of order 0 has no gradient at all
                lambda x: torch.linalg.vector_norm(x if p else x.detach(), p, dim=over, keepdim=keepdim),
                make(f"norm.{case}", shape), dim, keepdim, p)
    for dim, keepdim in itertools.product((0, 1, -1), (False, True)):
        case = f"prod.{dim % 3}{'_keepdim' if keepdim else ''}"
        one(case, lambda x: torch.prod(x, dim=dim, keepdim=keepdim), halves(case, shape), [dim], keepdim)
    one("prod.all", torch.prod, draws("prod.all", shape), [], False)
    same = torch.full((2, 3), 2.0, dtype=torch.float64)
    one("std.same", lambda x: torch.std(x, dim=1), [same], [1], False, 1)  # slope 0 where there is no spread
    one("norm.zeros", lambda x: torch.linalg.vector_norm(x, 2, dim=1), [same * 0], [1], False, 2)
    one("var.single", lambda x: torch.var(x.detach(), dim=1), [same[:, :1]], [1], False, 1)


def softmaxes(tensors):
    """.dims and .keepdim as for reductions. special_softmax holds rows with infinities and NaN."""
    functions = {"softmax": torch.softmax, "log_softmax": torch.log_softmax, "logsumexp": torch.logsumexp}
    inf, nan = math.inf, math.nan
    rows = [[-inf, -inf], [0, -inf], [inf, 1], [nan, 0], [1e4, -1e4], [-3e38, 3e38]]
    tensors["special_softmax.in"] = torch.tensor(rows)
    for name, function in functions.items():
        for dim in (0, 1, 2):
            case = f"{name}.{dim}"
            record(tensors, case, functools.partial(function, dim=dim), draws(case, (3, 4, 5), low=-5, high=5),
                   dims=[dim], keepdim=False)
        tensors[f"special_softmax.{name}"] = function(tensors["special_softmax.in"], 1)
    case = "logsumexp.pair_keepdim"
    record(tensors, case, lambda x: torch.logsumexp(x, (0, 2), True), draws(case, (3, 4, 5)), dims=[0, 2], keepdim=True)


def indexing(tensors):
    """.dim is the dimension; in1 the index, with positions that repeat, in2 what scatter_add adds."""
    shapes = {"first": (0, (4, 3), (6, 2)), "middle": (1, (2, 5, 3), (2, 3, 3)), "last": (-1, (2, 3, 4), (1, 3, 7)),
              "scalar": (0, (), ())}
    for case, (dim, shape, picked) in shapes.items():
        x, source = draws("indexing" + case, shape, picked)
        index = torch.randint(shape[dim] if shape else 1, picked, generator=generator(case))
        record(tensors, f"gather.{case}", lambda x, i: torch.gather(x, dim, i), [x, index], dim=dim)
        record(tensors, f"scatter.{case}", lambda x, i, s: torch.scatter(x, dim, i, s),
               [x, torch.argsort(torch.argsort(source, dim), dim) % (shape[dim] if shape else 1), source], dim=dim)
        record(tensors, f"scatter_add.{case}", lambda x, i, s: torch.scatter_add(x, dim, i, s), [x, index, source],
               dim=dim)
        record(tensors, f"index_select.{case}", lambda x, i: torch.index_select(x, dim, i),
               [x, index.flatten()[:5]], dim=dim)


def products(tensors):
    shapes = {
        "dot": ((5,), (5,)), "matrix_vector": ((3, 4), (4,)), "vector_matrix": ((4,), (4, 3)),
        "matrix": ((3, 4), (4, 5)), "batched": ((2, 3, 4), (2, 4, 5)), "batched_matrix": ((2, 3, 4), (4, 5)),
        "broadcast": ((2, 1, 3, 4), (3, 4, 2)), "batched_vector": ((2, 3, 4), (4,)),
        "vector_batched": ((4,), (2, 4, 3)), "empty_inner": ((2, 0), (0, 3)),
    }
    for case, (a, b) in shapes.items():
        record(tensors, f"matmul.{case}", torch.matmul, draws("matmul" + case, a, b))
    for case, x in {"vector": (4,), "matrix": (3, 4), "batched": (2, 3, 4)}.items():
        record(tensors, f"linear.{case}", F.linear, draws("linear" + case, x, (5, 4)))
        record(tensors, f"linear.{case}_bias", F.linear, draws("linear bias" + case, x, (5, 4), (5,)))


    for case, (beta, alpha) in {"plain": (1.0, 1.0), "factors": (0.5, -2.0)}.items():
        for c in ((3, 5), (5,), (3, 1), ()):
            name = f"addmm.{case}{len(c)}{c[-1:] == (1,)}"
            record(tensors, name, lambda c, a, b: torch.addmm(c, a, b, beta=beta, alpha=alpha),
                   draws(name, c, (3, 4), (4, 5)), factors=torch.tensor([beta, alpha], dtype=torch.float64))


def result_dtype(function, *operands):
    try:
        return name_of(function(*operands).dtype)
    except (RuntimeError, NotImplementedError):
        return "error"


def promotion_tables():
    """promotion: [dtype, class, dtype, class, dtype of the sum]; class 1: a dimension, 0: 0-d, -1: a Python number.
    results: op -> operands' common dtype -> result's dtype."""
    operands = [(d, c, torch.ones([2] * c, dtype=d)) for d in DTYPES for c in (1, 0)]
    operands += [(torch.int64, -1, 1), (torch.float64, -1, 1.5)]
    promotion = [[name_of(da), ca, name_of(db), cb, name_of((a + b).dtype)]
                 for (da, ca, a), (db, cb, b) in itertools.product(operands, operands) if ca + cb > -2]
    statistics = {"prod": torch.prod, "var": torch.var, "std": torch.std, "norm": torch.linalg.vector_norm}
    functions = [(UNARY, 1), (BINARY, 2), (REDUCTIONS, 1), (statistics, 1)]
    results = {name: {name_of(d): result_dtype(function, *[torch.ones(2, dtype=d)] * arity) for d in DTYPES}
               for ops, arity in functions for name, function in ops.items()}
    return {"promotion": promotion, "results": results}


def make_ops(folder):
    tensors = {}
    pointwise(tensors)
    reductions(tensors)
    statistics(tensors)
    products(tensors)
    softmaxes(tensors)
    indexing(tensors)
    save(folder / "ops.safetensors", tensors, **promotion_tables())


def make_casts(folder):
    """FROM.TO.in and .out, with values that the target's range holds where the target is an integer type."""
    floating = [0.0, -0.0, 1.0, -1.0, 0.1, 1 / 3, 2.5, -2.5, 0.999, 254.7, 257.0, 259.0, 2049.0, 2051.0, 65504.0,
                65519.9, 65520.0, 1e-8, 2.0**-25, 3e-8, 6.1e-5, 1 + 2.0**-11 + 2.0**-26, 1 + 2.0**-8, 1e20, 1e38,
                3.396e38, 3.4e38, 1e-40, 1e-310, math.pi, 1e300, math.inf, -math.inf, math.nan]
    integers = [0, 1, 2, -1, 100, 127, 128, 255, 256, 257, 2049, -2051, 65519, 65520, 2**24 + 1, -(2**31),
                2**31 - 1, 2**31 + 5, 2**53 + 1, 2**62 + 1, -(2**63)]
    limits = {torch.int64: (-(2.0**63), 2.0**62), torch.int32: (-(2.0**31), 2.0**31 - 1000),
              torch.uint8: (0, 255)}
    tensors = {}
    for source, target in itertools.product(DTYPES, DTYPES):
        if source.is_floating_point:
            values = torch.tensor(floating, dtype=torch.float64).to(source)
            if target in limits:
                low, high = limits[target]
                values = values[(values >= low) & (values <= high)]
        else:
            values = torch.tensor(integers).to(source)  # between integer types the low bits are kept
        key = f"{name_of(source)}.{name_of(target)}"
        tensors[key + ".in"], tensors[key + ".out"] = values, values.to(target)
    save(folder / "casts.safetensors", tensors)
