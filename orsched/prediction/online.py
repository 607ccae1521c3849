"""A predictor that recalibrates itself as true lengths come in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import int_column
from orsched.common.errors import InputError
from orsched.common.scalars import require_number
from orsched.prediction.baselines import one_a_level
from orsched.prediction.predictor import LengthPredictor, read_common, required
from orsched.prediction.prompt import as_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from orsched.prediction.data import LabelledPrompts
    from orsched.prediction.prompt import Prompt

    Floats = NDArray[np.float64]


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
            raise InputError("is no predictor", field="base", remedy="see load_predictor")
        require_number(self.rate, "rate", 0.0, 10.0, above=True)
        self.levels, self.longest = self.base.levels, self.base.longest
        self.tails = self.base.tails
        self.shift = self.shift.copy() if len(self.shift) else np.zeros(len(self.levels))

    @classmethod
    def fit(
        cls, train: LabelledPrompts, calibrate: LabelledPrompts, **options: Any
    ) -> OnlinePredictor:
        """Fit the default predictor as base; ``rate`` is an option of this one."""
        from orsched.prediction.lexical import LexicalPredictor

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
