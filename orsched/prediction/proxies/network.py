"""Recipes of SSJF and MICO: heads, their targets, and the encoder with one on its first token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.prediction.distribution import class_of
from orsched.prediction.evaluation import PERCENTILES
from orsched.prediction.proxies.encoders import encoder_width, new_encoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn

    Floats = NDArray[np.float64]


REGRESSION = ("regression_l1", "regression_mse")
ORDINAL = ("ordinal_l1", "ordinal_mse")
SSJF_HEADS = (*REGRESSION, *ORDINAL, "classes", "binary")
"""The variants of SSJF's head (arXiv 2404.08509, Table 2)."""

HEADS = (*SSJF_HEADS, "buckets", "ranks")


@dataclass(frozen=True)
class Phase:
    """A part of a training."""

    epochs: int  # passes over the rows, at most
    rate: float  # of AdamW at the start; it falls linearly to 0 over the phase
    frozen: bool = False  # whether the encoder stays as it is, and the head alone is trained


@dataclass(frozen=True)
class Recipe:
    """How a proxy model is trained."""

    kind: str  # its name
    encoder: str  # ``bert`` or ``distilbert``
    head: str  # one of ``HEADS``
    phases: tuple[Phase, ...]  # one after the other
    batch: int  # rows a step
    most_input: int = 512  # tokens read of a prompt, its last, with the first and last mark
    patience: int = 2  # a phase ends after so many epochs without a better held-out loss
    below: int | None = None  # rows of 2 to ``below - 1`` tokens are trained on; None: all


RECIPES = {
    "bert_ssjf": Recipe(
        "bert_ssjf", "bert", "regression_l1", (Phase(3, 1e-5), Phase(3, 1e-4, frozen=True)), 16
    ),
    "distilbert_mico": Recipe("distilbert_mico", "distilbert", "buckets", (Phase(3, 5e-5),), 32),
    "bert_ranker": Recipe(
        "bert_ranker", "bert", "ranks", (Phase(3, 1e-5), Phase(3, 1e-4, frozen=True)), 16
    ),
}
"""The papers' numbers; the ranker has SSJF's."""


def recipe_of(kind: str, head: str | None = None, **changes: Any) -> Recipe:
    """Return a recipe of ``RECIPES`` with another head of SSJF or other numbers.

    ``head``: of ``SSJF_HEADS`` for ``bert_ssjf``; None: regression with L1. ``changes`` replace
    fields of ``Recipe``. Raises ``InputError``: unknown kind or head, number out of range.
    """
    if kind not in RECIPES:
        remedy = known_names(str(kind), list(RECIPES), "one of: ")
        raise InputError(f"{kind!r:.60} is not a proxy model", field="kind", remedy=remedy)
    found = RECIPES[kind]
    if head is not None:
        allowed = SSJF_HEADS if kind == "bert_ssjf" else (found.head,)
        if head not in allowed:
            remedy = known_names(str(head), list(allowed), "one of: ")
            raise InputError(f"{head!r:.60} is not a head of {kind}", field="head", remedy=remedy)
        found = replace(found, head=head)
    found = replace(found, **{name: value for name, value in changes.items() if value is not None})
    for name, least, most in (
        ("batch", 1, 4096), ("most_input", 3, 4096), ("patience", 1, 1000),
    ):  # fmt: skip
        whole_number(getattr(found, name), name, minimum=least, maximum=most)
    if found.below is not None:
        whole_number(found.below, "below", minimum=3)
    return found


MICO_BUCKETS = 10


@dataclass(frozen=True, eq=False)
class Targets:
    """The scale of a head.

    ``middles`` in tokens: (c,), what stands for a class in ordinal regression; (1,), what one unit
    of a regression is; empty for the others.
    """

    head: str  # one of ``HEADS``
    edges: Floats  # (c - 1,) tokens where classes end, increasing; none for regression and ranks
    middles: Floats
    longest: float  # tokens

    def outputs(self) -> int:
        """Return how many numbers the head gives: one a class, else one."""
        return len(self.edges) + 1 if self.in_classes() else 1

    def in_classes(self) -> bool:
        """Return whether the head gives a probability to each class."""
        return self.head in ("classes", "binary", "buckets")

    def labels(self, lengths: IntColumn) -> Floats:
        """Return what the head is to give: the class, or a real number; shape (n,)."""
        if self.head in REGRESSION:
            return np.asarray(lengths / self.middles[0], np.float64)
        if self.head == "ranks":
            return lengths.astype(np.float64)
        return class_of(lengths, self.edges).astype(np.float64)

    def logs(self, outputs: Floats, levels: Floats) -> Floats:
        """Return logarithms of quantiles, before calibration; (n, k) from (n, outputs).

        Classes: inside a class the logarithm is linear in the probability. Real numbers: the same
        at all levels. Ranks: the score itself.
        """
        if self.in_classes():
            return self._quantiles(outputs, levels)
        values = outputs[:, 0]
        if self.head in REGRESSION:
            values = np.log(np.maximum(values * self.middles[0], 1.0))
        elif self.head in ORDINAL:
            places = np.arange(len(self.middles), dtype=np.float64)
            values = np.interp(values, places, np.log(self.middles))
        return np.repeat(values[:, None], len(levels), axis=1)

    def _quantiles(self, outputs: Floats, levels: Floats) -> Floats:
        shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        up_to = np.hstack([np.zeros((len(shares), 1)), np.cumsum(shares, axis=1)])
        top = max(self.longest, float(self.edges.max(initial=1.0)))
        ends = np.log(np.concatenate(([1.0], self.edges, [top])))
        return np.array([np.interp(levels, row, ends) for row in up_to]).reshape(-1, len(levels))


def targets_for(head: str, lengths: IntColumn) -> Targets:
    """Return the scale of a head for the lengths that are trained on.

    SSJF's five classes end at the percentiles 25, 50, 75 and 99, its two at the median; MICO's ten
    buckets are ``floor(length / (longest / 10))``. A regression's unit is the mean length, so that
    a head that starts near 0 is not thousands of steps away. Raises ``InputError`` where all
    lengths are in one class.
    """
    longest = float(lengths.max())
    nothing = np.zeros(0)
    if head in REGRESSION:
        return Targets(head, nothing, np.array([lengths.mean()]), longest)
    if head == "ranks":
        return Targets(head, nothing, nothing, longest)
    if head == "buckets":
        # Lengths are whole: the largest below each multiple of the width ends its bucket.
        edges = np.ceil(np.arange(1, MICO_BUCKETS) * longest / MICO_BUCKETS) - 1
    else:
        edges = np.percentile(lengths, (50,) if head == "binary" else PERCENTILES)
    edges = np.unique(edges[(edges >= 1) & (edges < longest)])
    if not len(edges):
        raise InputError(
            "all lengths are in one class", field="output_tokens", remedy="give other lengths"
        )
    place = class_of(lengths, edges)
    middles = nothing
    if head in ORDINAL:
        middles = np.array([np.median(_some(lengths, place == c)) for c in range(len(edges) + 1)])
    return Targets(head, edges.astype(np.float64), middles, longest)


def _some(lengths: IntColumn, wanted: NDArray[np.bool_]) -> IntColumn:
    return lengths[wanted] if wanted.any() else lengths


SSJF_WIDTH = 128


def new_network(config: Any, outputs: int, head: str) -> Any:
    """Return a network with parts ``encoder`` and ``head``, with random weights.

    SSJF: width to 128, 128 to 128, 128 to outputs, with ReLU between (its published code; without
    the 25 inputs that name the serving model, of which there is one here). MICO: DistilBERT's own,
    width to width, ReLU, dropout 0.2, to outputs.
    """
    from torch import nn

    width = encoder_width(config)
    if head == "buckets":
        layers = [nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, outputs)]
    else:
        layers = [
            nn.Linear(width, SSJF_WIDTH), nn.ReLU(), nn.Linear(SSJF_WIDTH, SSJF_WIDTH), nn.ReLU(),
            nn.Linear(SSJF_WIDTH, outputs),
        ]  # fmt: skip
    return nn.ModuleDict({"encoder": new_encoder(config), "head": nn.Sequential(*layers)})


def forward(network: Any, numbers: Any, mask: Any) -> Any:
    """Return the head's outputs for padded rows of tokens; (n, outputs)."""
    found = network["encoder"](input_ids=numbers, attention_mask=mask).last_hidden_state
    return network["head"](found[:, 0])


def sample_loss(head: str, outputs: Any, labels: Any, shares: Any, weights: Any = None) -> Any:
    """Return the mean loss of a batch in which some prompts have several samples.

    A row is a sample: a prompt's outputs stand once for each of its samples, whose ``shares`` add
    up to 1, so that each prompt counts as much as another. Ranks: pairs of different prompts count
    by the product of their shares; those of one prompt have one score and nothing to learn.
    """
    from torch.nn import functional

    if head in ("classes", "binary", "buckets"):
        each = functional.cross_entropy(outputs, labels.long(), weight=weights, reduction="none")
        if weights is not None:
            return (each * shares).sum() / (weights[labels.long()] * shares).sum()
        return (each * shares).sum() / shares.sum()
    values = outputs[:, 0]
    if head == "ranks":
        gaps = values[:, None] - values[None, :]
        counted = (labels[:, None] > labels[None, :]) * shares[:, None] * shares[None, :]
        return (functional.softplus(-gaps) * counted).sum() / counted.sum().clamp_min(1e-12)
    gaps = values - labels
    each = gaps.abs() if head.endswith("_l1") else gaps * gaps
    return (each * shares).sum() / shares.sum()


def loss_of(head: str, outputs: Any, labels: Any, weights: Any = None) -> Any:
    """Return the mean loss of a batch.

    Cross entropy for classes; L1 or the square for real numbers; for ranks the logistic loss of
    the differences of all pairs of the batch that differ in length (RankNet, Burges et al. 2005).
    """
    from torch.nn import functional

    if head in ("classes", "binary", "buckets"):
        return functional.cross_entropy(outputs, labels.long(), weight=weights)
    values = outputs[:, 0]
    if head == "ranks":
        longer = labels[:, None] > labels[None, :]
        gaps = (values[:, None] - values[None, :])[longer]
        return functional.softplus(-gaps).mean() if len(gaps) else values.sum() * 0.0
    if head.endswith("_l1"):
        return functional.l1_loss(values, labels)
    return functional.mse_loss(values, labels)
