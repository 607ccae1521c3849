"""Lexical features of a prompt: what can be said of it within some ten microseconds."""

from __future__ import annotations

import re
from math import log1p
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from orsched.prediction.data import Prompt

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
