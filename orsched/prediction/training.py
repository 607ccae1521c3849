"""Training: data parted by conversation, a predictor fitted on one part, calibrated on another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.prediction.predictor_file import CLASSES, class_of_kind
from orsched.prediction.tails import LOG_T

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.prediction.data import LabelledPrompts
    from orsched.prediction.predictor import LengthPredictor

KINDS = tuple(CLASSES)
"""The kinds of predictors, the simplest first; ``lexical`` is the default."""

TAILED = ("lexical", "online")
"""The kinds that take ``tails``."""


def train(
    data: LabelledPrompts,
    kind: str = "lexical",
    *,
    seed: int = 0,
    trees: int = 40,
    tails: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> LengthPredictor:
    """Return a predictor fitted on 60 % of the conversations and calibrated on 20 %.

    The rest, ``data.part("test", seed)``, is not looked at.

    Args:
        data: prompts with the lengths of their replies.
        kind: one of ``KINDS``.
        seed: decides the parts and what the fit draws.
        trees: trees for each quantile, of the kinds that have any: 1 to 1,000.
        tails: ``log-t`` fits the law of lengths beyond the outermost quantiles on the rows that
            calibrate, for ``lexical`` and ``online``; None: straight lines.
        progress: called with a few words on what is being done.

    Raises:
        InputError: unknown kind or tails, too few rows for tails, or a part without rows.
        MissingDependencyError: scikit-learn is needed and not installed.
    """
    made = class_of_kind(kind)
    if not 1 <= trees <= 1000:
        raise InputError(f"{trees} trees", field="trees", remedy="1 to 1,000")
    if tails is not None:
        _require_tails(tails, kind)
    fit, held = data.part("train", seed), data.part("calibrate", seed)
    return made.fit(fit, held, seed=seed, trees=trees, tails=tails, progress=progress)


def _require_tails(tails: str, kind: str) -> None:
    if tails != LOG_T:
        raise InputError(f"{tails!r:.40} is no law of tails", field="tails", remedy=LOG_T)
    if kind not in TAILED:
        raise InputError(f"{kind} has none", field="tails", remedy=f"kinds: {', '.join(TAILED)}")
