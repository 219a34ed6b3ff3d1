"""The numbers that example 05_mixed_precision prints: mixed_precision_test.py PROGRAM DEVICE"""
import struct
import subprocess
import sys

program, device = sys.argv[1:]
output = subprocess.run([program, device], check=True, stdout=subprocess.PIPE, text=True).stdout


def half(value):
    """The nearest float16; infinity from 65520 on."""
    try:
        return struct.unpack("e", struct.pack("e", float(value)))[0]
    except OverflowError:
        return float("inf")


def steps(lr=0.25, interval=2):
    """The walk of a weight with the gradient 1, and of the scale."""
    w, scale, good = 1, 65536, 0
    for step in range(1, 6):
        gradient = half(scale)
        skipped = gradient == float("inf")
        w -= 0 if skipped else lr
        yield (f"step {step}: scale {scale}, scaled gradient {gradient:g}, "
               f"{'skipped' if skipped else 'taken'}: w = {w:g}")
        good = 0 if skipped else good + 1
        scale = scale // 2 if skipped else scale * 2 if good == interval else scale
        good %= interval
    yield f"the scale is now {scale}"


walk = list(steps())
# By hand, so that a mistake of the walk is seen too.
assert "step 1: scale 65536, scaled gradient inf, skipped: w = 1" in walk
assert "step 2: scale 32768, scaled gradient 32768, taken: w = 0.75" in walk
assert "step 4: scale 65536, scaled gradient inf, skipped: w = 0.5" in walk

expected = [
    "x + y is float32, matmul(x, y) is bfloat16",
    "low: matmul addmm linear linear_relu gelu_linear conv2d scaled_dot_product_attention",
    "low_operands: conv1x1_stats",
    "op calls came as policy went as",
    "conv1x1_stats 1 float32, float32, float32, -, -, -, - low_operands bfloat16, bfloat16, bfloat16, -, -, -, -",
    "conv1x1_stats 1 bfloat16, float32, float32, float32, float32, float32, float32 "
    "low_operands bfloat16, bfloat16, bfloat16, float32, float32, float32, float32",
    "mse_loss 1 bfloat16, float32 full float32, float32",
    "without a scale: 0",
    f"times 65536: {half(1e-8 * 65536):.6g}",
    f"unscaled: {half(1e-8 * 65536) / 65536:.6g}",
    *walk,
    "the body gives bfloat16, the head float32",
    f"linear: weight is float32 but input is bfloat16; input [1,4] bfloat16 {device}, "
    f"weight [1,4] float32 {device}, bias [1] float32 {device}; in head; convert one with to(dtype)",
]
assert half(1e-8) == 0 and expected[8:10] == ["times 65536: 0.000655174", "unscaled: 9.99717e-09"]
lines = [" ".join(line.split()) for line in output.splitlines()]
position = 0
for line in expected:
    assert line in lines[position:], f"after line {position}: no '{line}' in\n{output}"
    position = lines.index(line, position) + 1

# The report: numbers of elements, and the shares of lost, subnormal, normal and overflowed at both scales.
rows = {}
for line, scaled in zip(lines[position:], lines[position + 1:]):
    if " 1 " in line and scaled.startswith("65536 "):
        name, elements = line.split()[:2]
        shares = [[float(word) for word in text.split() if "." in word] for text in (line.partition(" 1 ")[2], scaled)]
        rows[name] = int(elements), *shares
assert {name: row[0] for name, row in rows.items()} == {
    "hidden": 4096 * 32, "in.weight": 32 * 16, "out.weight": 32, "total": 4096 * 32 + 32 * 16 + 32}, output
for row in rows.values():
    for shares in row[1:]:
        assert len(shares) == 4 and abs(sum(shares) - 100) < 0.2, output
# A gradient of `hidden` is 2 / 4096 * 1e-3 n u / sqrt(32), n normal and u uniform in +-1: 59 % of those are at most
# 2^-25, and 5 % below 2^-30, with a deviation of 5 % for the 32 draws of u.
_, (lost, _, _, overflowed), (lost_scaled, subnormal_scaled, _, overflowed_scaled) = rows["hidden"]
assert 45 < lost < 73 and subnormal_scaled < 15, output
assert overflowed == lost_scaled == overflowed_scaled == 0, output
