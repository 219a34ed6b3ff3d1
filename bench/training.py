"""compare.py's training steps: mezzo's beside PyTorch's in all its forms, and over sizes."""
import copy
import statistics
import sys
import tempfile
from pathlib import Path

from runner import BENCH, COMPILE_LIMIT, RUN_LIMIT, Form, Task, number, print_table, run, share

# Steps that a run times: a second or so of them.
STEPS = {"checkerboard": 7, "resnet18": 7, "lenet": 40, "mlp": 2000, "gpt": 20}
# PyTorch's forms. On images they differ by layout; Adam in one kernel is the choice of those who compile.
IMAGES = {"eager": ["--layout", "nchw"], "eager channels-last": [], "compiled channels-last": ["--compile", "--fused"]}
OTHERS = {"eager": [], "compiled": ["--compile", "--fused"]}
FORMS = {"checkerboard": IMAGES, "resnet18": IMAGES, "lenet": IMAGES, "mlp": OTHERS, "gpt": OTHERS}
DTYPES = {"off": "float32", "bf16": "bfloat16", "fp16": "float16"}
PIXELS, CHANNELS = (128, 192, 256, 384, 512), (64, 128, 256, 512, 1024)


def median(results, key):
    values = [result[key] for result in results if key in result]
    return statistics.median(values) if values else None


def mezzo_form(workload, a, amp, *more):
    steps = a.steps or STEPS[workload]
    return Form([a.build / "bench/workloads", workload, "--threads", a.threads, "--steps", steps, "--amp", amp, *more])


def torch_form(workload, a, amp, *more):
    command = [sys.executable, BENCH / "torch_workloads.py", workload, "--threads", a.threads, "--steps", a.steps or STEPS[workload], "--amp", amp, *more]
    # Where the processor lacks instructions for it, PyTorch's bfloat16 may take minutes.
    return Form(command, COMPILE_LIMIT if "--compile" in more else RUN_LIMIT, needed=False)


def check_same(workload, a):
    """Ends the program unless both frameworks' nets have as many parameters and the same loss for the same weights and data."""
    with tempfile.TemporaryDirectory() as folder:
        file, once = Path(folder) / "state.safetensors", copy.copy(a)
        once.steps = 1
        results = [run(form.command, form.limit, a.threads) for form in (torch_form(workload, once, "off", "--warmup", 0, "--save", file),
                                                                        mezzo_form(workload, once, "off", "--warmup", 0, "--load", file))]
    if any(isinstance(result, str) for result in results):
        sys.exit(f"{workload}: {results}")
    torch, mezzo = results
    near = abs(mezzo["first_loss"] / torch["first_loss"] - 1) < 1e-4
    if mezzo["parameters"] != torch["parameters"] or not near:
        sys.exit(f"{workload} is not the same net in both: " + "; ".join(f"{r['framework']} {r['parameters']} parameters, first loss {r['first_loss']}" for r in results))
    print(f"{workload}: {mezzo['parameters']:,} parameters and first loss {mezzo['first_loss']:.5f} in both", file=sys.stderr)


class Training(Task):
    """One workload in float32 and what else is asked for. PyTorch's float16 on a CPU is scalar loops: left out."""

    def __init__(self, workload, a):
        self.amps = ["off", *(amp for amp in a.amps if amp != "off")]
        forms = {}
        size = ["--size", a.size] if workload == "checkerboard" else []
        for amp in self.amps:
            forms["mezzo", amp] = mezzo_form(workload, a, amp, *size)
            if amp == "fp16":
                continue
            for name, flags in FORMS[workload].items():
                forms[name, amp] = torch_form(workload, a, amp, *size, *flags)
            if workload == "mlp":
                command = [a.build / "bench/libtorch_mlp", "--threads", a.threads, "--steps", a.steps or STEPS[workload], "--amp", amp]
                forms["libtorch, C++", amp] = Form(command)
            if workload == "checkerboard":
                command = [a.build / "bench/products", "--threads", a.threads, "--steps", a.steps or STEPS[workload], "--amp", amp, *size]
                forms["products", amp] = Form(command)
        super().__init__(workload, forms)
        self.a = a

    def of(self, amp):
        """Form to results, in one precision."""
        return {name: results for (name, which), results in self.results.items() if which == amp}

    def row(self, amp, limits):
        """The row of the JSON file: medians over the rounds."""
        results = self.of(amp)
        ms = {name: median(form, "median_step_ms") for name, form in results.items()}
        torch = {name: ms[name] for name in ms if name not in ("mezzo", "products")}
        best = min(torch, key=torch.get, default=None)
        gflop = median([r for form in self.results.values() for r in form], "step_gflop")
        # 16-bit products may run as float32's, where those are faster.
        peaks = [result[dtype]["gflops"] for result in limits for dtype in {"float32", DTYPES[amp]} if result.get(dtype)]
        mezzo_ms = ms["mezzo"]
        row = {
            "workload": self.name, "amp": amp, "mezzo_ms": mezzo_ms, "torch_ms": torch.get(best), "ratio": mezzo_ms / torch[best] if best else None,
            "peak_share": gflop / mezzo_ms * 1e3 / max(peaks) if gflop and peaks else None,
            "mezzo_mib": median(results["mezzo"], "training_mib"), "torch_mib": median(results[best], "training_mib") if best else None,
            "torch_form": best, "torch_forms_ms": torch, "over_float32": mezzo_ms / median(self.of("off")["mezzo"], "median_step_ms"),
            "gflop": gflop, "peak_gflops": max(peaks, default=None), "threads": self.a.threads, "rounds": len(results["mezzo"]),
        }
        if "products" in ms:
            row |= {"size": self.a.size, "products_ms": ms["products"], "over_products": mezzo_ms / ms["products"]}
        return row

    def show(self, row):
        """A line for each form."""
        lines = []
        for name, results in self.of(row["amp"]).items():
            cells = [number(median(results, key + "_ms")) for key in ("median_step", "forward", "backward", "optimizer")]
            fastest = number(min(result["min_step_ms"] for result in results))
            memory = number(median(results, "training_mib"))
            lines.append([name, *cells, fastest, memory, share(row["mezzo_ms"] / median(results, "median_step_ms"))])
        title = f"{self.name}, {DTYPES[row['amp']]}: medians, rounds {row['rounds']}, milliseconds"
        print_table(title, ["", "step", "forward", "backward", "optimizer", "fastest", "adds MiB", "mezzo is"], lines, False)


def show_summary(rows, a):
    """The README's table."""
    lines = [[f"{row['workload']}, {DTYPES[row['amp']]}", number(row["mezzo_ms"]), number(row["torch_ms"]), row["torch_form"] or "", share(row["ratio"]),
              share(row["over_float32"]) if row["amp"] != "off" else "", "" if row["peak_share"] is None else f"{row['peak_share']:.0%}",
              number(row["mezzo_mib"]), number(row["torch_mib"])] for row in rows]
    header = ["a training step, milliseconds", "mezzo", "PyTorch's best", "", "mezzo is", "of its float32", "of the peak", "adds MiB", "PyTorch adds"]
    print_table("Training", header, lines, a.markdown)


class Sweep(Task):
    """The checkerboard's step over one of its sizes: forms are (value, amp)."""

    def __init__(self, name, option, values, amps, a, more=()):
        self.option, self.values, self.amps = option, values, amps
        super().__init__(name, {(value, amp): mezzo_form("checkerboard", a, amp, f"--{option}", value, *more) for value in values for amp in amps})

    def ms(self, value, amp="off"):
        return median(self.results[value, amp], "median_step_ms")

    def rows(self):
        return [{"workload": self.name, self.option: value, "amp": amp, "mezzo_ms": self.ms(value, amp)} for value in self.values for amp in self.amps]


class Channels(Sweep):
    """What bfloat16 gains, over the channels of the hidden layers."""

    SIZE = 128  # pixels of the side: 1024 channels of it are still a few seconds a step

    def __init__(self, a):
        super().__init__("channels", "channels", CHANNELS, ["off", "bf16"], a, ["--size", self.SIZE])

    def show(self, a):
        lines = [[str(c), number(self.ms(c)), number(self.ms(c, "bf16")), share(self.ms(c, "bf16") / self.ms(c))] for c in self.values]
        print_table(f"Checkerboard of {self.SIZE} x {self.SIZE}, a step in milliseconds", ["channels", "float32", "bfloat16", "bfloat16 is"], lines, a.markdown)


class Pixels(Sweep):
    """Whether the time of a step grows as the number of pixels."""

    def __init__(self, a):
        super().__init__("pixels", "size", PIXELS, ["off"], a)

    def show(self, a):
        lines = [[f"{side} x {side}", number(self.ms(side)), number(1e6 * self.ms(side) / side**2)] for side in self.values]
        print_table("Checkerboard, float32", ["pixels", "ms a step", "ns a pixel"], lines, a.markdown)
