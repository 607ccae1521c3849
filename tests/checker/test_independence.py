"""What the checker shares with other parts: data, cost models, and the reading of a schedule."""

from __future__ import annotations

import subprocess
import sys

SHARED = {
    "common.columns",
    "metrics.class_metrics",
    "metrics.prefix_blocks",
    "metrics.prefix_replay",
    "metrics.summary",
    "metrics.timeline",
    "metrics.timeline_rows",
    "metrics.token_times",
}
"""The one reading of a schedule, which ``tests/by_the_book.py`` is held against."""

FOREIGN = (
    "simulator", "heuristics", "runner", "data.step", "solving.solver", "planning", "views",
    "instances", "models.packing", "models.pcmax", "models.windows", "models.full_mip",
)  # fmt: skip
"""What makes schedules, searches or shows: none of it is there when the checker is."""

CODE = """
import importlib, pkgutil, sys
import orsched.checker
for module in pkgutil.iter_modules(orsched.checker.__path__):
    importlib.import_module(f"orsched.checker.{module.name}")
print(*(name.removeprefix("orsched.") for name in sys.modules if name.startswith("orsched.")))
"""


def test_the_checker_shares_no_code_with_what_makes_schedules(tmp_path):
    output = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    loaded = set(output.split())
    assert loaded >= SHARED
    assert [
        name
        for name in sorted(loaded)
        if any(name == part or name.startswith(f"{part}.") for part in FOREIGN)
    ] == []
