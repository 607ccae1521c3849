"""Start-up: what `import orsched` and the command line cost before any work."""

from __future__ import annotations

import json
import sys
from statistics import median
from typing import Any

from benchmarks.speed.processes import Program, measure, orsched_command
from benchmarks.speed.section import Options, Section, Target

NAME = "startup"
HEAVY = (
    "torch",
    "pyscipopt",
    "ortools",
    "matplotlib",
    "pandas",
    "numba",
    "pyarrow",
    "networkx",
    "scipy",
    "plotly",
)

TIMED = """
import json, sys
from time import perf_counter
before = len(sys.modules)
begin = perf_counter()
{statement}
wall = perf_counter() - begin
heavy = sorted(set({heavy!r}) & set(sys.modules))
print(json.dumps([wall, len(sys.modules) - before, heavy]))
"""

STATEMENTS = {
    "import orsched": "import orsched",
    "from orsched import solve, load": "from orsched import solve, load",
    "from orsched import *": "from orsched import *",
}


def run(options: Options) -> Section:
    """Measure imports inside fresh interpreters, and whole processes."""
    section = Section(NAME, "imports in a fresh interpreter, and whole processes")
    walls = {}
    for name, statement in STATEMENTS.items():
        row, walls[name] = _imported(name, statement, options)
        section.rows.append(row)
    programs = [
        Program("python -c pass", [sys.executable, "-c", "pass"]),
        Program("python -c 'import numpy'", [sys.executable, "-c", "import numpy"]),
        Program("orsched --version", orsched_command("--version")),
    ]
    measure(programs, options.repeats, options.folder)
    section.rows += [program.figures() for program in programs]
    slowest = max(walls.values(), key=lambda w: w or 0.0)
    loaded = sum(len(row["heavy"]) for row in section.rows if isinstance(row.get("heavy"), list))
    section.targets = [
        Target("import orsched (median)", walls["import orsched"], 0.3, "s"),
        Target("any of the imports (median)", slowest, 0.3, "s"),
        Target("heavy packages that the imports load", float(loaded), 0.0, "packages"),
    ]
    for row in section.rows:
        if isinstance(row.get("heavy"), list):
            row["heavy"] = ", ".join(row["heavy"]) or "none"
    section.notes = [
        "import rows: inside_s is the statement alone, as the interpreter's clock sees it; wall "
        "and peak are of the whole process.",
        f"heavy: of {', '.join(HEAVY)}, those that are loaded.",
    ]
    return section


def _imported(name: str, statement: str, options: Options) -> tuple[dict[str, Any], float | None]:
    """Time a statement in fresh interpreters; return its row and its median time."""
    code = TIMED.format(statement=statement, heavy=HEAVY)
    program = Program(name, [sys.executable, "-c", code])
    inside: list[float] = []
    modules, heavy = 0, []
    for turn in range(options.repeats + 1):
        measure([program], 1, options.folder, warm_up=0)
        if program.error is not None:
            return program.figures(), None
        wall, modules, heavy = json.loads(program.stdout)
        if turn:
            inside.append(wall)
    program.samples = program.samples[1:]
    row = {"inside_s": median(inside), "modules": modules, "heavy": heavy}
    return program.figures() | row, median(inside)
