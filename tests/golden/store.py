"""What all golden cases share: their inputs, and the files that hold them."""

import json
import struct
import zlib

import torch

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL",
}
COMPARED = (torch.float32, torch.float64)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def save(path, tensors, **tables):
    """Writes the safetensors format with sorted keys, so that equal contents are equal files."""
    header = {"__metadata__": {"torch": torch.__version__, **{k: json.dumps(v) for k, v in tables.items()}}}
    data = b""
    for name, tensor in sorted(tensors.items()):
        tensor = tensor.detach().contiguous()
        raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size / 1024:.0f} KiB")


def generator(name):
    """A generator of its own for each case: adding a case leaves the numbers of the others alone."""
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def draws(name, *shapes, low=-2.0, high=2.0):
    """Uniform float64 values that float32 represents, so that both dtypes start from the same inputs."""
    random = generator(name)
    return [(torch.rand(s, generator=random) * (high - low) + low).double() for s in shapes]


def halves(name, *shapes):
    """Multiples of one half in [-2, 2]: equal values and zeros are frequent."""
    return [torch.round(x * 2) / 2 for x in draws(name, *shapes)]


def record(tensors, case, function, inputs, **facts):
    """Stores CASE.DTYPE.in0, in1, ..., out, and for a floating output grad_out and grad0, grad1, ..."""
    for key, fact in facts.items():
        tensors[f"{case}.{key}"] = torch.as_tensor(fact)
    for dtype in COMPARED:
        prefix = f"{case}.{name_of(dtype)}"
        leaves = [x.detach().to(dtype).requires_grad_() if x.is_floating_point() else x for x in inputs]
        out = function(*leaves)
        tensors[f"{prefix}.out"] = out
        for i, leaf in enumerate(leaves):
            tensors[f"{prefix}.in{i}"] = leaf
        if out.requires_grad:
            (grad_out,) = draws(case + ".grad_out", out.shape)
            tensors[f"{prefix}.grad_out"] = grad_out.to(dtype)
            out.backward(grad_out.to(dtype))
            for i, leaf in enumerate(leaves):
                if leaf.grad is not None:
                    tensors[f"{prefix}.grad{i}"] = leaf.grad
