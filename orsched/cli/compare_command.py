"""``orsched compare``: several methods on one instance, or on many seeds of a generator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.cli.artefacts import check_paths, require_packages, write_comparison
from orsched.cli.columns import ViewedResults, print_methods, print_results, with_classes
from orsched.cli.declaring import FOLDER, command, option
from orsched.cli.ending import EXIT_INTERRUPTED, EXIT_TIME_LIMIT, ended_by
from orsched.cli.instance_commands import generator_arguments
from orsched.cli.machines import say_machine
from orsched.cli.options import INSTANCE, Judged, Problem, Search, derived, merged
from orsched.cli.output import ProgressPrinter, counted, say
from orsched.cli.policies import exit_code_of, own_code, require_search
from orsched.cli.request_options import Requests, load_instance
from orsched.common.errors import InputError, TimeLimitError
from orsched.solving.result import ROW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orsched.data.instance import Instance
    from orsched.data.service_classes import SLO
    from orsched.planning.study.plan import Settings
    from orsched.solving.comparison import Comparison
    from orsched.solving.method_choice import Chosen

_MOST_SEEDS = 1_000_000
_WORDS = ("method", "information", "checked", "objective", "notes")
_COUNTED = ("status", "best_of", "certified", "termination")


@command(
    "compare",
    usual="methods clients cost workers arrivals slo_ttft slo_text seeds report style",
)
class CompareCommand(Problem, Search, Judged, ViewedResults, Requests):
    """Solve INSTANCE with several methods and print one line for each.

    Examples: orsched compare gsm8k-llama65b;
    orsched compare gsm8k-llama65b --methods fcfs,vllm,mine.py:Policy --workers 4
    --arrivals poisson:rate=20 --slo-ttft 2 --slo-tpot 0.05;
    orsched compare gsm8k --seeds 0:10 --methods fcfs,hybrid,hybrid@predicted;
    orsched compare pang-case --seeds 0:100 --methods fcfs,hybrid (Pang's 100-case study).

    A method that makes no schedule has the reason in its line, in full on stderr, and is not the
    end of the others. Exit codes: 0 all made one, 2 some did not, 3 some did not in the time limit.
    With --seeds and a time limit the seeds before are printed.
    """

    instance: str = INSTANCE
    methods: str = option(
        "Names, module:Class or path/to/own.py:Class, separated by commas; name@information picks "
        "what a method may know, name+parameter=value sets a parameter.",
        default="fcfs,offline,online,hybrid",
    )
    seeds: str | None = option(
        "INSTANCE is a generator (see orsched info): run its seeds A to B-1 and print means.",
        metavar="A:B",
    )
    settings: tuple[str, ...] = option(
        "With --seeds: an argument of the generator; may be given several times.",
        "--set",
        metavar="NAME=VALUE",
    )
    each: bool = option("With --seeds: a row a seed instead of means.")
    param: tuple[str, ...] = option("", hidden=True)
    report: Path | None = option("Write an HTML report.")
    gantt: Path | None = option("Write charts to a folder.", type=FOLDER)

    def names(self) -> list[str]:
        """Return the names of the methods; parameters stand behind them."""
        if self.param:
            raise InputError(
                "the methods have parameters of their own",
                field="--param",
                remedy=f"write it behind the method's name: --methods 'fcfs,vllm+{self.param[0]}'",
            )
        names = [name.strip() for name in self.methods.split(",") if name.strip()]
        if not names:
            raise InputError("no method is named", field="--methods", remedy="e.g. fcfs,vllm")
        return names

    def require_seeds(self) -> None:
        """Refuse what goes with ``--seeds`` alone, or never goes with it."""
        if self.seeds is None and (self.settings or self.each):
            raise InputError(
                "--set and --each go with --seeds",
                field="--seeds",
                remedy="add --seeds A:B, or leave them out",
            )
        if self.seeds is not None and (self.report or self.gantt):
            raise InputError(
                "charts and reports show one instance",
                field="--seeds",
                remedy="leave --seeds out, or the charts and the report",
            )

    def read_settings(self) -> Settings:
        """Return the settings of options and file; the file's policy is for ``simulate``."""
        run = self.scenario()
        if self.config is None:
            return run
        run = merged(run, self.config, allow_code=True)  # nothing is loaded: a policy is refused
        if run.policy is not None or run.parameters or run.information is not None:
            raise InputError(
                "[policy] is for orsched simulate",
                file=str(self.config),
                field="policy",
                remedy="take it out, and name the methods with --methods",
            )
        return run

    def compare(
        self, problem: Instance, methods: list[Chosen], slo: SLO | None, **options: Any
    ) -> Comparison:
        """Run the methods on an instance."""
        from orsched.solving.solver import compare

        return compare(
            problem,
            methods,
            iterations=self.iterations,
            gap=self.gap,
            slo=slo,
            bounds=self.bounds,
            objective=self.objective,
            **options,
        )

    def _run(self) -> int:
        self.require_ends()
        names = self.names()
        slo, style = self.slo, self.style
        check_paths({"report": self.report}, self.read(self.instance))
        require_packages({"report": self.report, "gantt": self.gantt})
        run = self.read_settings()
        check_paths({"report": self.report}, run.files or ())
        self.require_seeds()
        chosen = _chosen(names)
        require_search(names, self.ends_of_search)
        if self.seeds is not None:
            return _compare_seeds(self, self.seeds, run, chosen, slo)
        with ProgressPrinter("loading") as progress:
            with ended_by(self.time_limit), own_code(names):
                problem = derived(load_instance(self.instance), run)
                results = self.compare(
                    problem,
                    chosen,
                    slo,
                    seed=run.seed or 0,
                    callback=progress.callback,
                    time_limit=self.time_left,
                )
            progress.say("writing")
            titles = [r.label or r.schedule.method for r in results]
            schedules = [r.schedule for r in results]
            write_comparison(problem, schedules, self.report, self.gantt, titles)
        rows = results.with_failed(
            [with_classes(r, style) for r in results], short=style == "table"
        )
        print_methods(rows, list(results), style, problem, objective=self.objective)
        return exit_code_of(results)


def _chosen(names: list[str]) -> list[Chosen]:
    """Return the methods of the names; refuses, before anything runs, those that are wrong."""
    from orsched.solving.method_choice import choose_all

    found = []
    for name in names:
        with own_code([name]):
            found += choose_all([name], field="--methods")
    return found


def _compare_seeds(
    given: CompareCommand, seeds: str, run: Settings, methods: list[Chosen], slo: SLO | None
) -> int:
    """Print means over seeds (or a row a seed) as far as time allows; return the exit code."""
    from orsched.solving.objectives import arrives_over_time

    values, generator = read_seeds(seeds), given.instance
    if os.path.exists(generator):
        raise InputError(
            f"--seeds are those of a generator, and {generator} is a file",
            field="--seeds",
            remedy="leave it out: --seed N is the seed of arrivals and random choices",
        )
    made = _Made(given, run, methods, slo, generator_arguments(given.settings, "--seeds"))
    done: list[tuple[int, Comparison]] = []
    code, over_time = 0, False
    with ProgressPrinter(generator) as progress:
        try:
            with ended_by(given.time_limit), own_code(given.names()):
                for value, problem, results in made.over(values, progress):
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
    short = given.style == "table"
    tables = [
        found.with_failed([each.to_row() for each in found], short=short) for _, found in done
    ]
    if given.each:
        seeded = zip(done, tables, strict=True)
        rows = [{"seed": value, **row} for (value, _), table in seeded for row in table]
    else:
        rows = _means(tables)
    print_results(rows, given.style, over_time=over_time, objective=given.objective)
    return code


class _Made(NamedTuple):
    """Instances of a generator, one a seed, and what runs on them."""

    given: CompareCommand
    run: Settings
    methods: list[Chosen]
    slo: SLO | None
    arguments: dict[str, Any]

    def over(
        self, seeds: range, progress: ProgressPrinter
    ) -> Iterator[tuple[int, Instance, Comparison]]:
        """Yield each seed with instance and comparison; each gets an equal share of the time."""
        from orsched.instances.catalog import generate

        generator, seed = self.given.instance, self.run.seed or 0
        for position, value in enumerate(seeds):
            progress.say(f"{generator}: seed {value}, {position} of {len(seeds)} done")
            left = self.given.time_left
            share = None if left is None else left / (len(seeds) - position)
            problem = derived(generate(generator, seed=value, **self.arguments), self.run, value)
            found = self.given.compare(problem, self.methods, self.slo, time_limit=share, seed=seed)
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
        raise InputError(
            f"{low} is not a seed: they start at 0", field="--seeds", remedy="e.g. 0:10"
        )
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
            means[name] = counted(values)
        else:
            means[name] = sum(values) / len(values) if values else None
    means["checked"] = all(row["checked"] for row in made) if made else None
    several = f" ({len(errors)} of {len(rows)} seeds)" if made else ""
    means["error"] = f"{errors[0]}{several}" if errors else None
    return means
