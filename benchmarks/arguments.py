"""Types of arguments: what is no number of something is said in a line, before anything runs."""

from __future__ import annotations

import argparse
import math


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number of at least 1")
    return number


def share(text: str) -> float:
    """Return a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number above 0")
    return number
