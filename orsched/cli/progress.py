"""Progress on stderr: in place on a terminal, in lines elsewhere, not at all if quiet."""

from __future__ import annotations

import sys

import click

from orsched.cli.output import is_quiet, say
from orsched.solving.progress import InPlace, Lines, Watch, is_terminal


class ProgressPrinter(Watch):
    """Shows the current step of a command, and the incumbent of a search.

    A context manager; ``callback`` goes to ``solve``, ``say`` names a step of the work. What
    takes less than two seconds (half a second on a terminal) prints nothing.
    """

    def __init__(self, what: str) -> None:
        surface = InPlace(sys.stderr) if is_terminal(sys.stderr) else Lines(say)
        super().__init__(what, None if is_quiet() else surface)
        context = click.get_current_context(silent=True)
        if context is not None:
            context.meta[_CURRENT] = self


_CURRENT = "orsched.solving.progress"
"""Where the progress of a command stands in its context."""


def name_step(what: str) -> None:
    """Name a step of the work that the command does, from where its progress is not at hand."""
    context = click.get_current_context(silent=True)
    progress = None if context is None else context.meta.get(_CURRENT)
    if isinstance(progress, ProgressPrinter):
        progress.say(what)
