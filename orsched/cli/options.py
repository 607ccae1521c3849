"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orsched.cli.request_options import load_instance as load_instance
from orsched.cli.seconds import SECONDS, note_milliseconds
from orsched.common.errors import InputError
from orsched.common.near_names import known_names

if TYPE_CHECKING:
    from orsched.metrics.summary import SLO
    from orsched.solving.objectives import Objective

F = TypeVar("F", bound=Callable[..., Any])


INSTANCE = click.argument("instance", metavar="INSTANCE")
FORMAT = click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How results are printed on stdout.",
)
SEED = click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the method's random choices."
)
TIME_LIMIT = click.option(
    "--time-limit",
    type=SECONDS,
    metavar="SECONDS",
    help="End after this time: loading, bounding and checking count, writing files does not.",
)
ITERATIONS = click.option(
    "--iterations",
    type=int,
    metavar="N",
    help="Iterations of a method that searches: reproducible, unlike a time limit. exact counts "
    "none.",
)
GAP = click.option(
    "--gap",
    type=float,
    metavar="SHARE",
    help="End a search once the makespan is proven to be so close to the least: 0.01 is 1 %.",
)
_BOUNDS = ("makespan", "mean_jct", "mean_ttft")
BOUNDS = click.option(
    "--bounds",
    type=click.UNPROCESSED,
    default=(),
    metavar="A,B",
    callback=lambda _context, _parameter, value: _bounds(value) if value else (),
    help="Bounds on means beside those on the makespan: mean_jct, mean_ttft.",
)
OBJECTIVE = click.option(
    "--objective",
    default=None,
    metavar="NAME",
    callback=lambda _context, _parameter, value: None if value is None else _objective(value),
    help="What to minimise: makespan, jct_mean, ttft_mean, weighted_jct_mean, a weighted sum such "
    "as 0.3*makespan+0.7*jct_mean; or slo_attainment, to be made large.  [default: makespan]",
)
PARAMETERS = click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the method or policy; may be given several times.",
)
ALLOW_CODE = click.option(
    "--allow-code",
    is_flag=True,
    help="Import and run the policies that the file names as module:Class: read them first.",
)
ALLOW_PICKLE = click.option(
    "--allow-pickle",
    is_flag=True,
    help="Load pickled weights of a model's folder (default: safetensors only).",
)
GRAPH_OPTIONS = (
    click.option(
        "--graph-seconds",
        type=float,
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="Longest time for capturing steps as graphs before time 0, on a GPU (0: no graphs).",
    ),
    click.option(
        "--graph-memory",
        default="2GiB",
        show_default=True,
        metavar="BYTES",
        help="Most memory for these graphs; a step without a graph runs as it is.",
    ),
)
SLO_OPTIONS = (
    click.option("--slo-ttft", type=SECONDS, metavar="SECONDS", help="Limit on TTFT."),
    click.option("--slo-tpot", type=SECONDS, metavar="SECONDS", help="Limit on TPOT."),
)


def with_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that applies options in the order they should show in the help."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _bounds(text: str) -> tuple[str, ...]:
    """Return the names of bounds; refuses, before anything is loaded, one that there is not."""
    from orsched.solving.objectives import other_name

    names = tuple(other_name(name.strip()) for name in text.split(",") if name.strip())
    for name in names:
        if name not in _BOUNDS:
            raise InputError(
                f"there is no bound on {name!r}",
                field="--bounds",
                remedy=known_names(name, _BOUNDS),
            )
    return names


def _objective(text: str) -> Objective:
    from orsched.solving.objectives import minimised

    return minimised(text)


def read_slo(ttft_s: float | None, tpot_s: float | None) -> SLO | None:
    """Return the service-level objective, or None when no limit is given."""
    from orsched.common.units import seconds_to_ns
    from orsched.metrics.summary import SLO

    if ttft_s is None and tpot_s is None:
        return None
    note_milliseconds(ttft_s, tpot_s)
    return SLO(
        ttft_ns=None if ttft_s is None else seconds_to_ns(ttft_s, "--slo-ttft"),
        tpot_ns=None if tpot_s is None else seconds_to_ns(tpot_s, "--slo-tpot"),
    )
