"""Decode steps against servers at a rate of requests, of which no lengths are published.

python -m benchmarks.validation.rates

TPOT of vLLM on H100 SXM in February 2026, from the training data of the simulator BLIS: 100
distinct prompts, which the prefix cache holds after their first use. At a rate, the requests in a
round follow from rate x TPOT x answer. One pair of lengths, prompt and answer, is chosen for all
rows so that the largest error is least: two numbers for seven rows. So it says whether one
workload exists with which the steps agree, and not how well TPOT is predicted.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import TYPE_CHECKING

from benchmarks.speed.section import table
from orsched.calibration import GPUS, MODELS, Layout, data_sheet_cost
from orsched.common.units import NS_PER_MS

if TYPE_CHECKING:
    from orsched.costs import CostModel

ROWS = (  # model, GPUs, requests a second, milliseconds for each token
    ("llama2-7b", 1, 5, 7.26), ("llama2-7b", 1, 10, 8.89), ("llama2-7b", 1, 20, 16.62),
    ("llama2-70b", 4, 8, 18.7), ("llama2-70b", 4, 20, 22.1),
    ("codellama-34b", 2, 8, 14.8), ("codellama-34b", 2, 20, 17.0),
)  # fmt: skip
PROMPTS = (50, 100, 200, 300, 400, 500, 600, 800, 1000, 1500)
ANSWERS = (50, 100, 150, 200, 250, 300, 400, 500)
STEPS, MOST_MS = 60, 1000.0


def steady_ms(cost: CostModel, rate: int, prompt: int, answer: int) -> float:
    """Return the time of a round in which as many requests are as arrive while one is served."""
    found = 10.0
    for _ in range(STEPS):
        many = max(1, round(rate * found / 1000 * answer))
        took = cost.round_ns(many, many * (prompt + answer // 2), prompt + answer) / NS_PER_MS
        if took > MOST_MS:  # more arrive than are served
            return took
        found = (found + took) / 2
    return found


def main() -> int:
    """Print each row with its error for the best pair of lengths."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    costs = {
        (model, tp): data_sheet_cost(GPUS["h100"], MODELS[model], Layout(tp=tp))
        for model, tp, *_ in ROWS
    }

    def errors(prompt: int, answer: int) -> list[float]:
        times = (steady_ms(costs[row[:2]], row[2], prompt, answer) for row in ROWS)
        return [time / row[3] - 1 for time, row in zip(times, ROWS, strict=True)]

    lengths = min(product(PROMPTS, ANSWERS), key=lambda pair: max(map(abs, errors(*pair))))
    names = ("model", "tp", "requests/s", "measured TPOT ms")
    rows = [
        {**dict(zip(names, row, strict=True)), "prompt": lengths[0], "answer": lengths[1],
         "error %": f"{100 * error:+.1f}"}
        for row, error in zip(ROWS, errors(*lengths), strict=True)
    ]  # fmt: skip
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
