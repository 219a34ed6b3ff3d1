#!/usr/bin/env python3
"""Writes the numbers that the golden tests compare with, computed by PyTorch.

Usage: python make_golden.py [FOLDER]     (default: the folder of this script; needs torch, nothing else)

Each NAME.safetensors holds inputs and what PyTorch makes of them; its metadata says PyTorch's version and holds
tables as JSON. print.json holds printed tensors, autocast.json the dtypes of results under autocast. The files are the same, byte for byte, on every run on one machine.
"""

import pathlib
import sys

import torch
from attention import make_attention
from autocast import make_autocast
from layers import (make_batch_norm, make_conv2d, make_embedding, make_init, make_layer_norm, make_max_pool2d,
                    make_mse)
from losses import make_losses
from ops import make_casts, make_ops
from printing import make_print
from scaler import make_scaler
from training import make_checkerboard, make_optim


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    torch.set_num_threads(1)
    print("PyTorch", torch.__version__)
    for make in (make_ops, make_casts, make_conv2d, make_max_pool2d, make_batch_norm, make_embedding, make_layer_norm,
                 make_attention, make_mse, make_losses, make_init, make_optim, make_checkerboard, make_scaler, make_print, make_autocast):
        make(folder)


if __name__ == "__main__":
    main()
