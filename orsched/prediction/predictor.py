"""What every predictor of output lengths is, and those that read no text.

A predictor is fitted, asked, written down and read back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from orsched.common.errors import InputError
from orsched.prediction.data import as_prompts
from orsched.prediction.distribution import LengthDistribution, require_levels
from orsched.prediction.trees import float_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from orsched.prediction.data import LabelledPrompts, Prompt
    from orsched.prediction.distribution import Tails

    Floats = NDArray[np.float64]
    Say = Callable[[str], None]


LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""The quantiles that predictors of this package are fitted for."""


class LengthPredictor(ABC):
    """A fitted predictor; ``fit`` makes one, and it does not change afterwards.

    Attributes:
        kind: its name in files and on the command line.
        levels: (k,), probabilities of the quantiles that it predicts.
        longest: the longest reply that it was fitted on, in tokens.
        tails: what is beyond the outermost quantiles, None for straight lines.
    """

    kind: ClassVar[str]
    levels: Floats
    longest: float
    tails: Tails | None = None

    @classmethod
    @abstractmethod
    def fit(cls, train: LabelledPrompts, calibrate: LabelledPrompts, **options: Any) -> Self:
        """Fit a predictor on labelled prompts, calibrated on others that were held out."""

    @abstractmethod
    def log_quantiles(self, prompts: Sequence[Prompt]) -> Floats:
        """Return logarithms of the quantiles, in any order; shape (n, k)."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Return what is written into a file beside ``common``."""

    @classmethod
    @abstractmethod
    def from_document(cls, values: dict[str, Any]) -> Self:
        """Return the predictor of a document; raises ``InputError`` that names the field."""

    def predict(self, prompts: Sequence[Prompt | str] | Prompt | str) -> LengthDistribution:
        """Return the distribution of the length of each reply; raises ``InputError``."""
        logs = self.log_quantiles(as_prompts(prompts))
        # Quantiles that are fitted one by one may cross; in order they are no worse in pinball
        # loss (Chernozhukov, Fernandez-Val and Galichon, Econometrica 78, 2010).
        logs.sort(axis=1)
        # Lengths are whole: one that was seen must not come back as a little less than it was.
        values: Floats = np.exp(np.clip(logs, 0.0, LOG_MOST)).round(9)
        return LengthDistribution(self.levels, values, self.longest, self.tails)

    def common(self) -> dict[str, Any]:
        """Return what all predictors write into a file."""
        return {"levels": self.levels.tolist(), "longest": self.longest}


LOG_MOST = 40.0
"""Largest logarithm of a length that a prediction may have: no file can make one overflow."""


def read_common(values: dict[str, Any]) -> tuple[Floats, float]:
    """Return levels and longest of a document; raises ``InputError`` that names the field."""
    levels = float_column(required(values, "levels"), "levels")
    require_levels(levels)
    longest = required(values, "longest")
    if (
        isinstance(longest, bool)
        or not isinstance(longest, (int, float))
        or not 1 <= longest < 1e15
    ):
        raise InputError("must be a number of tokens", field="longest", remedy="train again")
    return levels, float(longest)


def required(values: dict[str, Any], name: str) -> Any:
    """Return a field of a document; raises ``InputError`` where it is missing."""
    if name not in values:
        raise InputError("is missing", field=name, remedy="train again, or copy the file again")
    return values[name]


def log_lengths(data: LabelledPrompts, what: str = "training") -> Floats:
    """Return logarithms of the lengths; raises ``InputError`` where there are no rows."""
    if len(data) == 0:
        raise InputError(
            f"no rows for {what}",
            field="output_tokens",
            remedy="give more conversations, 10 at least",
        )
    return np.log(data.output_tokens.astype(np.float64))


def shifts(predicted: Floats, truth: Floats, levels: Floats) -> Floats:
    """Return what to add to each level's logarithms so that they cover their share of the truth.

    The conformal quantile of the residuals of each level (Romano, Patterson and Candes 2019, one
    side at a time): of n held-out rows the ceil((n + 1) level)-th smallest, the last if there are
    too few.
    """
    n = len(truth)
    residuals = np.sort(truth[:, None] - predicted, axis=0)
    ranks = np.clip(np.ceil((n + 1) * levels).astype(np.int64), 1, n) - 1
    return np.asarray(residuals[ranks, np.arange(len(levels))], np.float64)


BINS = 20  # classes of prompt lengths, with equally many rows each


@dataclass(frozen=True, eq=False)
class ConstantPredictor(LengthPredictor):
    """The same distribution for every request: the lengths that were seen.

    Attributes:
        levels: (k,).
        logs: (k,), logarithms of the quantiles.
        longest: tokens.
    """

    kind = "constant"
    levels: Floats
    logs: Floats
    longest: float

    @classmethod
    def fit(
        cls, train: LabelledPrompts, calibrate: LabelledPrompts, **options: Any
    ) -> ConstantPredictor:
        """Fit on all rows; there is nothing to calibrate."""
        lengths = np.concatenate(
            [log_lengths(train), np.log(np.maximum(calibrate.output_tokens, 1))]
        )
        levels = np.array(LEVELS)
        return cls(levels, np.quantile(lengths, levels), float(np.rint(np.exp(lengths.max()))))

    def log_quantiles(self, prompts: Sequence[Prompt]) -> Floats:
        """Return the same row for each prompt."""
        return np.tile(self.logs, (len(prompts), 1))

    def document(self) -> dict[str, Any]:
        """Return what is written into a file."""
        return {"logs": self.logs.tolist()}

    @classmethod
    def from_document(cls, values: dict[str, Any]) -> Self:
        """Return the predictor of a document."""
        levels, longest = read_common(values)
        return cls(levels, one_a_level(values, "logs", levels), longest)


@dataclass(frozen=True, eq=False)
class PromptLengthPredictor(LengthPredictor):
    """The distribution of the replies to prompts of about that length, in characters.

    Attributes:
        levels: (k,).
        edges: (b - 1,), where the classes of log(1 + characters) end, increasing.
        logs: (b, k), logarithms of the quantiles in each class.
        shift: (k,), from the calibration.
        longest: tokens.
    """

    kind = "prompt_length"
    levels: Floats
    edges: Floats
    logs: Floats
    shift: Floats
    longest: float

    @classmethod
    def fit(
        cls, train: LabelledPrompts, calibrate: LabelledPrompts, **options: Any
    ) -> PromptLengthPredictor:
        """Fit quantiles in classes of prompt lengths; shift them so that held-out rows fit."""
        lengths, levels = log_lengths(train), np.array(LEVELS)
        sizes = _sizes(train.prompts)
        wanted = min(BINS, max(1, len(train) // 50))
        edges = np.unique(np.quantile(sizes, np.arange(1, wanted) / wanted))
        place = np.searchsorted(edges, sizes, side="left")
        rows = [
            np.quantile(lengths[place == b] if (place == b).any() else lengths, levels)
            for b in range(len(edges) + 1)
        ]
        longest = float(max(train.output_tokens.max(), calibrate.output_tokens.max(initial=1)))
        plain = cls(levels, edges, np.array(rows), np.zeros(len(levels)), longest)
        truth = log_lengths(calibrate, "calibration")
        shift = shifts(plain.log_quantiles(calibrate.prompts), truth, levels)
        return cls(levels, edges, plain.logs, shift, longest)

    def log_quantiles(self, prompts: Sequence[Prompt]) -> Floats:
        """Return the quantiles of each prompt's class."""
        place = np.searchsorted(self.edges, _sizes(prompts), side="left")
        return np.asarray(self.logs[place] + self.shift, np.float64)

    def document(self) -> dict[str, Any]:
        """Return what is written into a file."""
        return {name: getattr(self, name).tolist() for name in ("edges", "logs", "shift")}

    @classmethod
    def from_document(cls, values: dict[str, Any]) -> Self:
        """Return the predictor of a document."""
        levels, longest = read_common(values)
        edges = float_column(required(values, "edges"), "edges")
        if (np.diff(edges) <= 0).any():
            raise InputError("must increase", field="edges", remedy="train again")
        table = required(values, "logs")
        if not isinstance(table, list) or len(table) != len(edges) + 1:
            raise InputError("one row a class of lengths", field="logs", remedy="train again")
        rows = [one_a_level({"logs": row}, "logs", levels) for row in table]
        shift = one_a_level(values, "shift", levels)
        return cls(levels, edges, np.array(rows), shift, longest)


def _sizes(prompts: Sequence[Prompt]) -> Floats:
    return np.log1p([float(prompt.characters()) for prompt in prompts])


def one_a_level(values: dict[str, Any], name: str, levels: Floats) -> Floats:
    """Return a column with one number a level; raises ``InputError`` that names the field."""
    found = float_column(required(values, name), name)
    if len(found) != len(levels):
        raise InputError(
            f"{len(found)} values for {len(levels)} levels", field=name, remedy="train again"
        )
    return found
