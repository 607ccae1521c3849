"""The command group, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

import click

from orsched._version import __version__
from orsched.cli.completion import offer_names
from orsched.cli.declaring import AT_LEAST_1, quiet
from orsched.cli.ending import (
    EXIT_BUG,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_MACHINE,
    EXIT_TIME_LIMIT,
)
from orsched.cli.output import escape_what_cannot_be_encoded, printable, say, show_lines
from orsched.common.errors import (
    InputError,
    InvalidScheduleError,
    OrschedError,
    TimeLimitError,
    is_of_machine,
    unavailable,
)
from orsched.common.scalars import BLOCKS, CELLS, ROWS, STEPS
from orsched.solving.progress import clear_line

if TYPE_CHECKING:
    from collections.abc import Iterator


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


_COMMANDS = {
    "batch": ("pieces_commands", "Batch prompts so that all batches take the least time."),
    "bound": ("bound_commands", "Print a proven lower bound with its certificate."),
    "calibrate": ("calibrate_command", "Measure a worker and fit cost models to it."),
    "capacity": ("capacity_command", "Find the fewest workers that keep limits, with a proof."),
    "check": ("check_commands", "Check every rule and reported number of a schedule."),
    "compare": ("compare_command", "Solve with several methods, one line for each."),
    "convert": ("instance_commands", "Convert requests or a trace to an instance file."),
    "cost": ("cost_command", "Derive a cost model from a data sheet, or from kernel times."),
    "data": ("instance_commands", "List, verify and convert public data sets."),
    "export": ("instance_commands", "Write a MIP of an instance as an MPS or LP file."),
    "gantt": ("pieces_commands", "Draw schedules as Gantt charts in one picture."),
    "generate": ("instance_commands", "Make an instance with a generator."),
    "info": ("info_command", "Describe an instance, a method, a generator; list them."),
    "library": ("library_commands", "List, verify and submit for the public instances."),
    "offload": ("pieces_commands", "Assign jobs to the least loaded worker, or by stealing."),
    "pack": ("bound_commands", "Pack sizes onto clients so that the fullest is least full."),
    "paper": ("paper_command", "Rerun figures and tables of five papers; judge statements."),
    "predict": ("predict_commands", "Predict output lengths from prompts."),
    "report": ("check_commands", "Draw and list schedules: report, charts, records."),
    "run": ("run_command", "Execute a schedule or a policy; hold plan against run."),
    "simulate": ("solve_commands", "Run a policy once, from start to end."),
    "solve": ("solve_commands", "Make a schedule, bound it and check it."),
    "study": ("study_command", "Run a grid of instances, policies and seeds."),
    "tune": ("tune_command", "Find the setting of an engine that keeps limits best."),
    "validate": ("validate_command", "Predict measured configurations; print the errors."),
    "vllm": ("vllm_command", "Send a plan's order to vLLM; read what it measured."),
}  # fmt: skip
"""The module of each command, and what the list of commands says of it."""


@cache
def _imported(name: str) -> click.Command:
    module = import_module(f"orsched.cli.{_COMMANDS[name][0]}")
    options = getattr(module, f"{name.capitalize()}Command", None)
    command: click.Command = options.command if options else getattr(module, f"{name}_group")
    offer_names(command)
    return command


class _Group(click.Group):
    """A command is imported when it is asked for: neither the list nor another one needs it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _imported(cmd_name) if cmd_name in _COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1, which means an invalid schedule
            raise _ReaderGoneError from None
        except InputError as error:
            from orsched.cli.completion import name_option

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
        from orsched.cli.completion import explained

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
