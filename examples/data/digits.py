#!/usr/bin/env python3
"""Writes digits.safetensors from scikit-learn's table of the digits: python3 digits.py digits.csv.gz

The table has a line for each image, 64 pixels row by row and the digit. It comes with Debian's package
python3-sklearn and with `pip install scikit-learn`, as sklearn/datasets/data/digits.csv.gz.
"""
import gzip
import json
import pathlib
import struct
import sys

rows = [[int(field) for field in line.split(",")] for line in gzip.open(sys.argv[1], "rt")]
assert len(rows) == 1797 and all(len(row) == 65 and max(row) <= 16 for row in rows)

labels = struct.pack(f"<{len(rows)}q", *(row[64] for row in rows))
images = b"".join(bytes(row[:64]) for row in rows)
header = {
    "__metadata__": {
        "source": "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository",
        "licence": "CC BY 4.0",
    },
    "labels": {"dtype": "I64", "shape": [len(rows)], "data_offsets": [0, len(labels)]},
    "images": {"dtype": "U8", "shape": [len(rows), 8, 8], "data_offsets": [len(labels), len(labels) + len(images)]},
}
text = json.dumps(header, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
pathlib.Path(__file__).with_suffix(".safetensors").write_bytes(struct.pack("<Q", len(text)) + text + labels + images)
