"""The default predictor: boosted quantiles on lexical features, within a decision's budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from orsched.common.errors import InputError
from orsched.prediction.baselines import one_a_level
from orsched.prediction.features import FEATURES, feature_rows
from orsched.prediction.predictor import (
    LEVELS,
    LengthPredictor,
    log_lengths,
    read_common,
    required,
    shifts,
)
from orsched.prediction.tails import Tails, fit_tails, tails_from
from orsched.prediction.trees import Trees, trees_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.prediction.data import LabelledPrompts
    from orsched.prediction.prompt import Prompt

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LexicalPredictor(LengthPredictor):
    """Gradient-boosted quantiles of the logarithm of the length, on lexical features.

    Attributes:
        levels: (k,).
        trees: one sum a level, on the columns of ``features.FEATURES``.
        shift: (k,), from the calibration.
        longest: tokens.
        tails: the law beyond the outermost levels, from the calibration; None: straight lines.
    """

    kind = "lexical"
    levels: Floats
    trees: Trees
    shift: Floats
    longest: float
    tails: Tails | None = None

    @classmethod
    def fit(
        cls, train: LabelledPrompts, calibrate: LabelledPrompts, **options: Any
    ) -> LexicalPredictor:
        """Fit on the rows of ``train``, shift each level so that those of ``calibrate`` fit.

        Options: ``seed`` (0), ``trees`` a level (40), ``tails`` (None, or ``log-t``), ``progress``
        (called with what is done).
        Raises ``MissingDependencyError`` without scikit-learn.
        """
        from orsched.prediction.boosting import fit_quantiles

        say = options.get("progress")
        lengths, levels = log_lengths(train), np.array(LEVELS)
        rows = feature_rows(train.prompts, say)
        trees = fit_quantiles(
            rows,
            lengths,
            levels,
            trees=options.get("trees", 40),
            seed=options.get("seed", 0),
            progress=say,
        )
        longest = float(max(train.output_tokens.max(), calibrate.output_tokens.max(initial=1)))
        plain = cls(levels, trees, np.zeros(len(levels)), longest)
        truth = log_lengths(calibrate, "calibration")
        logs = plain.log_quantiles(calibrate.prompts)
        shift = shifts(logs, truth, levels)
        tails = fit_tails(logs + shift, truth, levels) if options.get("tails") else None
        return cls(levels, trees, shift, longest, tails)

    def log_quantiles(self, prompts: Sequence[Prompt]) -> Floats:
        """Return the sums of the trees for each prompt."""
        return self.trees(feature_rows(prompts)) + self.shift

    def document(self) -> dict[str, Any]:
        """Return what is written into a file."""
        beyond = {} if self.tails is None else {"tails": self.tails.document()}
        return {
            "features": list(FEATURES),
            "shift": self.shift.tolist(),
            "trees": self.trees.document(),
            **beyond,
        }

    @classmethod
    def from_document(cls, values: dict[str, Any]) -> Self:
        """Return the predictor of a document."""
        levels, longest = read_common(values)
        if required(values, "features") != list(FEATURES):
            raise InputError(
                "are not the features of this version", field="features", remedy="train again"
            )
        trees = trees_from(required(values, "trees"), "trees")
        if trees.features != len(FEATURES) or len(trees.start) != len(levels):
            raise InputError(
                "do not have one sum a level on these features", field="trees", remedy="train again"
            )
        shift = one_a_level(values, "shift", levels)
        return cls(levels, trees, shift, longest, tails_from(values.get("tails")))
