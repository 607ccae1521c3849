"""Predictors that read no text: a constant, and the length of the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from orsched.common.errors import InputError
from orsched.prediction.predictor import (
    LEVELS,
    LengthPredictor,
    log_lengths,
    read_common,
    required,
    shifts,
)
from orsched.prediction.trees import float_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.prediction.data import LabelledPrompts, Prompt

    Floats = NDArray[np.float64]


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
