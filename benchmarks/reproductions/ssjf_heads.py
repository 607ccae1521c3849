"""SSJF's heads, trained here: what each predicts for held-out prompts of two sources.

python -m benchmarks.reproductions.ssjf_heads [--source chat] [--out FILE]

The paper's text, LMSYS-Chat-1M, cannot be had here, nor BERT's weights. So a small encoder with
random weights (one layer of width 32) is trained by the paper's recipe at rates for random weights,
on the seeded corpus (``chat``: lengths by a law that is made to be learned) and on functions of
Python's standard library (``bodies``: real text, hard to learn). It takes a quarter of an hour on
two shared cores; ``ssjf_heads.csv`` beside this file keeps what was predicted, and
``ssjf_authors --heads`` schedules by it.
"""

from __future__ import annotations

import argparse
import csv
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.prediction.distribution import class_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.prediction import LabelledPrompts
    from orsched.prediction.proxies.proxy_file import ProxyPredictor

    Ints = NDArray[np.int64]

KEPT = Path(__file__).with_suffix(".csv")
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


class Predictions(NamedTuple):
    """Held-out rows of a source.

    Attributes:
        rounds: (n,), turn of the conversation, from 1.
        truth: (n,), tokens.
        told: by predictor (n,), tokens.
    """

    rounds: Ints
    truth: Ints
    told: dict[str, Ints]


def train_all(source: str, seed: int = SEED) -> Predictions:
    """Return what predictors trained on a source tell of its held-out conversations."""
    from orsched.prediction import train, train_proxy
    from orsched.prediction.proxies.network import Phase

    data = labelled(source)
    test = data.part("test", seed)
    told = {kind: train(data, kind, seed=seed).predict(test.prompts).tokens() for kind in SIMPLER}
    phases = (Phase(4, 2e-3), Phase(2, 2e-3, frozen=True))
    for kind, head in PROXIES:
        name = head if kind == "bert_ssjf" else None
        fitted = train_proxy(
            data, kind, head=name, model=MODEL, phases=phases, seed=seed, device="cpu"
        )
        told[head] = _tokens(fitted, test)
        print(f"{source}: {head} trained", flush=True)
    rounds = np.array([1 + len(prompt.asked) for prompt in test.prompts], np.int64)
    return Predictions(rounds, test.output_tokens, told)


def labelled(source: str) -> LabelledPrompts:
    """Return the prompts of a source with the lengths of their replies."""
    from benchmarks.text_sources import standard_library
    from orsched.prediction import make_corpus

    if source == "chat":
        return make_corpus("chat", ROWS, SEED)
    data = standard_library()[source]
    kept = np.sort(np.random.default_rng(SEED).permutation(len(data))[:ROWS])
    return data.rows(kept)


def _tokens(fitted: ProxyPredictor, test: LabelledPrompts) -> Ints:
    """Return the predicted tokens: of classes the likeliest one's, which many prompts share."""
    if fitted.targets.head not in ("classes", "binary"):
        return fitted.predict(test.prompts).tokens()
    likeliest = fitted.outputs(test.prompts).argmax(axis=1)
    ends = np.concatenate(([1.0], fitted.targets.edges, [fitted.targets.longest]))
    return np.rint(np.sqrt(ends[:-1] * ends[1:]))[likeliest].astype(np.int64)


def save(found: dict[str, Predictions], path: Path) -> None:
    """Write predictions as CSV, one line a held-out row."""
    names = list(next(iter(found.values())).told)
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("source", "round", "output_tokens", *names))
        for source, each in found.items():
            columns = (each.rounds, each.truth, *(each.told[name] for name in names))
            out.writerows((source, *row) for row in np.column_stack(columns).tolist())


@cache
def kept(source: str, path: Path = KEPT) -> Predictions:
    """Return the predictions of a source that ``save`` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *lines = csv.reader(file)
    table = np.array([line[1:] for line in lines if line[0] == source], np.int64)
    told = {name: table[:, place] for place, name in enumerate(head[3:], start=2)}
    return Predictions(table[:, 0], table[:, 1], told)


def scored(truth: Ints, told: Ints, edges: Sequence[float]) -> tuple[float, float]:
    """Return accuracy and F1, weighted by class, in classes that end at the edges."""
    wanted, found = class_of(truth, edges), class_of(told, edges)
    total = 0.0
    for name in np.unique(wanted):
        hits = int(((wanted == name) & (found == name)).sum())
        named = int((wanted == name).sum() + (found == name).sum())
        total += 2 * hits / named * float((wanted == name).mean())
    return float((wanted == found).mean()), total


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, and write what was predicted."""
    parser = argparse.ArgumentParser(prog="ssjf_heads", description=__doc__.splitlines()[0])
    parser.add_argument("--source", nargs="*", choices=SOURCES, default=SOURCES)
    parser.add_argument("--out", type=Path, default=KEPT, metavar="FILE")
    given = parser.parse_args(arguments)
    save({source: train_all(source) for source in given.source}, given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
