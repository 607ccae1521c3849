"""Texts as rows of token numbers for an encoder: by a tokenizer's file, else by a stated rule."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from orsched.common.errors import InputError, unavailable
from orsched.files.text import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.prediction.data import Prompt

    Ints = NDArray[np.int64]

PAD, FIRST, LAST, MARKS = 0, 1, 2, 3
"""The rule's numbers of the padding, the first and the last mark; words start at ``MARKS``."""

_WORDS = re.compile(r"[a-z]+|\d|[^\sa-z\d]")


class RuleTokens:
    """Words in small letters, single digits and single marks, numbered by CRC-32.

    A piece has the number ``3 + crc32(piece) mod (vocabulary - 3)``: the same everywhere, without
    a list of words; several words share a number where the vocabulary is small.
    """

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.pad, self.first, self.last = PAD, FIRST, LAST

    def __call__(self, text: str) -> list[int]:
        """Return the numbers of a text, without marks."""
        pieces = _WORDS.findall(text.lower())
        room = self.vocabulary - MARKS
        return [MARKS + crc32(p.encode(errors="replace")) % room for p in pieces]

    def source(self) -> str | None:
        """Return what is kept in a predictor's file: nothing."""
        return None


class FileTokens:
    """The tokens of a ``tokenizer.json``, whose ``[CLS]``, ``[SEP]`` and ``[PAD]`` mark rows."""

    def __init__(self, text: str, vocabulary: int) -> None:
        self._tokenizer = _tokenizer(text)
        numbers = [self._tokenizer.token_to_id(mark) for mark in ("[PAD]", "[CLS]", "[SEP]")]
        if None in numbers:
            raise InputError(
                "has no [PAD], [CLS] or [SEP]", field="tokenizer", remedy="take that of a BERT"
            )
        if self._tokenizer.get_vocab_size() > vocabulary:
            raise InputError(
                f"has {self._tokenizer.get_vocab_size():,} tokens, the model {vocabulary:,}",
                field="tokenizer",
                remedy="take the model's own",
            )
        self.pad, self.first, self.last = numbers
        self._text = text
        self.vocabulary = vocabulary

    def __call__(self, text: str) -> list[int]:
        """Return the numbers of a text, without marks."""
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def source(self) -> str | None:
        """Return what is kept in a predictor's file: the tokenizer's text."""
        return self._text


Tokens = RuleTokens | FileTokens


def tokens_of(text: str | None, vocabulary: int) -> Tokens:
    """Return the tokens of a tokenizer's text, or of the rule for None; raises ``InputError``."""
    return RuleTokens(vocabulary) if text is None else FileTokens(text, vocabulary)


def tokenizer_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a ``tokenizer.json`` or of the one in a folder; raises ``InputError``."""
    name = os.fspath(path)
    return read_text(os.path.join(name, "tokenizer.json") if os.path.isdir(name) else name)


def whole_text(prompt: Prompt) -> str:
    """Return all rounds of a conversation as one text, the oldest first."""
    turns = [prompt.system] if prompt.system else []
    for asked, answered in zip(prompt.asked, prompt.answered, strict=True):
        turns += [asked, answered]
    return "\n".join((*turns, prompt.text))


def token_rows(prompts: Sequence[Prompt], tokens: Tokens, most: int) -> list[Ints]:
    """Return a row for each prompt: the first mark, its last ``most - 2`` tokens, the last mark."""
    rows = []
    for prompt in prompts:
        kept = tokens(whole_text(prompt))[-(most - 2) :]
        rows.append(np.array([tokens.first, *kept, tokens.last], np.int64))
    return rows


def padded(rows: Sequence[Ints], pad: int) -> tuple[Ints, Ints]:
    """Return rows of one width and a mask that is 1 where there is a token; both (n, width)."""
    width = max(len(row) for row in rows)
    numbers = np.full((len(rows), width), pad, np.int64)
    mask = np.zeros((len(rows), width), np.int64)
    for place, row in enumerate(rows):
        numbers[place, : len(row)] = row
        mask[place, : len(row)] = 1
    return numbers, mask


def _tokenizer(text: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        missing = "tokenizers is needed for a tokenizer's file: pip install 'orsched[runner]'"
        raise unavailable(error, missing) from None
    try:
        found = Tokenizer.from_str(text)
        found.no_truncation()
        found.no_padding()
    except Exception as error:  # its own class of errors is Exception itself
        raise InputError(
            f"is not a tokenizer: {str(error)[:200]}",
            field="tokenizer",
            remedy="give a tokenizer.json",
        ) from None
    return found
