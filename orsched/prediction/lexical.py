"""The default predictor, boosted quantiles on lexical features, and one that learns in service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from orsched.common.columns import int_column
from orsched.common.errors import InputError
from orsched.common.scalars import require_number
from orsched.prediction.baselines import one_a_level
from orsched.prediction.data import as_prompts
from orsched.prediction.distribution import Tails, fit_tails, tails_from
from orsched.prediction.features import FEATURES, feature_rows
from orsched.prediction.predictor import (
    LEVELS,
    LengthPredictor,
    log_lengths,
    read_common,
    required,
    shifts,
)
from orsched.prediction.trees import Trees, trees_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from orsched.prediction.data import LabelledPrompts, Prompt

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
        from orsched.prediction.trees import fit_quantiles

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


@dataclass(eq=False)
class OnlinePredictor(LengthPredictor):
    """Another predictor, each of whose quantiles is moved by what was observed.

    After a reply whose length was at most the quantile of level p, its logarithm falls by
    ``rate * (1 - p)``, else it rises by ``rate * p``: the long-run share of replies below the
    quantile becomes p for any sequence, drift included (quantile tracking; Angelopoulos, Candes
    and Tibshirani, NeurIPS 2023, Prop. 1: where errors of the base are at most b in the logarithm,
    the share of T replies is off by at most (b + rate) / (rate T)).

    Attributes:
        base: the predictor beneath.
        rate: how far one reply moves a quantile, in the logarithm of the length.
        shift: (k,), what is added to the base's logarithms now.
    """

    kind = "online"
    base: LengthPredictor
    rate: float = 0.02
    shift: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if isinstance(self.base, OnlinePredictor):
            raise InputError("is online already", field="base", remedy="wrap its base")
        if not isinstance(self.base, LengthPredictor):
            raise InputError("is not a predictor", field="base", remedy="see load_predictor")
        require_number(self.rate, "rate", 0.0, 10.0, above=True)
        self.levels, self.longest = self.base.levels, self.base.longest
        self.tails = self.base.tails
        self.shift = self.shift.copy() if len(self.shift) else np.zeros(len(self.levels))

    @classmethod
    def fit(
        cls, train: LabelledPrompts, calibrate: LabelledPrompts, **options: Any
    ) -> OnlinePredictor:
        """Fit the default predictor as base; ``rate`` is an option of this one."""
        rate = options.pop("rate", 0.02)
        return cls(LexicalPredictor.fit(train, calibrate, **options), rate)

    def log_quantiles(self, prompts: Sequence[Prompt]) -> Floats:
        """Return the base's logarithms, moved."""
        return self.base.log_quantiles(prompts) + self.shift

    def observe(
        self, prompts: Sequence[Prompt | str] | Prompt | str, output_tokens: ArrayLike
    ) -> None:
        """Take note of the true lengths of replies, in the order in which they ended.

        Raises ``InputError`` unless there is a length of at least 1 for each prompt.
        """
        asked = as_prompts(prompts)
        lengths = int_column(
            np.atleast_1d(output_tokens), "output_tokens", minimum=1, length=len(asked)
        )
        base = self.base.log_quantiles(asked)
        for predicted, truth in zip(base, np.log(lengths), strict=True):
            covered = truth <= predicted + self.shift
            self.shift = self.shift + self.rate * (self.levels - covered)
        most = float(lengths.max(initial=1))
        self.longest = max(self.longest, most)

    def document(self) -> dict[str, Any]:
        """Return what is written into a file."""
        base = {"kind": self.base.kind, **self.base.common(), **self.base.document()}
        return {"rate": self.rate, "shift": self.shift.tolist(), "base": base}

    @classmethod
    def from_document(cls, values: dict[str, Any]) -> OnlinePredictor:
        """Return the predictor of a document."""
        from orsched.prediction.predictor_file import predictor_from

        levels, longest = read_common(values)
        base = predictor_from(required(values, "base"), nested=True)
        if not np.array_equal(base.levels, levels):
            raise InputError("are not those of its base", field="levels", remedy="train again")
        rate = require_number(required(values, "rate"), "rate", 0.0, 10.0, above=True)
        found = cls(base, rate, one_a_level(values, "shift", levels))
        found.longest = longest
        return found
