"""Did you mean: the nearest of the names that are known, for messages about an unknown one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_FILES = 2000
"""Of a folder with more, only so many are looked at."""


def nearest(name: object, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the known names that are closest to one, the best first; case and - do not count."""
    from difflib import get_close_matches  # not needed unless something is wrong

    names = list(known)
    plain: dict[str, str] = {}
    for each in names:
        plain.setdefault(_plain(each), each)
    try:
        wanted = _plain(str(name)[:100])
    except ValueError:  # Python prints no number beyond its limit of digits
        return []
    close = get_close_matches(wanted, plain, n=most)
    begun = [each for each in plain if len(wanted) > 1 and each.startswith(wanted)]
    return [plain[each] for each in [*close, *(b for b in begun if b not in close)][:most]]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return "did you mean NAME?" with the nearest known name, or nothing where none is near."""
    near = nearest(name, known)
    return f"did you mean {near[0]}?" if near else ""


def known_names(name: object, known: Iterable[str], label: str = "known: ", none: str = "") -> str:
    """Return the remedy for an unknown name: the nearest one, then all, or ``none`` without any."""
    names = list(known)
    listed = label + ", ".join(names) if names else none
    return " ".join(text for text in (did_you_mean(name, names), listed) if text)


def file_hint(path: object, suffix: str = "", otherwise: str = "check the path") -> str:
    """Return the remedy for a missing file: the nearest in its folder with the suffix, if any."""
    import os

    folder, name = os.path.split(str(path))
    try:
        with os.scandir(folder or ".") as entries:
            there = [entry.name for entry, _ in zip(entries, range(_MOST_FILES), strict=False)]
    except (OSError, ValueError):
        return otherwise
    near = nearest(name, sorted(each for each in there if each.endswith(suffix)))
    return f"did you mean {os.path.join(folder, near[0])}?" if near else otherwise


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")
