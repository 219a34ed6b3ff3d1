"""compare.py's single ops: the rows of ops.cpp beside those of the same names in libtorch_ops.cpp and onednn_ops.cpp.

With one thread, processor time is compared, which a busy machine changes little.
"""
import statistics

from runner import RUN_LIMIT, Form, Task, number, print_table, share

PEERS = {"mezzo": "ops", "libtorch": "libtorch_ops", "oneDNN": "onednn_ops"}
SECONDS = 0.2  # that a row runs at least


class Ops(Task):
    """The rows whose names match. Forms are those programs that are built; a peer that has none of the rows is left out."""

    def __init__(self, name, pattern, a, programs):
        options = ["--benchmark_format=json", f"--benchmark_filter={pattern}", f"--benchmark_min_time={SECONDS}"]
        forms = {who: Form([a.build / "bench" / program, *options], 3 * RUN_LIMIT, who == "mezzo") for who, program in PEERS.items() if program in programs}
        super().__init__(name, forms)
        self.clock = "cpu_time" if a.threads == 1 else "real_time"

    def tables(self):
        """Program to row to its figures over the rounds, as Google Benchmark names them."""
        result = {who: {} for who in self.forms}
        for who, rounds in self.results.items():
            for row in (row for done in rounds for row in done.get("benchmarks", []) if not row.get("error_occurred")):
                result[who].setdefault(row["name"].removesuffix("/real_time"), []).append(row)
        return result

    def milliseconds(self, row):
        return row[self.clock] * {"ns": 1e-6, "us": 1e-3, "ms": 1}[row["time_unit"]]

    def figure(self, rows):
        """A rate where the row counts something, a time an op where it has several, else a time."""
        row = rows[0]
        for key, unit in (("bytes_per_second", "GB/s"), ("FLOP/s", "GFLOP/s")):
            if key in row:
                return f"{number(statistics.median(r[key] * r['real_time'] / r[self.clock] for r in rows) / 1e9)} {unit}"
        if "per op" in row:
            return f"{number(statistics.median(r['per op'] * r[self.clock] / r['real_time'] for r in rows) * 1e9)} ns an op"
        return f"{number(statistics.median(r[self.clock] for r in rows))} {row['time_unit']}"

    def ratio(self, mezzo, other):
        """Median of the ratios of the times in each round."""
        return statistics.median(self.milliseconds(a) / self.milliseconds(b) for a, b in zip(mezzo, other)) if other else None

    def rows(self):
        """Of the JSON file."""
        tables, result = self.tables(), []
        for name, mezzo in tables["mezzo"].items():
            row = {"workload": self.name, "op": name, "amp": "bf16" if name.endswith("bfloat16") else "off",
                   "mezzo_ms": statistics.median(map(self.milliseconds, mezzo))}
            for who, key in (("libtorch", "torch"), ("oneDNN", "onednn")):
                other = tables.get(who, {}).get(name)
                row |= {f"{key}_ms": statistics.median(map(self.milliseconds, other)) if other else None,
                        "ratio" if key == "torch" else "over_onednn": self.ratio(mezzo, other)}
            result.append(row)
        return result

    def show(self, a):
        tables = self.tables()
        others = [who for who in tables if who != "mezzo"]
        lines = []
        for name, mezzo in tables["mezzo"].items():
            line = [name, self.figure(mezzo)]
            for who in others:
                other = tables[who].get(name)
                line += [self.figure(other) if other else "", share(self.ratio(mezzo, other))]
            lines.append(line)
        header = ["", "mezzo", *(cell for who in others for cell in (who, "mezzo is"))]
        print_table(f"{self.name}: a ratio below 1 says that mezzo is the faster one", header, lines, a.markdown)
