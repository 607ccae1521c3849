"""The moves without numba: the same sources once more, on lists.

Python reads an item of a list many times as fast as one of an array. ``x[i, j]`` becomes
``x[i][j]``, and the tables are copied into lists and back at each call.
"""

from __future__ import annotations

import ast
from functools import cache, wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.latency_search import decoding, moves
from orsched.models.latency_search.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable

WRITTEN = (
    "whole", "real", "sequences", "lengths", "values", "finals", "tried", "marks", "mark_ends",
    "mark_who", "script", "counts", "best_sequences", "best_lengths", "best_whole",
)  # fmt: skip
"""What a call leaves in the tables; the rest is room, or is not changed."""


@cache
def listed() -> SimpleNamespace:
    """Return the entries of the moves, each of which takes tables of arrays."""
    fast = _on_lists(moves, {"decode": _on_lists(decoding, {}).decode})
    entries = (fast.evaluate, fast.evaluate_all, fast.run_moves)
    return SimpleNamespace(**{entry.__name__: _with_arrays(entry) for entry in entries})


def _on_lists(plain: ModuleType, names: dict[str, Any]) -> ModuleType:
    """Return a module of the same source that reads lists, with some names from elsewhere."""
    assert plain.__file__ is not None
    tree = _Nested().visit(ast.parse(Path(plain.__file__).read_text(encoding="utf-8")))
    module = ModuleType(f"{plain.__name__}_on_lists")
    exec(compile(ast.fix_missing_locations(tree), plain.__file__, "exec"), vars(module))
    vars(module).update(names)
    return module


class _Nested(ast.NodeTransformer):
    """Writes ``x[i][j]`` for ``x[i, j]``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        self.generic_visit(node)
        if not isinstance(node.slice, ast.Tuple):
            return node
        *others, last = node.slice.elts
        value = node.value
        for each in others:
            value = ast.Subscript(value, each, ast.Load())
        return ast.Subscript(value, last, node.ctx)


def _with_arrays(entry: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(entry)
    def called(tables: Tables, *rest: Any) -> Any:
        t = Tables(*(each.tolist() for each in tables))
        given = [each.tolist() if isinstance(each, np.ndarray) else each for each in rest]
        found = entry(t, *given)
        for name in WRITTEN:
            array = getattr(tables, name)
            if array.size:
                array[...] = getattr(t, name)
        return found

    return called
