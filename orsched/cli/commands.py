"""The command group, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from orsched._version import __version__
from orsched.cli.bound_commands import BoundCommand, PackCommand
from orsched.cli.calibrate_command import CalibrateCommand
from orsched.cli.capacity_command import CapacityCommand
from orsched.cli.check_commands import CheckCommand, ReportCommand
from orsched.cli.compare_command import CompareCommand
from orsched.cli.completion import offer_names
from orsched.cli.cost_command import CostCommand
from orsched.cli.declaring import AT_LEAST_1, quiet
from orsched.cli.ending import (
    EXIT_BUG,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_MACHINE,
    EXIT_TIME_LIMIT,
)
from orsched.cli.frontier_command import FrontierCommand
from orsched.cli.info_command import InfoCommand
from orsched.cli.instance_commands import (
    ConvertCommand,
    ExportCommand,
    GenerateCommand,
    data_group,
)
from orsched.cli.output import escape_what_cannot_be_encoded, printable, say, show_lines
from orsched.cli.predict_commands import predict_group
from orsched.cli.run_command import RunCommand
from orsched.cli.solve_commands import SimulateCommand, SolveCommand
from orsched.cli.study_command import StudyCommand
from orsched.cli.vllm_command import vllm_group
from orsched.common.errors import (
    InputError,
    InvalidScheduleError,
    OrschedError,
    TimeLimitError,
    is_of_machine,
    unavailable,
)
from orsched.common.limits import BLOCKS, CELLS, ROWS, STEPS
from orsched.solving.progress import clear_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.cli.declaring import Options


@dataclass
class _Settings:
    """Options of the group, for the place where errors become messages."""

    debug: bool = False


class _Handler(logging.StreamHandler[TextIO]):
    """Messages take a line of progress away before they are printed."""

    def emit(self, record: logging.LogRecord) -> None:
        clear_line()
        super().emit(record)


class _OneLine(logging.Formatter):
    """Messages may hold names from files."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the message with control characters as escapes."""
        return printable(super().formatMessage(record))


class _ReaderGoneError(Exception):
    """Standard output was closed at the other end."""


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1, which means an invalid schedule
            raise _ReaderGoneError from None
        except InputError as error:
            from orsched.cli.usage import name_option

            name_option(error, self.get_command(ctx, ctx.invoked_subcommand or ""))
            raise


_LIMITS = {
    "max_rows": (ROWS, "rows, cells and texts of a compressed table"),
    "max_cells": (CELLS, "cells of a study"),
    "max_blocks": (BLOCKS, "blocks of prefix caches"),
    "max_steps": (STEPS, "steps that prompts or answers may take"),
}


def _limits(group: click.Group) -> click.Group:
    """Add an option for each limit on what is read and worked out."""
    group.params += [
        click.Option(
            [f"--{name.replace('_', '-')}"],
            type=AT_LEAST_1,
            metavar="N",
            help=f"Most {what} (default: {limit.default:,}).",
        )
        for name, (limit, what) in _LIMITS.items()
    ]
    return group


@_limits
@click.group(
    cls=_Group,
    params=[quiet()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="orsched")
@click.option("-v", "--verbose", count=True, help="Log to stderr; twice for more.")
@click.option(
    "--debug",
    is_flag=True,
    envvar="ORSCHED_DEBUG",
    help="Show Python's traceback of an error; ORSCHED_DEBUG=1 does the same.",
)
@click.pass_context
def cli(context: click.Context, /, verbose: int, debug: bool, **most: int | None) -> None:
    """Schedule LLM inference as the optimisation problem that it is.

    Exit codes: 0 done, 1 a schedule is not valid, 2 bad input, 3 time limit without a schedule,
    4 cells of a study failed, 70 a bug in orsched, 71 the machine failed, 130 interrupted.
    """
    context.ensure_object(_Settings).debug = debug
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = _Handler(sys.stderr)
    handler.setFormatter(_OneLine("orsched: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level)
    for name, number in most.items():
        if number is not None:
            context.with_resource(_variable(_LIMITS[name][0].variable, str(number)))


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for a block: processes that are started in it read it, too."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


_COMMANDS: tuple[type[Options], ...] = (
    SolveCommand, SimulateCommand, BoundCommand, CompareCommand, FrontierCommand, PackCommand,
    RunCommand, CalibrateCommand, CostCommand, CheckCommand, ReportCommand, GenerateCommand,
    ConvertCommand, ExportCommand, StudyCommand, CapacityCommand, InfoCommand,
)  # fmt: skip

for each in (*(options.command for options in _COMMANDS), data_group, predict_group, vllm_group):
    cli.add_command(each)
offer_names(cli)


def run(args: list[str] | None = None) -> int:
    """Run the command line and return its exit code; no traceback unless one is asked for."""
    settings = _Settings()
    escape_what_cannot_be_encoded()
    if sys.stdout is None:
        return _say(
            "error: standard output is closed (give /dev/null to print nothing)", EXIT_MACHINE
        )
    try:
        code = cli.main(args=args, prog_name="orsched", standalone_mode=False, obj=settings)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (click.exceptions.Abort, KeyboardInterrupt):
        with suppress(KeyboardInterrupt):  # a further one, while the first is reported
            _say("interrupted", EXIT_INTERRUPTED)
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return EXIT_INPUT
        from orsched.cli.usage import explained

        return _say(f"error: {explained(error)}", EXIT_INPUT)
    except (BrokenPipeError, _ReaderGoneError):
        # The reader went away (orsched ... | head): nothing left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if settings.debug:
            show_lines(traceback.format_exc())
        code = _failed(error)
        if code == EXIT_MACHINE:
            _drop_output()
        return code


def _drop_output() -> None:
    """Let nothing that could not be written be tried again when the interpreter ends."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(error: Exception) -> int:
    """Print the error in one line and return the exit code; an unexpected one is a bug."""
    if isinstance(error, TimeLimitError):
        return _say(str(error), EXIT_TIME_LIMIT)
    if isinstance(error, InvalidScheduleError):
        return _say(str(error), EXIT_INVALID)
    if isinstance(error, ImportError) and not isinstance(
        error, (ModuleNotFoundError, OrschedError)
    ):
        error = unavailable(error, "")
    code = EXIT_MACHINE if is_of_machine(error) else EXIT_INPUT
    if isinstance(error, (OrschedError, OSError)):
        return _say(f"error: {str(error) or type(error).__name__}", code)
    if code == EXIT_MACHINE:
        return _say("error: not enough memory", code)
    what = f"{type(error).__name__}: {error}".strip(": ").splitlines()[0]
    _say(f"a bug in orsched {__version__}: {what}", EXIT_BUG)
    return _say("please report the command with the output of 'orsched --debug ...'", EXIT_BUG)


def _say(message: str, code: int) -> int:
    say(message)
    return code
