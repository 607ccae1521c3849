"""Times of two versions of orsched beside each other, by turns or from the JSON files of ``run``.

    python -m benchmarks.speed.before_after --base CHECKOUT [--turns N] [--only PART ...]
    python -m benchmarks.speed.run --only decide --no-peers --out base-1.json    # in each checkout
    python -m benchmarks.speed.before_after --before base-*.json --after main-*.json

The first runs the parts of ``parts.py`` in this checkout and in another, which has a .venv, by
turns. Each figure is the least of a side's files, or turns: what disturbs a run makes it longer
only. So is the ratio; ``spread`` is the largest over the least before, the noise that a ratio has
to exceed to mean anything. Figures that are reported and never compared: largest ones (``max``),
for they show interruptions, and those below ``LEAST``, which the clock does not resolve.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.speed.by_turns import TurnError, by_turns, other_work, work
from benchmarks.speed.section import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SLOWER = 1.05
"""Above this ratio a figure is flagged."""
LEAST = {"s": 1e-3, "us": 0.5}
"""By unit, the smallest figure that is compared."""
TIMES = ("_s", "_us")
SIMULATED = ("simulated_s", "makespan_s", "bound_s", "pang_s")
"""Times that are results, and no speed."""

Key = tuple[str, str, str]
"""Section, the texts and counts that name a row, and the column."""


class Ratio(NamedTuple):
    """A figure before and after, each the least of its files."""

    key: Key
    before: float
    after: float
    spread: float

    @property
    def ratio(self) -> float:
        """What it is now over what it was."""
        return self.after / self.before

    def row(self) -> dict[str, Any]:
        """Return a row of the table."""
        section, name, column = self.key
        return {
            "section": section, "row": name, "figure": column, "before": self.before,
            "after": self.after, "ratio": round(self.ratio, 3), "spread": round(self.spread, 3),
            "": "slower" if self.ratio > SLOWER else "",
        }  # fmt: skip


def figures(document: dict[str, Any]) -> Iterator[tuple[Key, float]]:
    """Yield the times of a file of ``run``: each row is known by its texts and whole numbers."""
    for section in document["sections"]:
        for row in section["rows"]:
            name = " ".join(value for value in row.values() if isinstance(value, str))
            for column, value in row.items():
                if _is_time(column, value):
                    yield (section["name"], name, column), float(value)


def _is_time(column: str, value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    unit = column.rpartition("_")[2]
    timed = column.endswith(TIMES) and column not in SIMULATED and "max" not in column
    return timed and value >= LEAST[unit]


def ratios(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> list[Ratio]:
    """Return the figures that both sides have, in their order before."""
    old, new = _collected(before), _collected(after)
    return [
        Ratio(key, min(values), min(new[key]), max(values) / min(values))
        for key, values in old.items()
        if key in new
    ]


def _collected(documents: Sequence[dict[str, Any]]) -> dict[Key, list[float]]:
    found: dict[Key, list[float]] = {}
    for document in documents:
        for key, value in figures(document):
            found.setdefault(key, []).append(value)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit code 1 if a figure is slower."""
    parser = argparse.ArgumentParser(description="Times of two versions beside each other.")
    parser.add_argument("--base", type=Path, help="a checkout of the version before")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=tuple(work()), default=())
    parser.add_argument("--before", nargs="+", type=Path)
    parser.add_argument("--after", nargs="+", type=Path)
    given = parser.parse_args(arguments)
    if given.base is None and not (given.before and given.after):
        parser.error("give --base, or --before and --after")
    if given.base is not None:
        try:
            before, after = by_turns(given.base, max(given.turns, 1), work(given.only))
        except TurnError as error:
            parser.error(str(error))
        for row in other_work(before[0], after[0]):
            sys.stdout.write(f"not the same work: {row}\n")
    else:
        before, after = (
            [json.loads(path.read_text()) for path in side] for side in (given.before, given.after)
        )
    found = ratios(before, after)
    slower = [each for each in found if each.ratio > SLOWER]
    sys.stdout.write("\n".join(table([each.row() for each in found])) + "\n")
    sys.stdout.write(f"{len(slower)} of {len(found)} figures are more than 5 % slower\n")
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
