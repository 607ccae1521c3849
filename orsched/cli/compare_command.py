"""``orsched compare``: several methods on one instance, or on many seeds of a generator."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from orsched.cli import EXIT_INTERRUPTED, EXIT_TIME_LIMIT
from orsched.cli.artefacts import check_paths, write_comparison
from orsched.cli.class_output import print_classes, with_classes
from orsched.cli.deadline import ended_by
from orsched.cli.instance_commands import read_settings
from orsched.cli.options import (
    FORMAT,
    GAP,
    INSTANCE,
    ITERATIONS,
    SEED,
    TIME_LIMIT,
    load_instance,
    with_options,
)
from orsched.cli.output import print_notes, print_rows, say
from orsched.cli.policies import own_code
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import REQUEST_OPTIONS
from orsched.cli.solve_commands import left_of
from orsched.errors import InputError, TimeLimitError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.solver import Comparison

_MOST_SEEDS = 1_000_000
_MEANS = (
    "makespan_s",
    "slot_utilization",
    "prefill_stages",
    "decode_rounds",
    "tokens_per_s",
    "bound_s",
    "gap",
    "decision_p99_s",
)


@click.command("compare", short_help="Solve with several methods, one line for each.")
@INSTANCE
@click.option(
    "--methods",
    default="fcfs,offline,online,hybrid",
    show_default=True,
    help="Names, separated by commas; name@information picks what a method may know.",
)
@click.option(
    "--seeds",
    metavar="A:B",
    help="INSTANCE is a generator (see orsched info): run its seeds A to B-1 and print means.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --seeds: an argument of the generator; may be given several times.",
)
@click.option("--each", is_flag=True, help="With --seeds: a row a seed instead of means.")
@with_options(SEED, TIME_LIMIT, ITERATIONS, GAP, FORMAT)
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML report."
)
@click.option(
    "--gantt", type=click.Path(file_okay=False, path_type=Path), help="Write charts to a folder."
)
@with_options(*REQUEST_OPTIONS)
def compare_command(
    instance: str,
    methods: str,
    seeds: str | None,
    settings: tuple[str, ...],
    each: bool,
    seed: int,
    time_limit: float | None,
    iterations: int | None,
    gap: float | None,
    style: str,
    report: Path | None,
    gantt: Path | None,
) -> int:
    """Solve INSTANCE with several methods and print one line for each.

    Examples: orsched compare gsm8k-llama65b;
    orsched compare gsm8k --seeds 0:10 --methods fcfs,hybrid,hybrid@predicted;
    orsched compare pang-case --seeds 0:100 --methods fcfs,hybrid (Pang's 100-case study).

    Methods without a schedule when the time limit ends are named on stderr; the others are printed
    and the exit code is 3. With --seeds the seeds before are printed.
    """
    from orsched.solver import compare
    from orsched.stop import MaxRuntime, require_gap

    begin = perf_counter()
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates before the loading
    if gap is not None:
        require_gap(gap, "--gap")
    chosen = [name.strip() for name in methods.split(",") if name.strip()]
    if not chosen:
        raise InputError("no method is named", field="--methods")
    options: dict[str, Any] = {"seed": seed, "iterations": iterations, "gap": gap}
    if seeds is not None:
        if report is not None or gantt is not None:
            raise InputError("charts and reports show one instance", field="--seeds")
        return _compare_seeds(instance, chosen, seeds, settings, each, time_limit, options, style)
    if settings or each:
        raise InputError("--set and --each go with --seeds", field="--seeds")
    check_paths({"report": report}, [instance])
    with ProgressPrinter("loading") as progress:
        with ended_by(time_limit), own_code(chosen):
            problem = load_instance(instance)
            results = compare(
                problem,
                chosen,
                callback=progress.callback,
                time_limit=left_of(time_limit, begin),
                **options,
            )
        progress.say("writing")
        names = [f"{r.label or r.schedule.method}-{r.information}" for r in results]
        write_comparison(problem, [r.schedule for r in results], report, gantt, names)
    print_rows([with_classes(result, style) for result in results], style)
    print_classes(results, style)
    print_notes(results)
    return _exit_code(results)


def _compare_seeds(
    generator: str,
    methods: list[str],
    seeds: str,
    settings: tuple[str, ...],
    each: bool,
    time_limit: float | None,
    options: dict[str, Any],
    style: str,
) -> int:

    values = read_seeds(seeds)
    arguments = read_settings(settings, "--seeds")
    done: list[tuple[int, Comparison]] = []
    code = 0
    with ProgressPrinter(generator) as progress:
        try:
            with ended_by(time_limit), own_code(methods):
                for value, results in _over_seeds(
                    generator, methods, values, arguments, time_limit, options, progress
                ):
                    code = _exit_code(results, f"seed {value}: ")
                    if code:
                        break  # interrupted or out of time: the seeds before are complete
                    done.append((value, results))
        except TimeLimitError as error:
            if not done:
                raise
            say(f"seed {values[len(done)]}: {error}")
            code = EXIT_TIME_LIMIT
    if not done:
        if code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        return code
    if each:
        rows = [{"seed": value, **row} for value, results in done for row in results.to_rows()]
    else:
        rows = [_mean([results[i].to_row() for _, results in done]) for i in range(len(methods))]
    print_rows(rows, style)
    return code


def _over_seeds(
    generator: str,
    methods: list[str],
    seeds: range,
    arguments: dict[str, Any],
    time_limit: float | None,
    options: dict[str, Any],
    progress: ProgressPrinter,
) -> Iterator[tuple[int, Comparison]]:
    """Yield each seed with its comparison; each seed gets an equal share of the time left."""
    from orsched.instances.catalog import generate
    from orsched.solver import compare

    begin = perf_counter()
    for position, value in enumerate(seeds):
        progress.say(f"{generator}: seed {value}, {position} of {len(seeds)} done")
        left = left_of(time_limit, begin)
        share = None if left is None else left / (len(seeds) - position)
        problem = generate(generator, seed=value, **arguments)
        yield value, compare(problem, methods, time_limit=share, **options)


def _exit_code(results: Comparison, where: str = "") -> int:
    """Name the methods that made no schedule in time; return 130 after Ctrl-C, 3 after those, 0."""
    from orsched.result import Termination

    for message in results.timed_out:
        say(f"{where}{message}")
    if any(r.termination is Termination.INTERRUPTED for r in results):
        return EXIT_INTERRUPTED
    return EXIT_TIME_LIMIT if results.timed_out else 0


def read_seeds(text: str) -> range:
    """Return the seeds of ``A:B`` (A to B - 1) or of a single number."""
    first, colon, last = text.partition(":")
    try:
        low = int(first)
        high = int(last) if colon else low + 1
    except ValueError:
        raise InputError(f"{text!r} is not A:B", field="--seeds", remedy="e.g. 0:10") from None
    if not 0 <= low < high:
        raise InputError(f"{text!r} holds no seed", field="--seeds", remedy="e.g. 0:10")
    if high - low > _MOST_SEEDS:
        raise InputError(f"{high - low} seeds", field="--seeds", remedy=f"at most {_MOST_SEEDS}")
    return range(low, high)


def _mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of each figure over rows of one method."""
    first = rows[0]
    means: dict[str, Any] = {
        "method": first["method"],
        "information": first["information"],
        "seeds": len(rows),
    }
    for name in _MEANS:
        values = [row[name] for row in rows if row[name] is not None]
        means[name] = sum(values) / len(values) if values else None
    means["checked"] = all(row["checked"] for row in rows)
    return means
