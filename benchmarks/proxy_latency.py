"""How long the papers' full-size proxy models take for a batch, on a CPU or a GPU.

    python -m benchmarks.proxy_latency [--device cuda] [--seconds 20] [--batch 1 64] [--long]

Weights are random: times do not depend on them. Prompts are those of the corpus's domain ``chat``;
``--long`` takes texts that fill the 512 tokens of the encoders. A time is that of a prediction from
text to quantiles. The papers print 7.6 ms for BERT-base (SSJF) and 4.5 ms for DistilBERT (MICO).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from benchmarks.predict_lengths import table
from orsched.prediction import LabelledPrompts, make_corpus, train_proxy
from orsched.prediction.evaluation import BATCHES, measured_latency

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("bert_ssjf", "distilbert_mico")
PAPER_MS = {"bert_ssjf": 7.6, "distilbert_mico": 4.5}


def rows(
    model: Any, device: str, seconds: float, long: bool, sizes: Sequence[int] = BATCHES
) -> list[dict[str, Any]]:
    """Return a row of figures for each model and size of batch."""
    few = make_corpus("chat", 60, 0)
    asked = make_corpus("chat", 400, 1)
    if long:
        asked = LabelledPrompts(["What follows is a text, in words and lines.\n" * 100], [1])
    found = []
    for kind in KINDS:
        fitted = train_proxy(few, kind, model=model, device=device, phases=())
        count = sum(p.numel() for p in fitted.network.parameters())
        fitted.predict(asked.prompts[:1])  # what is loaded once
        for size in sizes:
            took = measured_latency(fitted, asked, size, seconds=seconds)
            found.append({
                "model": kind,
                "parameters": count,
                "device": fitted.device,
                "batch": size,
                "median ms": 1e3 * took.seconds,
                "calls": took.calls,
                "paper ms": f"{PAPER_MS[kind]:g}" if size == 1 else "",
            })  # fmt: skip
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda")
    parser.add_argument("--model", default="full", help="full, small, or a model's folder")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each size, at most")
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES, metavar="N")
    parser.add_argument("--long", action="store_true", help="prompts of 512 tokens")
    given = parser.parse_args(arguments)
    print(table(rows(given.model, given.device, given.seconds, given.long, given.batch)))


if __name__ == "__main__":
    main()
