"""Predicted output lengths: what a predictor would have said of each request.

A predictor is named by a text such as ``classes`` or ``noise:sigma=0.3``. What it draws comes from
the stream of its name; row r's prediction depends on the seed, on r and on the lengths only. How
often a classifier confuses lengths is counted from the predictions of Qiu et al. (arXiv
2404.08509): see data/README.md.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import is_number, printed
from orsched.data.instance import require_instance
from orsched.instances.streams import read_spec, stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.requests import Requests


BORDERS = {3: (50, 99), 5: (25, 50, 75, 99)}
"""Percentiles of the true length at which the classes end, by the number of classes.

The published predictions do not say where their classes end; of the usual percentiles these give
the highest accuracy on them, 0.599 with 5 classes and 0.806 with 3.
"""


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each class was predicted for true lengths in each bin of about one percentile.

    ``up_to_tokens`` are the longest lengths of the bins, rising; the last bin has all longer ones
    as well. ``counts`` has a row a bin, a column a predicted class; ``borders`` are the longest
    lengths of each class but the last.
    """

    up_to_tokens: IntColumn
    counts: IntColumn
    borders: tuple[int, ...]

    def bins(self, tokens: IntColumn) -> IntColumn:
        """Return the bin of each length."""
        return np.minimum(np.searchsorted(self.up_to_tokens, tokens), len(self.up_to_tokens) - 1)

    def bins_of_ranks(self, ranks: NDArray[np.float64]) -> IntColumn:
        """Return the bin of each rank from 0 to 1: bins fill the ranks as their counts do."""
        ends = np.cumsum(self.counts.sum(axis=1)) / self.counts.sum()
        return np.minimum(np.searchsorted(ends, ranks, side="left"), len(ends) - 1)

    def draw(self, bins: IntColumn, uniform: NDArray[np.float64]) -> IntColumn:
        """Return a predicted class for each bin, by one uniform number in [0, 1) each."""
        ends = np.cumsum(self.counts, axis=1)
        reached = uniform * ends[bins, -1]
        drawn: IntColumn = (ends[bins] <= reached[:, None]).sum(axis=1)
        return drawn

    def medians(self) -> tuple[int, ...]:
        """Return the median true length where each class was predicted (that of its bin)."""
        return tuple(int(self.up_to_tokens[row]) for row in self._median_bins())

    def median_ranks(self) -> tuple[float, ...]:
        """Return the rank, from 0 to 1, of the bin of each class's median."""
        ends = np.cumsum(self.counts.sum(axis=1)) / self.counts.sum()
        return tuple(float(ends[row]) for row in self._median_bins())

    def _median_bins(self) -> list[int]:
        sums = np.cumsum(self.counts, axis=0)
        return [int(np.argmax(2 * column >= column[-1])) for column in sums.T]

    def matrix(self) -> IntColumn:
        """Return the confusion matrix: true class by row, predicted class by column."""
        true = np.searchsorted(self.borders, self.up_to_tokens)
        matrix = np.zeros((len(self.borders) + 1,) * 2, np.int64)
        np.add.at(matrix, true, self.counts)
        return matrix

    @property
    def accuracy(self) -> float:
        """The share of lengths whose own class was predicted."""
        matrix = self.matrix()
        return int(np.trace(matrix)) / int(matrix.sum())


@cache
def load_confusion(classes: int = 5) -> Confusion:
    """Return the shipped counts for 3 or 5 classes; raises ``InputError`` for another number."""
    if classes not in BORDERS:
        raise InputError(
            f"no counts are known for {classes!r} classes", field="classes", remedy="3 or 5"
        )
    text = files("orsched.instances").joinpath("data", "output_length_confusion.csv").read_text()
    head, *lines = text.splitlines()
    table = np.array([line.split(",") for line in lines], dtype=np.int64)
    prefix = {3: "three_", 5: "five_"}[classes]
    chosen = [place for place, name in enumerate(head.split(",")) if name.startswith(prefix)]
    counts = table[:, chosen]
    counts.setflags(write=False)
    shares = np.cumsum(counts.sum(axis=1)) * 100
    total = int(counts.sum())
    places = [int(np.argmax(shares >= percent * total)) for percent in BORDERS[classes]]
    return Confusion(table[:, 0], counts, tuple(int(table[place, 0]) for place in places))


class Predictor(ABC):
    """A law of predictions, given the truth; ``law`` is its name."""

    law: ClassVar[str]

    @abstractmethod
    def tokens(self, output_tokens: IntColumn, seed: int) -> NDArray[np.float64] | IntColumn:
        """Return a prediction for each true length, before it is rounded and cut."""

    def of(self, requests: Requests, seed: int) -> NDArray[np.float64] | IntColumn:
        """Return a prediction for each request; most laws look at the true lengths alone."""
        return self.tokens(requests.output_tokens, seed)


@dataclass(frozen=True)
class Oracle(Predictor):
    """The truth."""

    law = "oracle"

    def tokens(self, output_tokens: IntColumn, seed: int) -> IntColumn:
        """Return the true lengths."""
        return output_tokens


@dataclass(frozen=True)
class Noise(Predictor):
    """The truth with a log-normal error: ``true * exp(N(0, sigma^2))``."""

    law = "noise"
    sigma: float

    def __post_init__(self) -> None:
        if not is_number(self.sigma) or not abs(self.sigma) <= sys.float_info.max:
            raise InputError(
                f"{printed(self.sigma)} is not a finite number", field="sigma", remedy="e.g. 0.3"
            )
        if self.sigma < 0:
            raise InputError(
                f"{self.sigma} is negative", field="sigma", remedy="0 means exact predictions"
            )

    def tokens(self, output_tokens: IntColumn, seed: int) -> NDArray[np.float64]:
        """Multiply each length by its error."""
        error = stream("predictions", seed).standard_normal(len(output_tokens))
        with np.errstate(over="ignore"):
            return output_tokens.astype(np.float64) * np.exp(self.sigma * error)


@dataclass(frozen=True)
class Classes(Predictor):
    """A length class by the measured confusion; its median length is the prediction.

    The classifier of Qiu et al. with 3 or 5 classes, as it is: a request of 300 tokens is
    confused as their requests of 300 tokens were, and the medians are theirs.
    """

    law = "classes"
    classes: int = 5

    def __post_init__(self) -> None:
        load_confusion(self.classes)

    def tokens(self, output_tokens: IntColumn, seed: int) -> IntColumn:
        """Draw classes and return their medians."""
        confusion = load_confusion(self.classes)
        uniform = stream("predictions/classes", seed).random(len(output_tokens))
        drawn = confusion.draw(confusion.bins(output_tokens), uniform)
        return np.array(confusion.medians(), np.int64)[drawn]


@dataclass(frozen=True)
class Percentiles(Predictor):
    """The same confusion by rank: as if the classifier had been trained on the instance's lengths.

    The longest hundredth of the instance is confused as their longest hundredth was, and so on;
    a class stands for the quantile of the instance's lengths at which its median was. Equal lengths
    have the mean of their ranks.
    """

    law = "percentiles"
    classes: int = 5

    def __post_init__(self) -> None:
        load_confusion(self.classes)

    def tokens(self, output_tokens: IntColumn, seed: int) -> IntColumn:
        """Draw classes and return the quantiles that they stand for."""
        n = len(output_tokens)
        if n == 0:
            return output_tokens
        confusion = load_confusion(self.classes)
        ordered = np.sort(output_tokens)
        below = np.searchsorted(ordered, output_tokens, side="left")
        up_to = np.searchsorted(ordered, output_tokens, side="right")
        uniform = stream("predictions/percentiles", seed).random(n)
        drawn = confusion.draw(confusion.bins_of_ranks((below + up_to) / (2 * n)), uniform)
        places = [min(n - 1, int(rank * n)) for rank in confusion.median_ranks()]
        return ordered[places][drawn]


PROMPT_CLASSES = 20
"""Most classes of prompt lengths, with equally many requests each."""

REQUESTS_A_CLASS = 10
"""Fewest requests that a class of prompt lengths is learned from."""


@dataclass(frozen=True)
class PromptLength(Predictor):
    """The median output of other requests with prompts of about that length.

    The requests are dealt into two halves, and each is predicted from the other, so that no request
    tells its own length.
    """

    law = "prompt_length"

    def tokens(self, output_tokens: IntColumn, seed: int) -> NDArray[np.float64]:
        """Return the median of the other half: without prompts nothing else is known."""
        return self._learned(np.zeros(len(output_tokens), np.int64), output_tokens, seed)

    def of(self, requests: Requests, seed: int) -> NDArray[np.float64]:
        """Learn from each half by classes of its prompt lengths, and predict the other."""
        return self._learned(requests.prompt_tokens, requests.output_tokens, seed)

    def _learned(self, prompts: IntColumn, outputs: IntColumn, seed: int) -> NDArray[np.float64]:
        order = stream("predictions/prompt_length", seed).permutation(len(outputs))
        halves = order[::2], order[1::2]
        found = np.ones(len(outputs))
        for seen, asked in (halves, halves[::-1]):
            if len(seen) and len(asked):
                found[asked] = _class_medians(prompts[seen], outputs[seen], prompts[asked])
        return found


def _class_medians(prompts: IntColumn, outputs: IntColumn, asked: IntColumn) -> NDArray[np.float64]:
    """Return the median output of the class that each asked prompt length falls into."""
    classes = max(1, min(PROMPT_CLASSES, len(prompts) // REQUESTS_A_CLASS))
    edges = np.unique(np.quantile(prompts, np.arange(1, classes) / classes))
    place = np.searchsorted(edges, prompts, side="left")
    every = float(np.median(outputs))
    medians = [
        float(np.median(outputs[place == each])) if (place == each).any() else every
        for each in range(len(edges) + 1)
    ]
    return np.array(medians)[np.searchsorted(edges, asked, side="left")]


PREDICTORS: dict[str, type[Predictor]] = {
    kind.law: kind for kind in (Oracle, Noise, Classes, Percentiles, PromptLength)
}
"""The predictors by name."""


def read_predictor(spec: str | Mapping[str, Any] | Predictor) -> Predictor:
    """Return the predictor that a specification names; ``InputError`` says what is wrong with it.

    ``spec`` is a text such as ``classes`` or ``noise:sigma=0.3``, or a mapping with the key ``law``
    beside the parameters, or a predictor itself.
    """
    predictor: Predictor = read_spec(
        spec, Predictor, PREDICTORS, field="predictor", what="predictor", example="classes"
    )
    return predictor


def predict(
    instance: Instance, predictor: str | Mapping[str, Any] | Predictor = "classes", seed: int = 0
) -> Instance:
    """Return the instance with predicted output lengths.

    They are whole tokens from 1 to the instance's output limit. What a method may know by them is
    still called ``predicted``, whatever the predictor. Distributions that the instance held are
    gone: these are other predictions. Raises ``InputError`` if the predictor or the seed is wrong.

    Args:
        instance: whose requests they are.
        predictor: what ``read_predictor`` takes: ``oracle``, ``noise:sigma=S``, ``classes``,
            ``percentiles`` (both with 5 classes, or ``classes=3``; Qiu et al., arXiv 2404.08509)
            or ``prompt_length``.
        seed: seed of the random stream.
    """
    require_instance(instance)
    law = read_predictor(predictor)
    number = whole_number(seed, "seed", remedy="give a whole number of at least 0")
    req = instance.requests
    predicted = as_tokens(law.of(req, number), instance.output_limit_tokens)
    return instance.replace(requests=req.replace(predicted_tokens=predicted))


def as_tokens(values: NDArray[np.float64] | IntColumn, limit: int) -> IntColumn:
    """Return predictions as whole numbers from 1 to a limit."""
    return np.clip(np.rint(values), 1, limit).astype(np.int64)


def noisy_tokens(output_tokens: IntColumn, sigma: float, seed: int, limit: int) -> IntColumn:
    """Return ``clip(round(true * exp(N(0, sigma^2))), 1, limit)``; sigma 0 is the truth, cut."""
    return as_tokens(Noise(sigma).tokens(output_tokens, seed), limit)
