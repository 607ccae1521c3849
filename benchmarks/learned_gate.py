"""The shipped learned gate beside the literal Lagrangian gate and ``shadow_price``.

python -m benchmarks.learned_gate [--seeds 10]

No gate knows a length (``none``): longest first by prompt, one queue, GSM8K's workload. Makespan
where all requests are there at 0, else mean JCT. The gate was trained on seeds 100 and 101 at
1319 x 200, all at 0 and at 3, 6 and 7.5 requests a second, by the command on the page *Gates*: no
row has its seeds, and most rows have rates or sizes that it has not seen. Differences are those of
each seed's own pair of runs, with 95 % intervals (Student).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.arguments import count
from benchmarks.reproductions.gates import Figures, percent, run
from benchmarks.speed.section import table

if TYPE_CHECKING:
    from collections.abc import Sequence

GATES = ("waited_time", "shadow_price", "learned")
CASES = (
    ("1319 x 200", 0.0), ("100 x 20", 0.0), ("1319 x 200", 2.0), ("1319 x 200", 5.0),
    ("1319 x 200", 6.0), ("1319 x 200", 7.5), ("1319 x 200", 8.0),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=count, default=10)
    options = parser.parse_args(arguments)
    rows = []
    for size, rate in CASES:
        what = "jct_s" if rate else "makespan_s"
        at = Figures._fields.index(what)
        found = {
            gate: [run(gate, "none", size, seed, rate)[at] for seed in range(options.seeds)]
            for gate in GATES
        }
        row = {"size": size, "rate": f"{rate:g}", "figure": what}
        row |= {gate: f"{np.mean(values):.2f}" for gate, values in found.items()}
        for other in GATES[:-1]:
            row[f"learned over {other}, %"] = percent(found["learned"], found[other])[0]
        rows.append(row)
    print("\n".join(table(rows)), flush=True)


if __name__ == "__main__":
    main()
