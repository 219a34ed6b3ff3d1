"""scaled_dot_product_attention."""

import math

import torch
import torch.nn.functional as F
from store import draws, generator, record, save


def make_attention(folder):
    """CASE.is_causal, CASE.scale (NaN: the default); in0, in1, in2 are query, key, value, in3, if it is there, the mask."""
    def flags(*shape):
        return torch.rand(shape, generator=generator(f"attention{shape}")) > 0.4

    blind = flags(6, 5)
    blind[2] = False  # a query that sees nothing
    hidden = torch.where(flags(4, 4), 0.0, -math.inf).double()
    hidden[1] = -math.inf
    #        query         key           value         mask  is_causal  scale
    cases = {
        "matrices": ((5, 4), (5, 4), (5, 4), None, False, None),
        "batch": ((2, 6, 4), (2, 5, 4), (2, 5, 3), None, False, None),
        "heads": ((2, 3, 6, 4), (2, 3, 5, 4), (2, 3, 5, 4), None, False, None),
        "scaled": ((2, 6, 4), (2, 5, 4), (2, 5, 4), None, False, 0.9),
        "causal": ((2, 3, 6, 4), (2, 3, 6, 4), (2, 3, 6, 4), None, True, None),
        "causal_more_keys": ((2, 4, 3), (2, 7, 3), (2, 7, 3), None, True, None),
        "causal_fewer_keys": ((2, 7, 3), (2, 4, 3), (2, 4, 3), None, True, 0.3),
        "mask": ((2, 2, 6, 4), (2, 2, 5, 4), (2, 2, 5, 4), blind, False, None),
        "mask_of_batches": ((2, 2, 6, 4), (2, 2, 5, 4), (2, 2, 5, 4), flags(2, 1, 6, 5), False, None),
        "mask_of_keys": ((2, 6, 4), (2, 5, 4), (2, 5, 4), flags(5), False, None),
        "bias": ((2, 6, 4), (2, 5, 4), (2, 5, 4), draws("attention.bias", (6, 5))[0], False, 1.1),
        "bias_of_heads": ((2, 3, 4, 2), (2, 3, 4, 2), (2, 3, 4, 2), draws("attention.bias_of_heads", (3, 4, 4))[0],
                          False, None),
        "bias_that_hides": ((2, 4, 2), (2, 4, 2), (2, 4, 2), hidden, False, None),
        "blocks": ((140, 4), (130, 4), (130, 3), None, False, None),
        "blocks_causal": ((140, 4), (140, 4), (140, 4), None, True, None),
    }
    tensors = {}
    for case, (query, key, value, mask, is_causal, scale) in cases.items():
        inputs = draws("attention" + case, query, key, value)
        record(tensors, case,
               lambda q, k, v, m=None, c=is_causal, s=scale: F.scaled_dot_product_attention(
                   q, k, v, m, is_causal=c, scale=s),
               inputs + ([] if mask is None else [mask]), is_causal=is_causal,
               scale=torch.tensor(math.nan if scale is None else scale, dtype=torch.float64))
    save(folder / "attention.safetensors", tensors)
