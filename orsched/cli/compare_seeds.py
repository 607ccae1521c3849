"""``orsched compare --seeds``: seeds of a generator, and the means of each method over them."""

from __future__ import annotations

import os
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.cli.columns import print_results
from orsched.cli.deadline import ended_by
from orsched.cli.exit_codes import EXIT_INTERRUPTED, EXIT_TIME_LIMIT
from orsched.cli.failed_methods import exit_code_of
from orsched.cli.instance_commands import read_settings
from orsched.cli.machine_output import say_machine
from orsched.cli.output import say
from orsched.cli.policies import own_code
from orsched.cli.problem_options import derived
from orsched.cli.progress import ProgressPrinter
from orsched.cli.solve_commands import left_of
from orsched.common.errors import InputError, TimeLimitError
from orsched.solving.result import ROW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.data.instance import Instance
    from orsched.planning.study.config import Settings
    from orsched.solving.comparison import Comparison
    from orsched.solving.method_choice import Chosen

_MOST_SEEDS = 1_000_000
_WORDS = ("method", "information", "checked", "objective", "notes")
_COUNTED = ("status", "best_of", "certified", "termination")


class Generated(NamedTuple):
    """Instances of a generator, one a seed."""

    generator: str
    seeds: str
    settings: tuple[str, ...]
    run: Settings


def compare_seeds(
    made: Generated,
    methods: list[Chosen],
    each: bool,
    time_limit: float | None,
    options: dict[str, Any],
    style: str,
) -> int:
    """Print the means over the seeds of a generator, or a row a seed; return the exit code.

    ``time_limit`` is in seconds, for all seeds; where it ends, those before are printed.
    """
    from orsched.solving.objectives import arrives_over_time

    values = read_seeds(made.seeds)
    if os.path.exists(made.generator):
        raise InputError(
            f"--seeds are those of a generator, and {made.generator} is a file",
            field="--seeds",
            remedy="leave it out: --seed N is the seed of arrivals and random choices",
        )
    arguments = read_settings(made.settings, "--seeds")
    done: list[tuple[int, Comparison]] = []
    code, over_time = 0, False
    with ProgressPrinter(made.generator) as progress:
        try:
            with ended_by(time_limit), own_code([each.method.name for each in methods]):
                for value, problem, results in _over_seeds(
                    made, methods, values, arguments, time_limit, options, progress
                ):
                    if not done:
                        say_machine(problem)
                    over_time |= arrives_over_time(problem)
                    ended = exit_code_of(results, f"seed {value}: ")
                    code = ended or code
                    if ended in (EXIT_INTERRUPTED, EXIT_TIME_LIMIT):
                        break  # the seeds before are complete
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
    tables = [
        found.with_failed(
            [result.to_row() for result in found],
            short=style == "table",
        )
        for _, found in done
    ]
    if each:
        seeded = zip(done, tables, strict=True)
        rows = [{"seed": value, **row} for (value, _), made in seeded for row in made]
    else:
        rows = _means(tables)
    print_results(rows, style, over_time=over_time, objective=options["objective"])
    return code


def _over_seeds(
    made: Generated,
    methods: list[Chosen],
    seeds: range,
    arguments: dict[str, Any],
    time_limit: float | None,
    options: dict[str, Any],
    progress: ProgressPrinter,
) -> Iterator[tuple[int, Instance, Comparison]]:
    """Yield each seed, its instance and comparison; each gets an equal share of the time left."""
    from orsched.instances.catalog import generate
    from orsched.solving.solver import compare

    begin = perf_counter()
    for position, value in enumerate(seeds):
        progress.say(f"{made.generator}: seed {value}, {position} of {len(seeds)} done")
        left = left_of(time_limit, begin)
        share = None if left is None else left / (len(seeds) - position)
        problem = derived(generate(made.generator, seed=value, **arguments), made.run, value)
        found = compare(problem, methods, time_limit=share, seed=made.run.seed or 0, **options)
        yield value, problem, found


def read_seeds(text: str) -> range:
    """Return the seeds of ``A:B`` (A to B - 1) or of a single number."""
    first, colon, last = text.partition(":")
    try:
        low = int(first)
        high = int(last) if colon else low + 1
    except ValueError:
        raise InputError(f"{text!r} is not A:B", field="--seeds", remedy="e.g. 0:10") from None
    if low < 0:
        raise InputError(f"{low} is no seed: they start at 0", field="--seeds", remedy="e.g. 0:10")
    if low >= high:
        raise InputError(f"{text!r} holds no seed", field="--seeds", remedy="e.g. 0:10")
    if high - low > _MOST_SEEDS:
        raise InputError(f"{high - low} seeds", field="--seeds", remedy=f"at most {_MOST_SEEDS}")
    return range(low, high)


def _means(tables: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a row for each method, by its place: means over the seeds with a schedule."""
    return [_mean([table[place] for table in tables]) for place in range(len(tables[0]))]


def _mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of each figure over rows of one method."""
    made = [row for row in rows if row["error"] is None]
    errors = [row["error"] for row in rows if row["error"] is not None]
    means: dict[str, Any] = {
        "method": rows[0]["method"],
        "information": made[0]["information"] if made else None,
        "seeds": len(made),
    }
    means["objective"] = made[0]["objective"] if made else None
    for name in (n for n in ROW if n not in _WORDS):
        values = [row[name] for row in made if row[name] is not None]
        if name in _COUNTED:
            means[name] = _counted(values)
        else:
            means[name] = sum(values) / len(values) if values else None
    means["checked"] = all(row["checked"] for row in made) if made else None
    several = f" ({len(errors)} of {len(rows)} seeds)" if made else ""
    means["error"] = f"{errors[0]}{several}" if errors else None
    return means


def _counted(values: list[Any]) -> Any:
    """Return what all seeds have in common, or how often each of several words is said."""
    if len(set(values)) < 2:
        return values[0] if values else None
    counts = Counter(str(value) for value in values)
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
