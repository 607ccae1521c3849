"""The exit code of a comparison, and what is said of methods without a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.cli.exit_codes import (
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_MACHINE,
    EXIT_TIME_LIMIT,
)
from orsched.cli.output import say
from orsched.cli.policies import show_failure
from orsched.common.errors import is_of_machine

if TYPE_CHECKING:
    from orsched.solving.comparison import Comparison


def exit_code_of(results: Comparison, where: str = "") -> int:
    """Name the methods that made no schedule; return the exit code.

    It is 130 after Ctrl-C, 1 after a schedule that the checker refused, 71 where the machine
    failed, 2 after other failures, 3 where all of them ran out of time.
    """
    from orsched.solving.result import Termination

    for failure in results.failed:
        show_failure(failure)
        say(f"{where}{failure}")
    if any(r.termination is Termination.INTERRUPTED for r in results):
        return EXIT_INTERRUPTED
    if any(failure.invalid for failure in results.failed):
        return EXIT_INVALID
    if any(is_of_machine(failure.error) for failure in results.failed):
        return EXIT_MACHINE
    if any(not failure.timed_out for failure in results.failed):
        return EXIT_INPUT
    return EXIT_TIME_LIMIT if results.failed else 0
