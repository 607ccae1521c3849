"""The default predictor: boosted quantiles on lexical features; and one that learns in service."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import log1p
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from orsched.common.columns import int_column
from orsched.common.errors import InputError
from orsched.common.scalars import require_number
from orsched.prediction.data import as_prompts
from orsched.prediction.distribution import Tails, fit_tails, tails_from
from orsched.prediction.predictor import (
    LEVELS,
    LengthPredictor,
    log_lengths,
    one_a_level,
    read_common,
    required,
    shifts,
)
from orsched.prediction.trees import Trees, trees_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from orsched.prediction.data import LabelledPrompts, Prompt

    Floats = NDArray[np.float64]


WINDOW = 250  # characters at each end of a message in which words and marks are looked for

COUNTED = 1000
"""Characters at each end in which blanks, lines and punctuation are counted; in longer messages
they are scaled up by the length. Long prompts must not take long."""

FEATURES = (
    "characters",
    "words",
    "lines",
    "letters_a_word",
    "digits",
    "capitals",
    "question_marks",
    "commas",
    "full_stops",
    "colons",
    "brackets",
    "not_ascii",
    "wide_script",
    "opening",
    "task",
    "task_brief",
    "task_long",
    "explains",
    "code_marks",
    "code_words",
    "list_marks",
    "numbers_named",
    "largest_number",
    "requested_tokens",
    "turn",
    "context_characters",
    "last_reply",
    "replies_mean",
)
"""Names of the features, in the order of the columns."""

_OPENINGS = {
    word.encode(): float(place)
    for place, words in enumerate(
        (
            "is are was were do does did can could will would should has have",
            "who when where which",
            "what",
            "how",
            "why",
            "please",
            "i my we",
            "the a this in there",
            "def class import from function",
        ),
        start=1,
    )
    for word in words.split()
}
"""First words by kind, numbered from short answers to long ones; anything else is 0."""

_TASKS = {
    word.encode(): float(place)
    for place, words in enumerate(
        (
            "classify label true false choose select identify",
            "name extract find state answer give",
            "translate convert rewrite correct edit fix paraphrase",
            "calculate compute solve evaluate",
            "summarize summarise shorten",
            "define describe compare",
            "list suggest recommend propose",
            "explain discuss analyze analyse argue",
            "generate create design plan",
            "implement code program debug refactor",
            "write compose tell draft",
        ),
        start=1,
    )
    for word in words.split()
}
"""Verbs of tasks by kind, numbered from short results to long ones; none is 0."""

_VERBS = frozenset(_TASKS)

_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_DIGITS = b"0123456789"


def _only(kept: bytes) -> bytes:
    """Return the table that turns all other bytes into blanks."""
    return bytes(byte if byte in kept else ord(" ") for byte in range(256))


# Tables of bytes find words and count marks in a fraction of a regular expression's time.
_WORDS_ONLY = _only(_LETTERS + b"'")
_PIECES_ONLY = _only(_LETTERS + _DIGITS)
_CAPITALS = _LETTERS.upper()
_CODE = b"{}();=<>[]_"
_MARKS = {
    "task_brief": "brief briefly short concise concisely only just single yes",
    "task_long": "detail details detailed essay story article report comprehensive long thorough "
    "thoroughly complete step depth tutorial chapter poem blog all",
    "explains": "explain why how reason because difference compare describe",
    "code_words": "python java javascript sql html css function code script class api regex def "
    "return bash program algorithm self import",
}
_BRIEF, _LONG, _EXPLAINS, _CODE_WORDS = (
    frozenset(text.encode().split()) for text in _MARKS.values()
)
_LIST = re.compile(r"\n\s*(?:[-*•]|\d+[.)])(?=\s)")
_NUMBER = re.compile(r"[0-9]+")
_WIDE = re.compile(r"[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NAMED = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "dozen": 12, "twenty": 20, "a": 1, "an": 1,
}  # fmt: skip
_UNITS = {
    "token": 1.0, "word": 1.3, "line": 12.0, "sentence": 20.0, "item": 15.0, "point": 20.0,
    "example": 30.0, "way": 40.0, "tip": 30.0, "step": 25.0, "idea": 25.0, "paragraph": 90.0,
    "verse": 40.0, "stanza": 40.0, "page": 450.0,
}  # fmt: skip
"""Tokens that a unit of requested length stands for, roughly."""

_UNIT_WORDS = frozenset(f"{unit}{end}".encode() for unit in _UNITS for end in ("", "s"))
_NUMBER_WORDS = frozenset(word.encode() for word in _NAMED)
_REQUESTED = re.compile(
    rf"\b(\d{{1,5}}|{'|'.join(_NAMED)})[ -](?:[a-z]+ )?({'|'.join(_UNITS)})s?\b"
)


def features_of(prompt: Prompt) -> list[float]:
    """Return the features of a prompt, in the order of ``FEATURES``."""
    text = prompt.text
    size = len(text)
    seen = text if size <= 2 * WINDOW else f"{text[:WINDOW]}\n{text[-WINDOW:]}"
    lower = seen.lower()
    # Whatever is not ASCII becomes a question mark, which none of the tables keeps.
    raw, low = seen.encode("ascii", "replace"), lower.encode("ascii", "replace")
    part = text if size <= 2 * COUNTED else text[:COUNTED] + text[-COUNTED:]
    scale = size / len(part) if part else 1.0
    blanks = scale * part.count(" ")
    lines = scale * part.count("\n")
    words = low.translate(_WORDS_ONLY).split()
    digits = _count(raw, _DIGITS)
    numbers = _NUMBER.findall(seen) if digits else []
    first = words[0] if words else b""
    distinct = frozenset(words)
    task = b"" if distinct.isdisjoint(_VERBS) else next(filter(_TASKS.__contains__, words))
    plain = seen.isascii()
    return [
        log1p(size),
        log1p(blanks + lines),
        log1p(lines),
        size / (1 + blanks + lines),
        float(digits),
        float(_count(raw, _CAPITALS)),
        float(seen.count("?")),
        log1p(scale * part.count(",")),
        log1p(scale * part.count(".")),
        log1p(scale * part.count(":")),
        log1p(scale * part.count("(")),
        0.0 if plain else (len(seen) - len(seen.encode("ascii", "ignore"))) / len(seen),
        0.0 if plain else len(_WIDE.findall(seen)) / len(seen),
        _OPENINGS.get(first, 0.0),
        _TASKS.get(task, 0.0),
        float(len(distinct & _BRIEF)),
        float(len(distinct & _LONG)),
        float(len(distinct & _EXPLAINS)),
        float(_count(raw, _CODE)),
        float(len(distinct & _CODE_WORDS)),
        float(len(_LIST.findall("\n" + seen))),
        float(len(numbers)),
        log1p(max(int(n[:9]) for n in numbers)) if numbers else 0.0,
        0.0 if distinct.isdisjoint(_UNIT_WORDS) else _requested(lower, low, words),
        *_conversation(prompt),
    ]


def _count(raw: bytes, marks: bytes) -> int:
    """Return how many of the bytes are among the marks."""
    return len(raw) - len(raw.translate(None, marks))


def _requested(lower: str, low: bytes, words: list[bytes]) -> float:
    """Return the logarithm of the tokens that a text asks for, 0 where it names no length."""
    if not _may_request(lower, low, words):
        return 0.0
    found = _REQUESTED.findall(lower)
    if not found:
        return 0.0
    tokens = (float(_NAMED.get(n) or n) * _UNITS[unit] for n, unit in found)
    return log1p(max(tokens))


def _may_request(lower: str, low: bytes, words: list[bytes]) -> bool:
    """Return whether a unit has a number one or two words before: else ``_REQUESTED`` finds none.

    That expression takes longer than all other features together.
    """
    if not lower.isascii():
        return True  # digits of other scripts are numbers, too
    if b"'" in low or len(low.translate(None, _DIGITS)) < len(low):
        words = low.translate(_PIECES_ONLY).split()
    units = [place for place, word in enumerate(words) if word in _UNIT_WORDS]
    before = {words[place - back] for back in (1, 2) for place in units if place >= back}
    return not before.isdisjoint(_NUMBER_WORDS) or any(word[-1:].isdigit() for word in before)


def _conversation(prompt: Prompt) -> tuple[float, float, float, float]:
    """Return the turn and the lengths of what was said before."""
    if not prompt.answered and not prompt.asked:
        return 1.0, log1p(len(prompt.system)), 0.0, 0.0
    replies = [len(text) for text in prompt.answered]
    return (
        float(1 + len(prompt.asked)),
        log1p(prompt.characters() - len(prompt.text)),
        log1p(replies[-1]) if replies else 0.0,
        log1p(sum(replies) / len(replies)) if replies else 0.0,
    )


_AT_ONCE = 256


def feature_rows(
    prompts: Sequence[Prompt], progress: Callable[[str], None] | None = None
) -> NDArray[np.float64]:
    """Return the features of prompts, one a row; shape (n, number of features)."""
    if len(prompts) <= _AT_ONCE:
        return np.array([features_of(p) for p in prompts], np.float64).reshape(-1, len(FEATURES))
    rows = np.empty((len(prompts), len(FEATURES)))
    for row, prompt in enumerate(prompts):
        rows[row] = features_of(prompt)
        if progress is not None and row and row % 5000 == 0:
            progress(f"features of {row:,} of {len(prompts):,} prompts")
    return rows


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
