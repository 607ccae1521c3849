"""SSJF's heads, trained here: what each predicts for held-out prompts of two sources.

python -m benchmarks.reproductions.ssjf_heads [--source chat] [--out FILE]

The paper's text, LMSYS-Chat-1M, cannot be had here, nor BERT's weights. So a small encoder with
random weights (one layer of width 32) is trained by the paper's recipe at rates for random weights,
on the seeded corpus (``chat``: lengths by a law that is made to be learned) and on functions of
Python's standard library (``bodies``: real text, hard to learn). It takes a quarter of an hour;
``orsched paper ssjf --table 2`` schedules by what ``orsched/papers/ssjf_heads.csv`` keeps.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.prediction import LabelledPrompts
    from orsched.prediction.proxies.proxy_file import ProxyPredictor

KEPT = Path(__file__).resolve().parents[2] / "orsched" / "papers" / "ssjf_heads.csv"
SOURCES = ("chat", "bodies")
ROWS = 6000
SEED = 0

PROXIES = (
    ("bert_ssjf", "binary"),
    ("bert_ssjf", "ordinal_mse"),
    ("bert_ssjf", "ordinal_l1"),
    ("bert_ssjf", "classes"),
    ("bert_ssjf", "regression_mse"),
    ("bert_ssjf", "regression_l1"),
    ("bert_ranker", "ranks"),
)
SIMPLER = ("prompt_length", "lexical")

MODEL = {
    "vocab_size": 2048, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 128,
}  # fmt: skip


def train_all(source: str, seed: int = SEED) -> dict[str, NDArray[np.int64]]:
    """Return by name what predictors tell of held-out prompts, rounds and truth first."""
    from orsched.prediction import train, train_proxy
    from orsched.prediction.proxies.network import Phase

    data = labelled(source)
    test = data.part("test", seed)
    rounds = np.array([1 + len(prompt.asked) for prompt in test.prompts], np.int64)
    found = {"round": rounds, "output_tokens": test.output_tokens}
    for kind in SIMPLER:
        found[kind] = train(data, kind, seed=seed).predict(test.prompts).tokens()
    phases = (Phase(4, 2e-3), Phase(2, 2e-3, frozen=True))
    for kind, head in PROXIES:
        name = head if kind == "bert_ssjf" else None
        fitted = train_proxy(
            data, kind, head=name, model=MODEL, phases=phases, seed=seed, device="cpu"
        )
        found[head] = _tokens(fitted, test)
        print(f"{source}: {head} trained", flush=True)
    return found


def labelled(source: str) -> LabelledPrompts:
    """Return the prompts of a source with the lengths of their replies."""
    from benchmarks.text_sources import standard_library
    from orsched.prediction import make_corpus

    if source == "chat":
        return make_corpus("chat", ROWS, SEED)
    data = standard_library()[source]
    kept = np.sort(np.random.default_rng(SEED).permutation(len(data))[:ROWS])
    return data.rows(kept)


def _tokens(fitted: ProxyPredictor, test: LabelledPrompts) -> NDArray[np.int64]:
    """Return the predicted tokens: of classes the likeliest one's, which many prompts share."""
    if fitted.targets.head not in ("classes", "binary"):
        return fitted.predict(test.prompts).tokens()
    likeliest = fitted.outputs(test.prompts).argmax(axis=1)
    ends = np.concatenate(([1.0], fitted.targets.edges, [fitted.targets.longest]))
    return np.rint(np.sqrt(ends[:-1] * ends[1:]))[likeliest].astype(np.int64)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, and write what was predicted, one line a held-out row."""
    parser = argparse.ArgumentParser(prog="ssjf_heads", description=__doc__.splitlines()[0])
    parser.add_argument("--source", nargs="*", choices=SOURCES, default=SOURCES)
    parser.add_argument("--out", type=Path, default=KEPT, metavar="FILE")
    given = parser.parse_args(arguments)
    found = {source: train_all(source) for source in given.source}
    with given.out.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("source", *next(iter(found.values()))))
        for source, told in found.items():
            rows = np.column_stack(list(told.values())).tolist()
            out.writerows((source, *row) for row in rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
