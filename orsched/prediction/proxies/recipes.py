"""What is trained and how: the published recipes of SSJF and MICO, and of a pairwise ranker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.near_names import known_names

REGRESSION = ("regression_l1", "regression_mse")
ORDINAL = ("ordinal_l1", "ordinal_mse")
SSJF_HEADS = (*REGRESSION, *ORDINAL, "classes", "binary")
"""The variants of SSJF's head (arXiv 2404.08509, Table 2)."""

HEADS = (*SSJF_HEADS, "buckets", "ranks")


@dataclass(frozen=True)
class Phase:
    """A part of a training.

    Attributes:
        epochs: passes over the rows, at most.
        rate: of AdamW at the start; it falls linearly to 0 over the phase.
        frozen: whether the encoder stays as it is, and the head alone is trained.
    """

    epochs: int
    rate: float
    frozen: bool = False


@dataclass(frozen=True)
class Recipe:
    """How a proxy model is trained.

    Attributes:
        kind: its name.
        encoder: ``bert`` or ``distilbert``.
        head: one of ``HEADS``.
        phases: one after the other.
        batch: rows a step.
        most_input: tokens read of a prompt, its last, with the first and last mark.
        patience: a phase ends after so many epochs without a better loss on held-out rows.
        below: rows of 2 to ``below - 1`` tokens are trained on; None: all.
    """

    kind: str
    encoder: str
    head: str
    phases: tuple[Phase, ...]
    batch: int
    most_input: int = 512
    patience: int = 2
    below: int | None = None


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
    """Return a recipe with another head of SSJF or other numbers.

    Args:
        kind: one of ``RECIPES``.
        head: one of ``SSJF_HEADS`` for ``bert_ssjf``; None: regression with L1.
        changes: fields of ``Recipe`` to replace.

    Raises:
        InputError: an unknown kind or head, or a number outside its range.
    """
    if kind not in RECIPES:
        remedy = known_names(str(kind), list(RECIPES), "one of: ")
        raise InputError(f"{kind!r:.60} is no proxy model", field="kind", remedy=remedy)
    found = RECIPES[kind]
    if head is not None:
        allowed = SSJF_HEADS if kind == "bert_ssjf" else (found.head,)
        if head not in allowed:
            remedy = known_names(str(head), list(allowed), "one of: ")
            raise InputError(f"{head!r:.60} is no head of {kind}", field="head", remedy=remedy)
        found = replace(found, head=head)
    found = replace(found, **{name: value for name, value in changes.items() if value is not None})
    for name, least, most in (
        ("batch", 1, 4096), ("most_input", 3, 4096), ("patience", 1, 1000),
    ):  # fmt: skip
        whole_number(getattr(found, name), name, minimum=least, maximum=most)
    if found.below is not None:
        whole_number(found.below, "below", minimum=3)
    return found
