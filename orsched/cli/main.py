"""The command group, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import click

from orsched._version import __version__
from orsched.cli.check_command import check_command
from orsched.cli.compare_command import compare_command
from orsched.cli.data_commands import data_group
from orsched.cli.info_commands import bound_command, info_command
from orsched.cli.instance_commands import convert_command, generate_command
from orsched.cli.report_command import report_command
from orsched.cli.solve_commands import simulate_command, solve_command
from orsched.errors import InvalidScheduleError, OrschedError, TimeLimitError

EXIT_INVALID = 1
EXIT_INPUT = 2
EXIT_TIME_LIMIT = 3
EXIT_INTERRUPTED = 130


class _ReaderGoneError(Exception):
    """Standard output was closed at the other end."""


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1, which is said of invalid schedules
            raise _ReaderGoneError from None


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="orsched")
@click.option("-v", "--verbose", count=True, help="Log to stderr; twice for more.")
def cli(verbose: int) -> None:
    """Schedule LLM inference as the optimisation problem that it is.

    Exit codes: 0 done, 1 a schedule is not valid, 2 bad input, 3 time limit without a schedule,
    130 interrupted.
    """
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(stream=sys.stderr, level=level, format="orsched: %(message)s")


for command in (
    solve_command,
    simulate_command,
    bound_command,
    compare_command,
    check_command,
    report_command,
    generate_command,
    convert_command,
    data_group,
    info_command,
):
    cli.add_command(command)


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """Run the command line and return its exit code; no traceback for what orsched expects."""
    try:
        code = cli.main(args=args, prog_name="orsched", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Abort:
        return _say("interrupted", EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        return _say("interrupted", EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return EXIT_INPUT
    except (BrokenPipeError, _ReaderGoneError):
        # The reader went away (orsched ... | head): nothing left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TimeLimitError as error:
        return _say(str(error), EXIT_TIME_LIMIT)
    except InvalidScheduleError as error:
        return _say(str(error), EXIT_INVALID)
    except (OrschedError, OSError, MemoryError) as error:
        what = "not enough memory" if isinstance(error, MemoryError) else str(error)
        return _say(f"error: {what or type(error).__name__}", EXIT_INPUT)


def _say(message: str, code: int) -> int:
    click.echo(f"orsched: {message}", err=True)
    return code
