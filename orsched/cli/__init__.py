"""The command line ``orsched``: solve, simulate, bound, compare, check, report, generate and more.

Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 a schedule is not
valid, 2 bad input, 3 time limit without a schedule, 4 cells of a study failed, 70 a bug in
orsched, 71 the machine failed, 130 interrupted.

This file imports little, so that Ctrl-C is handled before the commands are imported.
"""

import os
import sys

try:
    import atexit
    import signal
    from typing import Any, NoReturn

    from orsched.cli.ending import EXIT_INTERRUPTED, interrupted_early, interrupted_late
except KeyboardInterrupt:
    os.write(2, b"orsched: interrupted\n")
    os._exit(130)

__all__ = ["cli", "main"]


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handled:
        signal.signal(signal.SIGINT, interrupted_early)
    from orsched.cli.commands import run

    if not handled:
        sys.exit(run(args))
    # Runs after all that is registered later. Python then forgets handlers, and would be killed.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    code = EXIT_INTERRUPTED
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            code = run(args)
        finally:
            signal.signal(signal.SIGINT, interrupted_late)
    except KeyboardInterrupt:  # a further one
        signal.signal(signal.SIGINT, interrupted_late)
    sys.exit(code)


def __getattr__(name: str) -> Any:
    """Import the command group at first use (PEP 562)."""
    if name != "cli":
        raise AttributeError(f"module 'orsched.cli' has no attribute {name!r}")
    from orsched.cli.commands import cli

    return cli
