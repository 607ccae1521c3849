"""Text for people in lines that fit the terminal, under a heading at the left."""

from __future__ import annotations

import shutil
import textwrap

WIDEST = 100
"""Characters of a line, however wide the terminal is."""


def line_width() -> int:
    """Return how wide lines of text are: as the terminal, 80 where there is none."""
    return max(40, min(shutil.get_terminal_size().columns, WIDEST))


def wrapped(text: str, head: str = "", left: int = 0) -> str:
    """Return a text in lines, from the column ``left`` on, with a heading before the first."""
    return textwrap.fill(
        text,
        line_width(),
        initial_indent=head.ljust(left),
        subsequent_indent=" " * left,
        break_on_hyphens=False,
        break_long_words=False,
    )
