"""Texts that every machine with Python has, as prompts with the lengths of what follows them.

Functions of Python's standard library give two sources of real text, in which a module is a
conversation:

- ``bodies``: what a programmer was asked (signature and docstring), and how long the code became;
- ``docstrings``: the code of a function without its docstring, and how long the docstring is.

Nothing is imported or run: files are parsed.
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orsched.prediction import LabelledPrompts
from orsched.prediction.readers import count_by_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = ("bodies", "docstrings")
LONGEST = 4096
LEFT_OUT = ("site-packages", "__pycache__", "lib2to3")


def standard_library() -> dict[str, LabelledPrompts]:
    """Return both sources; their rows depend on the version of Python."""
    root = Path(sysconfig.get_path("stdlib"))
    found: dict[str, list[tuple[str, int, str]]] = {name: [] for name in SOURCES}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root)
        if any(part in LEFT_OUT for part in parts.parts):
            continue
        for head, docstring, body in functions(path):
            bodies = f"Write this Python function.\n\n{head}\n    {docstring!r}"
            texts = f"Write the docstring of this Python function.\n\n{head}\n{body}"
            for name, prompt, reply in (("bodies", bodies, body), ("docstrings", texts, docstring)):
                tokens = min(count_by_rule(reply), LONGEST)
                if tokens:
                    found[name].append((prompt, tokens, str(parts)))
    return {name: _labelled(name, rows) for name, rows in found.items()}


def functions(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield head, docstring and body of the functions of a file that have a docstring."""
    try:
        source = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what old tests spell on purpose
            tree = ast.parse(source)
    except (UnicodeDecodeError, SyntaxError, ValueError):
        return  # a test of the parser
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or len(node.body) < 2:
            continue
        docstring = ast.get_docstring(node)
        if not docstring:
            continue
        lines = source.split("\n")
        head = "\n".join(lines[node.lineno - 1 : node.body[0].lineno - 1])
        body = "\n".join(lines[node.body[1].lineno - 1 : node.end_lineno])
        yield head, docstring, body


def _labelled(name: str, rows: list[tuple[str, int, str]]) -> LabelledPrompts:
    prompts, tokens, modules = zip(*rows, strict=True)
    return LabelledPrompts(prompts, np.array(tokens, np.int64), modules, f"stdlib {name}")
