"""The layers of the library, lowest first, and the imports that are read from its source.

A module may import from its own layer and from those below. A new module needs no entry where its
package has one; a new package or a module directly in ``orsched/`` gets one in ``LAYERS``.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDERS = ("models", "heuristics", "instances", "runner")


class Layer(NamedTuple):
    """Modules that may import each other; of two below ``orsched`` that fit the longer counts."""

    name: str
    does: str
    modules: tuple[str, ...]


LAYERS = (
    Layer(
        "common",
        "errors, units, checked numbers, names of what is registered",
        ("common", "_version"),
    ),
    Layer(
        "costs",
        "the time of a step, and the fit of such times",
        (
            "costs", "calibration.fit", "calibration.fit_jointly", "calibration.intervals",
            "calibration.least_squares", "calibration.measurements",
        ),
    ),
    Layer(
        "data", "requests, workers and memory make an instance; steps make a schedule", ("data",)
    ),
    Layer(
        "proofs",
        "what certificates of bounds are made of and prove, in integers, without a search",
        ("certificates",),
    ),
    Layer(
        "time",
        "a policy decides, the simulator lets time pass, a timeline reads what came of it",
        (
            "simulator", "metrics", "solving.methods", "solving.objectives", "solving.progress",
            "solving.result", "solving.run_block",
        ),
    ),
    Layer(
        "verdicts",
        "rules kept, bounds proven: what is said of a schedule",
        ("checker", "calibration.observed"),
    ),
    Layer("models", "formulations, searches and bounds with their certificates", ("models",)),
    Layer("heuristics", "policies, and the methods that are made of them", ("heuristics",)),
    Layer("files", "native files: instances, schedules, cost models", ("files",)),
    Layer(
        "instances",
        "shipped instances and machines, generators, readers of others' traces",
        ("instances", "calibration"),
    ),
    Layer(
        "front",
        "solve, simulate, compare, load, predict lengths",
        ("solving", "files.locate", "files.worker_choice", "prediction"),
    ),
    Layer(
        "pictures", "charts, reports, studies, capacities", ("views", "planning", "extending"),
    ),
    Layer(
        "runner", "workers that execute, their calibration, vLLM", ("runner", "prediction.proxies")
    ),
    Layer("papers", "figures and tables of five papers, rerun", ("papers",)),
    Layer("command line", "orsched ...", ("cli", "__main__")),
)  # fmt: skip


class Stop(NamedTuple):
    """One stop of a request: a layer, what happens there, and ``module:name`` of what does it."""

    layer: str
    what: str
    where: str


WAY = (
    Stop("files", "read, checked, made an instance", "files.native:load_instance"),
    Stop("front", "the method is looked up and started", "solving.solver:solve"),
    Stop("heuristics", "the method makes its policy", "heuristics.policy_method:PolicyMethod"),
    Stop("time", "the simulator asks: decide(view)", "simulator.loop:Loop"),
    Stop("heuristics", "the policy answers with a Step", "heuristics.gated:GatedPolicy.decide"),
    Stop("costs", "the time of the step", "costs.protocol:CostModel"),
    Stop("data", "steps and work become a schedule", "data.schedule:Schedule"),
    Stop("models", "a lower bound with its certificate", "models.bounds.bounds:bound"),
    Stop("verdicts", "figures; every rule checked", "checker.checker:check"),
    Stop("files", "the schedule file is written", "files.native:save_schedule"),
    Stop("pictures", "charts and report", "views.html:write_report"),
    Stop("runner", "the same schedule on a real worker", "runner.execution:run"),
)


class Import(NamedTuple):
    """An import (names without ``orsched.``), maybe inside a function or for typing only."""

    importer: str
    imported: str
    late: bool
    typing: bool


def layer_of(module: str) -> int:
    """Return the place of a module's layer, lowest 0; -1 where the table has none."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        for place, layer in enumerate(LAYERS):
            if prefix in layer.modules:
                return place
    return -1


def modules(root: Path) -> dict[str, Path]:
    """Return all modules of the library by their name below ``orsched``; that itself is ``""``."""
    found = {}
    for folder in ("orsched", *FOLDERS):
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            if folder == "orsched" and parts[0] in FOLDERS:
                continue
            named = (*((folder,) if folder != "orsched" else ()), *parts)
            found[".".join(named).removesuffix("__init__").rstrip(".")] = path
    return found


def imports(root: Path) -> set[Import]:
    """Return the imports of the library from itself."""
    known = modules(root)
    return {
        Import(name, imported, late, typing)
        for name, path in known.items()
        for imported, late, typing in _within(ast.parse(path.read_text()), known)
    }


def _within(
    node: ast.AST, known: dict[str, Path], late: bool = False, typing: bool = False
) -> Iterator[tuple[str, bool, bool]]:
    """Yield the modules that a part of a module imports, with whether it is late or for types."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        for target in _targets(node):
            while target not in known:
                target = target.rpartition(".")[0]
            yield target, late, typing
    late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        guard = isinstance(node, ast.If) and child in node.body
        checked = guard and getattr(node.test, "id", "") == "TYPE_CHECKING"
        yield from _within(child, known, late, typing or checked)


def _targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return what is imported from ``orsched``, by the name below it."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    own = [name for name in names if name.partition(".")[0] == "orsched"]
    return [name.removeprefix("orsched").lstrip(".") for name in own]
