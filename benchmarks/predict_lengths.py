"""How well output lengths are predicted, within a source and across sources.

    python -m benchmarks.predict_lengths [--rows N] [--seed S] [--out FILE]

Sources: the three domains of the corpus (``orsched.prediction.make_corpus``) and two of real text,
from Python's standard library (``benchmarks.text_sources``). Parts by conversation (by module for
the library): 60 % to fit, 20 % to calibrate, 20 % to test on. The tables: in distribution; the
default trained on one source and tested on the test part of another; the online predictor on a
source that its base was not trained on; the quantile 0.99 with straight lines and with log-t tails.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.text_sources import standard_library
from orsched.prediction import (
    DOMAINS,
    LabelledPrompts,
    OnlinePredictor,
    evaluate,
    make_corpus,
    train,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("constant", "prompt_length", "lexical")
SHOWN = ("accuracy", "f1", "mae_tokens", "pinball", "coverage_5_95", "coverage_25_75", "tau")


def within(sources: dict[str, LabelledPrompts], seed: int) -> list[dict[str, Any]]:
    """Return a row for each source and predictor, tested on the same source."""
    rows = []
    for name, data in sources.items():
        test = data.part("test", seed)
        for kind in KINDS:
            figures = evaluate(train(data, kind, seed=seed), test, latency=False)
            shown = {key: figures[key] for key in SHOWN}
            rows.append({"source": name, "predictor": kind, "rows": len(test), **shown})
    return rows


def across(sources: dict[str, LabelledPrompts], seed: int) -> list[dict[str, Any]]:
    """Return, for the default trained on each source, Kendall's tau on each; and coverage."""
    rows = []
    for name, data in sources.items():
        model = train(data, seed=seed)
        found = {
            other: evaluate(model, rest.part("test", seed), latency=False)
            for other, rest in sources.items()
        }
        for figure in ("tau", "coverage_5_95"):
            values = {other: figures[figure] for other, figures in found.items()}
            rows.append({"trained on": name, "figure": figure, **values})
    return rows


def online(sources: dict[str, LabelledPrompts], seed: int) -> list[dict[str, Any]]:
    """Return coverage of the last half of another source, before and after recalibration."""
    rows = []
    names = list(sources)
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        base = train(sources[name], seed=seed)
        data = sources[other].part("test", seed)
        model, inside = OnlinePredictor(base, 0.05), []
        for row, prompt in enumerate(data.prompts):
            values = model.predict(prompt).values[0]
            inside.append(values[0] <= data.output_tokens[row] <= values[-1])
            model.observe(prompt, [data.output_tokens[row]])
        half = data.rows(np.arange(len(data) // 2, len(data)))
        before = evaluate(base, half, latency=False)["coverage_5_95"]
        after = float(np.mean(inside[len(data) // 2 :]))
        rows.append({"trained on": name, "told of": other, "before": before, "online": after})
    return rows


def heavy_tailed(rows: int, seed: int) -> LabelledPrompts:
    """Return the chat corpus with lengths whose errors have a heavy tail, in the logarithm.

    Half of Student's t with 3 degrees of freedom is added, and lengths are cut at 1,000,000.
    """
    data = make_corpus("chat", rows, seed)
    errors = 0.5 * np.random.default_rng(seed).standard_t(3, rows)
    tokens = np.clip(np.rint(data.output_tokens * np.exp(errors)), 1, 1_000_000)
    return LabelledPrompts(data.prompts, tokens.astype(np.int64), data.conversations)


def tails(sources: dict[str, LabelledPrompts], seed: int) -> list[dict[str, Any]]:
    """Return coverage and pinball loss of the quantile 0.99 by both kinds of tails."""
    rows = []
    for name, data in sources.items():
        test = data.part("test", seed)
        row: dict[str, Any] = {"source": name, "rows": len(test)}
        for label, law in (("lines", None), ("log-t", "log-t")):
            found = train(data, seed=seed, tails=law).predict(test.prompts).quantile(0.99)
            over = test.output_tokens - found
            row[f"coverage, {label}"] = float((over <= 0).mean())
            row[f"pinball, {label}"] = float(np.maximum(0.99 * over, -0.01 * over).mean())
        rows.append(row)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a table in Markdown."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"]
    lines += ["| " + " | ".join(_cell(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000, help="rows of each domain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the figures as JSON, too")
    chosen = parser.parse_args(arguments)
    sources = {name: make_corpus(name, chosen.rows, chosen.seed) for name in DOMAINS}
    sources |= standard_library()
    heavy = heavy_tailed(chosen.rows, chosen.seed)
    found = {
        "within": within(sources, chosen.seed),
        "across": across(sources, chosen.seed),
        "online": online(sources, chosen.seed),
        "tails": tails(sources | {"chat, heavy": heavy}, chosen.seed),
    }
    for name, rows in found.items():
        print(f"## {name}\n\n{table(rows)}\n")
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
