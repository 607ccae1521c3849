"""What every section of the benchmark takes and returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Options:
    """How to measure.

    Attributes:
        folder: for files that the measured programs read and write.
        repeats: measured runs of each program.
        peers: whether to run other projects' programs beside orsched.
        tiny: sizes that show that everything runs, and measure nothing.
        full: the largest sizes, where a section has smaller ones by default.
    """

    folder: Path
    repeats: int = 5
    peers: bool = True
    tiny: bool = False
    full: bool = False


@dataclass(frozen=True)
class Target:
    """A figure and what it should be at most, or at least; a miss is printed, never hidden."""

    what: str
    value: float | None
    limit: float
    unit: str
    at_least: bool = False

    @property
    def passed(self) -> bool:
        """Whether the figure is there and within the limit."""
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def line(self) -> str:
        """Return one line for people."""
        got = "no figure" if self.value is None else f"{number(self.value)} {self.unit}"
        side = "at least" if self.at_least else "at most"
        word = "PASS" if self.passed else "MISS"
        return f"{word}  {self.what}: {got} (target: {side} {number(self.limit)})"


@dataclass
class Section:
    """A table with its targets.

    Attributes:
        name: as given to ``--only``.
        title: one line on what is measured.
        rows: the table; columns are the keys, in the order of their first appearance.
        targets: figures with limits.
        notes: what a reader must know to read the table rightly.
    """

    name: str
    title: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        targets = [asdict(t) | {"passed": t.passed} for t in self.targets]
        return {**asdict(self), "targets": targets}

    def text(self) -> str:
        """Return table, targets and notes for people."""
        lines = [f"== {self.name}: {self.title}", *table(self.rows)]
        lines += [target.line() for target in self.targets]
        lines += [f"  - {note}" for note in self.notes]
        return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as aligned lines, texts to the left and numbers to the right."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        cells = [name, *map(number, values)]
        width = max(map(len, cells))
        left = any(isinstance(v, str) for v in values)
        columns.append([c.ljust(width) if left else c.rjust(width) for c in cells])
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def number(value: Any) -> str:
    """Return a value with the digits that a reader can use."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return f"{value:,}" if type(value) is int else str(value)
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3g}"
