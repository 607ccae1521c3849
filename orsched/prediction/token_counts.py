"""How many tokens a text has: by a tokenizer's file, else by a stated rule."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from orsched.common.errors import InputError, unavailable
from orsched.common.near_names import file_hint

if TYPE_CHECKING:
    from collections.abc import Callable

LETTERS_A_TOKEN = 6
"""Letters of one word that the rule takes for one token."""

_PIECES = re.compile(r"[A-Za-z]+|\s*\n\s*|[^\sA-Za-z]")


def count_by_rule(text: str) -> int:
    """Return how many tokens the rule finds in a text.

    A run of Latin letters has one token for each six letters begun; each digit, mark or other
    character has one, and so has a break between lines; blanks have none.
    """
    return sum(
        -(-len(piece) // LETTERS_A_TOKEN) if piece.isalpha() and piece.isascii() else 1
        for piece in _PIECES.findall(text)
    )


def token_counter(tokenizer: str | os.PathLike[str] | None = None) -> Callable[[str], int]:
    """Return what counts the tokens of a text.

    Args:
        tokenizer: a ``tokenizer.json`` or the folder that holds it, read without running any code
            of the folder; None for the rule (``count_by_rule``).

    Raises:
        InputError: there is no such file, or it is no tokenizer.
        MissingDependencyError: the package ``tokenizers`` is not installed.
    """
    if tokenizer is None:
        return count_by_rule
    name = os.fspath(tokenizer)
    path = os.path.join(name, "tokenizer.json") if os.path.isdir(name) else name
    if not os.path.isfile(path):
        raise InputError("there is no such file", file=path, remedy=file_hint(path))
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        missing = "tokenizers is needed for a tokenizer's file: pip install 'orsched[runner]'"
        raise unavailable(error, missing) from None
    try:
        loaded = Tokenizer.from_file(path)
    except Exception as error:  # its own class of errors is Exception itself
        raise InputError(
            f"is no tokenizer: {str(error)[:200]}", file=path, remedy="give a tokenizer.json"
        ) from None
    return lambda text: len(loaded.encode(text, add_special_tokens=False).ids)
