"""Errors of arguments of functions, named after the options that gave them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from orsched.common.errors import InputError

_NAMES: dict[str, tuple[str, ...]] = {
    "initial_schedule": ("initial",),
    "policy": ("policy", "method"),
    "predictor": ("predictions",),
    **{
        name: (name,)
        for name in (
            "arrivals", "autoscale", "failures", "first", "formulation", "gap", "information",
            "iterations", "max_nonzeros", "methods", "objective", "parameters", "points",
            "predictions", "rounds", "search", "second", "seed", "stages", "time_limit",
        )
    },
}  # fmt: skip
"""Names of a command's parameters by the argument that they are passed on as.

Names that files and instances have too (``workers``, ``clients``) are not among them.
"""


def name_option(error: InputError, command: click.Command | None) -> None:
    """Let an error that names an argument name the command's option, if it has one."""
    if command is None or error.file is not None or error.row is not None:
        return
    for name in _NAMES.get(error.field or "", ()):
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.name == name:
                error.field = max(parameter.opts, key=len)
                return
