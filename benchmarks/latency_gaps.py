"""What is proven of latencies: policies and a search over the best bounds on their means.

python -m benchmarks.latency_gaps [--only at_once workloads] [--seconds S] [--seeds N]
    [--objectives jct_mean ttft_mean] [--sizes 100x20 1319x200] [--loads 0.5 0.7 0.9]
    [--names NAME ...] [--first-seed K] [--iterations N]

``at_once``: prompts of GSM8K, all requests at 0, one worker; each seed draws other output lengths.
``workloads`` needs ``ORSCHED_DATA``: the four workloads of the page *Four real workloads* on four
workers with the cost ``means``, one seed (``--first-seed``) at each load.

A bound here is of all schedules that prefill each request once, chunks and mixed steps included;
where one of a row restarts requests it says so, and the bound is one that allows that. At once the
search ends after ``--seconds``, so its digits may differ from run to run; with arrivals after
``--iterations``. Nothing else depends on the machine.
"""

from __future__ import annotations

import argparse
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import orsched
from benchmarks.arguments import count, share
from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.page_tables import markdown
from benchmarks.which_side_is_loose import bounds_of
from orsched.checker import check
from orsched.common.stop import MaxIterations
from orsched.common.units import NS_PER_S
from orsched.data.schedule_classes import allowances_of
from orsched.instances import catalog
from orsched.metrics.objective_values import objective_value
from orsched.models.bounds.bounds import bound
from orsched.solving.method_choice import choose
from orsched.solving.methods import Run
from orsched.solving.objectives import minimised

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

SIZES = {"100x20": (100, 20), "1319x200": (1319, 200)}
OBJECTIVES = ("jct_mean", "ttft_mean")
AT_ONCE = ("fcfs", "sjf", "gittins@clairvoyant", "latency_search")
WITH_ARRIVALS = ("gittins", "gittins@clairvoyant", "latency_search")
SEARCH = "latency_search"
ONCE = frozenset({"chunks", "mixed"})
"""What schedules do that prefill each request once."""


class Found(NamedTuple):
    """Values of methods in seconds, by name, and what bounds have to allow for all of them."""

    values: dict[str, float]
    allows: frozenset[str]


def found_in(instance: Instance, schedules: dict[str, Schedule], objective: str) -> Found:
    """Return what schedules reach, by the names of their methods."""
    values, allows = {}, ONCE
    for method, schedule in schedules.items():
        value = objective_value(instance, schedule, objective)
        assert value is not None
        values[method] = float(value) / NS_PER_S
        allows |= allowances_of(instance, schedule)
    return Found(values, allows)


def in_time(instance: Instance, method: str, objective: str, seconds: float, seed: int) -> Schedule:
    """Return what ``orsched.solve`` finds; a search looks for ``seconds``."""
    if method != SEARCH:
        return orsched.solve(instance, method, seed=seed).schedule
    return orsched.solve(instance, method, objective, time_limit=seconds, seed=seed).schedule


def in_iterations(
    instance: Instance, method: str, objective: str, iterations: int, seed: int
) -> Schedule:
    """Return a method's schedule, checked; without bounds, which take longer than policies here."""
    chosen = choose(method)
    stop = MaxIterations(iterations if method == SEARCH else 1)
    aim = minimised(objective)
    run = Run(chosen.information, stop, seed, chosen.parameters, objective=aim)
    schedule = chosen.method(instance, run).schedule
    violations = check(instance, schedule, limit=1)
    if violations:
        raise SystemExit(f"{instance.name}, {method}: {violations[0]}")
    return schedule


def at_once(
    sizes: Sequence[str], objectives: Sequence[str], seeds: Sequence[int], seconds: float
) -> Iterator[dict[str, Any]]:
    """Yield rows with all requests at 0: values, the bound and what the best is above it."""
    for size in sizes:
        requests, clients = SIZES[size]
        for objective in objectives:
            for seed in seeds:
                instance = catalog.generate("gsm8k", seed=seed, requests=requests, clients=clients)
                schedules = {
                    method: in_time(instance, method, objective, seconds, seed)
                    for method in AT_ONCE
                }
                found = found_in(instance, schedules, objective)
                yield _at_once_row(size, objective, seed, instance, found)


def _at_once_row(
    size: str, objective: str, seed: int, instance: Instance, found: Found
) -> dict[str, Any]:
    lower = bound(instance, objective, None, sorted(found.allows))
    values = {f"{method} s": f"{value:.3f}" for method, value in found.values.items()}
    restarts = ", restarts" if "restarts" in found.allows else ""
    return {
        "size": size.replace("x", " x "),
        "mean": objective.removesuffix("_mean").upper(),
        "seed": seed,
        **values,
        "bound s": f"{lower.value_s:.3f} ({lower.name}{restarts})",
        "gap of gittins": _percent(found.values["gittins@clairvoyant"], lower.value_s),
        "gap of the search": _percent(found.values[SEARCH], lower.value_s),
    }


def _percent(value: float, lower: float) -> str:
    return f"{100 * (value / lower - 1):.2f} %"


def with_arrivals(
    names: Sequence[str], loads: Sequence[float], seed: int, iterations: int
) -> Iterator[dict[str, Any]]:
    """Yield rows of the four workloads: mean JCT over the bounds of before and of now."""
    for load in loads:
        for name in names:
            instance = setting.workload(name, load, seed)
            schedules = {
                method: in_iterations(instance, method, "jct_mean", iterations, seed)
                for method in WITH_ARRIVALS
            }
            found = found_in(instance, schedules, "jct_mean")
            yield _arrivals_row(name, load, instance, found)


def _arrivals_row(name: str, load: float, instance: Instance, found: Found) -> dict[str, Any]:
    sums = bounds_of(instance, sorted(found.allows))
    kind = max(sums, key=lambda each: sums[each])
    old = max(value for each, value in sums.items() if each != "shared_rounds")
    before, lower = (total / len(instance) / NS_PER_S for total in (old, sums[kind]))
    values = {f"{method} s": f"{value:.2f}" for method, value in found.values.items()}
    ratios = {f"{method} / bound": f"{value / lower:.2f}" for method, value in found.values.items()}
    restarts = ", restarts" if "restarts" in found.allows else ""
    return {
        "workload": name,
        "load": f"{load:g}",
        **values,
        "before s": f"{before:.2f}",
        "bound s": f"{lower:.2f} ({kind}{restarts})",
        "best / before": f"{min(found.values.values()) / before:.2f}",
        **ratios,
    }


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what the rows with all requests at 0 say together: mean and largest gaps."""
    for size, mean in dict.fromkeys((row["size"], row["mean"]) for row in rows):
        some = [row for row in rows if (row["size"], row["mean"]) == (size, mean)]
        for who in ("gittins", "the search"):
            gaps = [float(row[f"gap of {who}"].removesuffix(" %")) for row in some]
            yield (
                f"{size}, mean {mean}, {who}: gap {fmean(gaps):.2f} % in the mean of {len(gaps)} "
                f"seeds, at most {max(gaps):.2f} %"
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, each row at once as well where a run takes long."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", choices=["at_once", "workloads"], default=["at_once"])
    parser.add_argument("--seconds", type=share, default=60.0, help="of each search, all at once")
    parser.add_argument("--iterations", type=count, default=30, help="of each, with arrivals")
    parser.add_argument("--seeds", type=count, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--loads", nargs="+", type=share, default=list(setting.LOADS))
    names = list(setting.WORKLOADS)
    parser.add_argument("--names", nargs="+", choices=names, default=names, help="workloads")
    given: Any = parser.parse_args(arguments)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    if "at_once" in given.only:
        rows = _printed(at_once(given.sizes, given.objectives, seeds, given.seconds))
        print("\n" + "\n".join(summary(rows)), flush=True)
    if "workloads" in given.only:
        _printed(with_arrivals(given.names, given.loads, given.first_seed, given.iterations))


def _printed(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print rows as they come, as a table; return them."""
    done = []
    for row in rows:
        lines = markdown([row]).splitlines()
        print("\n".join(lines[2 if done else 0 :]), flush=True)
        done.append(row)
    return done


if __name__ == "__main__":
    main()
