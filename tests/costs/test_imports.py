"""No two modules of the cost models import each other, not even for types."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter


def imported(path):
    """Names of all modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_the_cost_models_import_each_other_in_one_order(repo_root):
    files = (repo_root / "orsched" / "costs").glob("*.py")
    graph = {f"orsched.costs.{f.stem}": set(imported(f)) for f in files if f.stem != "__init__"}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert order.index("orsched.calibration.fit_work") < order.index(
        "orsched.calibration.fit_pooling"
    )
    assert order.index("orsched.calibration.fit_pooling") < order.index("orsched.calibration.fit")
