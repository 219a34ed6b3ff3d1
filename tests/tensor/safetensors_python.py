"""Python's side of safetensors_python_test.cpp: safetensors_python.py write|check FILE. The values are written out on
both sides. Exits with 77 if the package is not there."""
import ctypes
import json
import pathlib
import struct
import sys

try:
    from safetensors import TensorSpec, deserialize, serialize_file
except ImportError as error:
    print(error)
    sys.exit(77)

EIGHTHS = [-0.75, -0.375, 0.0, 0.375, 0.75, 1.125]  # exact in every floating dtype
METADATA = {"step": "3", "größe": "½"}


def bfloat16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def pack(code, values):
    return struct.pack(f"<{len(values)}{code}", *values)


# name: (dtype in the file, dtype for TensorSpec, shape, elements)
TENSORS = {
    "bool": ("BOOL", "bool", [6], pack("?", [0, 1, 0, 1, 0, 1])),
    "f64": ("F64", "float64", [2, 3], pack("d", EIGHTHS)),
    "f32": ("F32", "float32", [2, 3], pack("f", EIGHTHS)),
    "f16": ("F16", "float16", [2, 3], pack("e", EIGHTHS)),
    "bf16": ("BF16", "bfloat16", [2, 3], bfloat16(EIGHTHS)),
    "i64": ("I64", "int64", [3], pack("q", [-2**40, 0, 2**40])),
    "i32": ("I32", "int32", [3], pack("i", [-2**20, 0, 2**20])),
    "u8": ("U8", "uint8", [3], pack("B", [0, 127, 255])),
    "0-d": ("F32", "float32", [], pack("f", [0.375])),
    "empty": ("F32", "float32", [2, 0, 3], b""),
    "größe.½": ("U8", "uint8", [1], pack("B", [1])),
}


def write(path):
    buffers = {name: ctypes.create_string_buffer(data, len(data)) for name, (_, _, _, data) in TENSORS.items()}
    specs = {name: TensorSpec(dtype=dtype, shape=shape, data_ptr=ctypes.addressof(buffers[name]), data_len=len(data))
             for name, (_, dtype, shape, data) in TENSORS.items()}
    serialize_file(specs, path, metadata=METADATA)


def check(path):
    content = pathlib.Path(path).read_bytes()
    found = {name: (tensor["dtype"], tensor["shape"], bytes(tensor["data"])) for name, tensor in deserialize(content)}
    expected = {name: (dtype, shape, data) for name, (dtype, _, shape, data) in TENSORS.items()}
    assert found == expected, f"{found} is not {expected}"
    # The package shows metadata only together with numpy.
    metadata = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    assert metadata == METADATA, metadata


{"write": write, "check": check}[sys.argv[1]](sys.argv[2])
