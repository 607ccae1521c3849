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
from orsched.cli.calibrate_command import calibrate_command
from orsched.cli.capacity_command import capacity_command
from orsched.cli.check_command import check_command
from orsched.cli.compare_command import compare_command
from orsched.cli.completion import offer_names
from orsched.cli.cost_command import cost_command
from orsched.cli.data_commands import data_group
from orsched.cli.exit_codes import (
    EXIT_BUG,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_MACHINE,
    EXIT_TIME_LIMIT,
)
from orsched.cli.export_command import export_command
from orsched.cli.flags import name_option
from orsched.cli.frontier_command import frontier_command
from orsched.cli.info_commands import bound_command, info_command
from orsched.cli.instance_commands import convert_command, generate_command
from orsched.cli.output import (
    QUIET,
    escape_what_cannot_be_encoded,
    printable,
    say,
    show_lines,
)
from orsched.cli.pack_command import pack_command
from orsched.cli.predict_commands import predict_group
from orsched.cli.report_command import report_command
from orsched.cli.run_command import run_command
from orsched.cli.simulate_command import simulate_command
from orsched.cli.solve_commands import solve_command
from orsched.cli.study_command import study_command
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


@dataclass
class _Settings:
    """Options of the group, for the place where errors become messages."""

    debug: bool = False


class _Handler(logging.StreamHandler[TextIO]):
    """Messages take a line of progress away before they are printed."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
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
            name_option(error, self.get_command(ctx, ctx.invoked_subcommand or ""))
            raise


def _be_quiet(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Keep it where all that is printed looks."""
    if value:
        context.meta[QUIET] = True


_QUIET_OPTION = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_be_quiet,
    help="No progress and no remarks on stderr; errors are said.",
)


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="orsched")
@click.option("-v", "--verbose", count=True, help="Log to stderr; twice for more.")
@_QUIET_OPTION
@click.option(
    "--debug",
    is_flag=True,
    envvar="ORSCHED_DEBUG",
    help="Show Python's traceback of an error; ORSCHED_DEBUG=1 does the same.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Most rows, cells and texts of a compressed table (default: {ROWS.default:,}).",
)
@click.option(
    "--max-cells",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Most cells of a study (default: {CELLS.default:,}).",
)
@click.option(
    "--max-blocks",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Most blocks of prefix caches (default: {BLOCKS.default:,}).",
)
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Most steps that prompts may take (default: {STEPS.default:,}).",
)
@click.pass_context
def cli(
    context: click.Context,
    verbose: int,
    debug: bool,
    max_rows: int | None,
    max_cells: int | None,
    max_blocks: int | None,
    max_steps: int | None,
) -> None:
    """Schedule LLM inference as the optimisation problem that it is.

    Exit codes: 0 done, 1 a schedule is not valid, 2 bad input, 3 time limit without a schedule,
    4 cells of a study failed, 70 a bug in orsched, 71 the machine failed, 130 interrupted.
    """
    context.ensure_object(_Settings).debug = debug
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = _Handler(sys.stderr)
    handler.setFormatter(_OneLine("orsched: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level)
    limits = {ROWS: max_rows, CELLS: max_cells, BLOCKS: max_blocks, STEPS: max_steps}
    for limit, most in limits.items():
        if most is not None:
            context.with_resource(_variable(limit.variable, str(most)))


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


for command in (
    solve_command,
    simulate_command,
    bound_command,
    compare_command,
    frontier_command,
    pack_command,
    run_command,
    calibrate_command,
    cost_command,
    check_command,
    report_command,
    generate_command,
    convert_command,
    export_command,
    data_group,
    predict_group,
    study_command,
    capacity_command,
    vllm_group,
    info_command,
):
    cli.add_command(command)
    if not isinstance(command, click.Group):
        _QUIET_OPTION(command)


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
