"""Make the data of the examples: requests with arrivals, and measured steps of a machine.

    python examples/make_data.py

Both files are drawn with a fixed seed, so the same bytes come out each time. The lengths are like
those of conversations with an assistant, the times those of an imagined machine, with noise of 2 %.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"
REQUESTS, PER_SECOND = 500, 6.0


def requests(rng: np.random.Generator) -> list[list[object]]:
    """Return a head and a row a request: bursts (gamma gaps), heavy-tailed prompts and answers."""
    gaps = rng.gamma(0.25, 4 / PER_SECOND, REQUESTS)
    arrivals = np.cumsum(gaps) - gaps[0]
    prompts = np.clip(np.exp(rng.normal(6.6, 0.9, REQUESTS)), 8, 8000).astype(int)
    answers = np.clip(np.exp(rng.normal(5.0, 0.8, REQUESTS)), 4, 1000).astype(int)
    rows = zip(prompts, answers, arrivals, strict=True)
    head: list[list[object]] = [["prompt_tokens", "output_tokens", "arrival_s"]]
    return head + [[int(p), int(a), f"{t:.3f}"] for p, a, t in rows]


def measurements(rng: np.random.Generator) -> list[list[object]]:
    """Return a head and a row a step: prefills of several prompts, rounds of several requests."""
    rows: list[list[object]] = [["phase", "count", "tokens", "longest", "duration_ms"]]
    for count in (1, 2, 4):
        for tokens in (128, 256, 512, 1024, 2048):
            duration = (12 + 0.06 * tokens * count) * rng.normal(1, 0.02)
            rows.append(["prefill", count, tokens * count, tokens, f"{duration:.3f}"])
    for count in (1, 2, 4, 8, 16, 32, 48, 64):
        duration = (13 + 0.045 * count) * rng.normal(1, 0.02)
        rows.append(["decode", count, 0, 0, f"{duration:.3f}"])
    return rows


def main() -> None:
    """Write both files."""
    rng = np.random.default_rng(17)
    DATA.mkdir(exist_ok=True)
    for name, rows in (("requests", requests(rng)), ("measurements", measurements(rng))):
        with (DATA / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
