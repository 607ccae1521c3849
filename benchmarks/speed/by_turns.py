"""Two checkouts run the same parts by turns, each with its own interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.speed.packing_families import FAMILIES
from benchmarks.speed.processes import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
PARTS = HERE.with_name("parts.py").relative_to(ROOT)
"""Each checkout runs its own: names may have moved in between."""
POLICIES = (
    ("fcfs", "none"), ("offline", "clairvoyant"), ("offline", "predicted"), ("online", "none"),
    ("online", "predicted"), ("hybrid", "clairvoyant"), ("hybrid", "predicted"),
    ("vllm", "none"), ("static", "none"), ("sls", "none"), ("ils", "none"), ("scls", "none"),
    ("ssjf", "predicted"), ("sjf", "clairvoyant"), ("mico", "predicted"), ("gittins", "none"),
    ("robust", "predicted"),
)  # fmt: skip
PACKED = ("L3", "L4", "NU1", "G")
FIRST_SEED = 5000

Document = dict[str, Any]


class TurnError(Exception):
    """A checkout could not be measured."""


def work(only: Sequence[str] = (), tiny: bool = False) -> dict[str, dict[str, Any]]:
    """Return what one turn of a checkout does, by part; both get the same jobs to pack."""
    seeds = range(FIRST_SEED, FIRST_SEED + (1 if tiny else 20))
    families = {name: [FAMILIES[name](seed)[:2] for seed in seeds] for name in PACKED}
    sizes = {"requests": 30, "clients": 5} if tiny else {"requests": 1319, "clients": 200}
    parts: dict[str, dict[str, Any]] = {
        "decide": {"requests": 400 if tiny else 20_000, "repeats": 3, "policies": POLICIES},
        "simulator": {"requests": 100 if tiny else 10_000, "repeats": 3},
        "packing": {"families": families, "repeats": 3},
        "windows": sizes | {"iterations": (12,), "repeats": 1},
        "bounds": {"requests": 100 if tiny else 100_000, "repeats": 1},
    }
    return {name: part for name, part in parts.items() if not only or name in only}


def by_turns(
    base: Path, turns: int, asked: dict[str, dict[str, Any]], after: Path = ROOT
) -> tuple[list[Document], list[Document]]:
    """Return the documents of the checkout at ``base`` and of this one, one a turn."""
    before: list[Document] = []
    now: list[Document] = []
    for turn in range(turns):
        sides = (base, before), (after, now)
        for checkout, documents in sides if turn % 2 == 0 else reversed(sides):
            documents.append(once(checkout, asked))
    return before, now


def once(checkout: Path, asked: dict[str, dict[str, Any]]) -> Document:
    """Run the parts with a checkout's interpreter and return the document.

    Raises:
        TurnError: it has no interpreter, imports another checkout, or a part fails.
    """
    checkout = checkout.resolve()
    python = Path(sys.executable) if checkout == ROOT else checkout / ".venv" / "bin" / "python"
    if not python.exists():
        raise TurnError(f"{checkout} has no .venv: `make setup` there first")
    made = subprocess.run(
        [str(python), "-P", str(checkout / PARTS)], input=json.dumps(asked), cwd=checkout,
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        raise TurnError(f"{checkout}: {(made.stderr.strip().splitlines() or ['failed'])[-1]}")
    document: Document = json.loads(made.stdout)
    if not Path(document["orsched"]).resolve().is_relative_to(checkout):
        raise TurnError(f"the interpreter of {checkout} imports {document['orsched']}")
    return document


def other_work(before: Document, after: Document) -> list[str]:
    """Return the rows in which two versions did not do the same."""
    sides = [
        {(s["name"], row["name"]): row["work"] for s in document["sections"] for row in s["rows"]}
        for document in (before, after)
    ]
    return [f"{part}: {name}" for (part, name), done in sides[0].items()
            if sides[1].get((part, name)) != done]  # fmt: skip
