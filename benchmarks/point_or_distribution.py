"""What a predicted distribution is worth beside its median: the tables of docs/predict.md.

    python -m benchmarks.point_or_distribution [--seeds 5] [--requests 2000] [--batch 500]
                                               [--aging 30] [--workload NAME ...]

The same predictions are given to a policy as medians, or as medians with quantiles. Workloads:
``two spreads``, log-normal lengths that are known to 10 % or to a factor of e; ``short or long``,
where half of the requests are either as long as their median or ten times as long; both with the
quantiles of their laws, then ``too narrow``, the first with quantiles that claim a spread of a
third; ``few``, the first with 300 requests; ``chat`` and ``code``, the corpora of
``orsched.predict`` with the quantiles of the default predictor. The first table is mean JCT under
``gittins`` near saturation of four workers, the second the makespan of ``robust`` and ``rolling``
on one worker that has all requests at the start. ``--aging`` is that of ``gittins`` with quantiles
alone: mean and p99 are traded by it.
"""

from __future__ import annotations

import argparse
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import orsched
from benchmarks.arguments import count
from orsched.instances import with_arrivals
from orsched.instances.streams import stream
from orsched.predict import LengthPredictor, make_corpus, predict_instance, train
from orsched.study.confidence import mean_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orsched.columns import IntColumn

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
LIMIT = 4000
WORKER = orsched.Worker(
    16, orsched.AffineCost(25_000_000, 150_000, 25_000_000, 150_000), prefill_cap_tokens=None
)
PER_S = {"two spreads": 11.0, "short or long": 8.0, "too narrow": 11.0, "few": 11.0,
         "chat": 15.0, "code": 15.0}  # fmt: skip
BATCHES = ("two spreads", "short or long", "too narrow")


class Drawn(NamedTuple):
    """Lengths, and the quantiles that are predicted for them."""

    outputs: IntColumn
    quantiles: IntColumn


def two_spreads(count: int, seed: int, claimed: float = 1.0) -> Drawn:
    """Draw log-normal lengths whose spread is 0.1 or 1, with that times ``claimed`` predicted."""
    draws = stream("two spreads", seed)
    center = draws.normal(4.8, 0.8, count)
    spread = np.array([0.1, 1.0])[draws.integers(0, 2, count)]
    z = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
    return _drawn(draws.normal(center, spread), center[:, None] + claimed * spread[:, None] * z)


def short_or_long(count: int, seed: int) -> Drawn:
    """Draw lengths near their median; of half of the requests, 45 % are ten times as long."""
    draws = stream("short or long", seed)
    center, either = draws.normal(4.2, 0.8, count), draws.random(count) < 0.5
    longer = either & (draws.random(count) < 0.45)
    lengths = draws.normal(center, 0.1) + longer * np.log(10)
    factors = np.array([[_quantile(share, level) for level in LEVELS] for share in (0.0, 0.45)])
    return _drawn(lengths, center[:, None] + factors[either.astype(int)])


def _quantile(share: float, level: float) -> float:
    """Return a quantile of N(0, 0.1), or with this share of N(log 10, 0.1), by bisection."""
    normal, low, high = NormalDist(0, 0.1), -1.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        below = (1 - share) * normal.cdf(middle) + share * normal.cdf(middle - float(np.log(10)))
        low, high = (middle, high) if below < level else (low, middle)
    return low


def _drawn(logs: np.ndarray, quantiles: np.ndarray) -> Drawn:  # type: ignore[type-arg]
    return Drawn(
        *(np.clip(np.rint(np.exp(each)), 1, LIMIT).astype(int) for each in (logs, quantiles))
    )


LAWS: dict[str, Callable[[int, int], Drawn]] = {
    "two spreads": two_spreads,
    "short or long": short_or_long,
    "too narrow": lambda count, seed: two_spreads(count, seed, 1 / 3),
    "few": two_spreads,
}


@lru_cache
def predictor_of(domain: str) -> LengthPredictor:
    """Return the default predictor, trained on rows of the corpus that no workload has."""
    return train(make_corpus(domain, 10_000, seed=10**6), seed=0)


def served(workload: str, count: int, seed: int) -> orsched.Instance:
    """Return the requests of a workload on four workers, arriving near their saturation."""
    count = min(count, 300) if workload == "few" else count
    prompts = np.clip(stream("prompts", seed).lognormal(6.0, 1.0, count), 16, 8000).astype(int)
    if workload in LAWS:
        drawn = LAWS[workload](count, seed)
        requests = orsched.Requests(
            prompts, drawn.outputs, predicted_quantiles=drawn.quantiles, quantile_levels=LEVELS
        )
        instance = orsched.Instance(requests, (WORKER,) * 4, "prefill", LIMIT)
    else:
        rows = make_corpus(workload, count, seed=seed)
        requests = orsched.Requests(prompts, np.minimum(rows.output_tokens, LIMIT))
        instance = orsched.Instance(requests, (WORKER,) * 4, "prefill", LIMIT)
        instance = predict_instance(instance, predictor_of(workload), rows.prompts)
    return with_arrivals(instance, f"poisson:rate={PER_S[workload]}", seed=seed)


def batch(workload: str, count: int, seed: int) -> orsched.Instance:
    """Return the requests of a workload on one worker, all there at the start."""
    instance = served(workload, count, seed)
    requests = instance.requests.replace(
        arrival_ns=np.zeros(len(instance), int), prompt_tokens=instance.requests.prompt_tokens // 4
    )
    worker = orsched.Worker(48, WORKER.cost, 2048)
    return instance.replace(requests=requests, workers=(worker,))


def medians(instance: orsched.Instance) -> orsched.Instance:
    """Return the instance without its quantiles."""
    return instance.replace(requests=instance.requests.replace(predicted_quantiles=None))


def figures(instance: orsched.Instance, spec: str) -> dict[str, float]:
    """Return mean and p99 of JCT, and the makespan, in seconds."""
    schedule = orsched.simulate(instance, spec).schedule
    jct = schedule.results["jct_ns"]
    return {
        "mean": jct["mean"] / 1e9,
        "p99": jct["p99"] / 1e9,
        "makespan": schedule.makespan_ns / 1e9,
    }


def averaged(found: Sequence[dict[str, float]], name: str) -> float:
    """Return the mean of a figure over the seeds."""
    return sum(each[name] for each in found) / len(found)


def change(
    points: Sequence[dict[str, float]], spreads: Sequence[dict[str, float]], name: str
) -> str:
    """Return by how many per cent a figure is higher with quantiles, with its interval."""
    pairs = zip(points, spreads, strict=True)
    found = mean_interval([100 * (spread[name] / point[name] - 1) for point, spread in pairs])
    if found.low is None or found.high is None:  # one seed
        return f"{found.mean:+.2f}"
    return f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def latencies(workloads: Iterable[str], seeds: int, count: int, aging: float) -> None:
    """Print the rows of the first table."""
    for workload in workloads:
        instances = [served(workload, count, seed) for seed in range(seeds)]
        none, known = (
            averaged([figures(each, f"gittins@{told}") for each in instances], "mean")
            for told in ("none", "clairvoyant")
        )
        points = [figures(medians(each), "gittins@predicted") for each in instances]
        spreads = [figures(each, f"gittins@predicted+aging={aging:g}") for each in instances]
        cells = [
            workload,
            *(
                f"{each:.2f}"
                for each in (none, averaged(points, "mean"), averaged(spreads, "mean"))
            ),
            change(points, spreads, "mean"),
            f"{known:.2f}",
            f"{averaged(points, 'p99'):.1f}",
            f"{averaged(spreads, 'p99'):.1f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def makespans(workloads: Iterable[str], seeds: int, count: int) -> None:
    """Print the rows of the second table."""
    for workload in workloads:
        instances = [batch(workload, count, seed) for seed in range(seeds)]
        for spec in ("robust", "rolling@predicted+background=thread"):
            points = [figures(medians(each), spec) for each in instances]
            spreads = [figures(each, spec) for each in instances]
            cells = [
                workload,
                spec.split("@")[0],
                *(f"{averaged(each, 'makespan'):.2f}" for each in (points, spreads)),
                change(points, spreads, "makespan"),
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print the tables."""
    parser = argparse.ArgumentParser(prog="point_or_distribution", description=__doc__)
    parser.add_argument("--seeds", type=count, default=5)
    parser.add_argument("--requests", type=int, default=2000, help="of the first table")
    parser.add_argument("--batch", type=int, default=500, help="requests of the second table")
    parser.add_argument("--aging", type=float, default=30.0, help="of gittins with quantiles")
    parser.add_argument("--workload", nargs="*", choices=PER_S, default=list(PER_S), metavar="NAME")
    given = parser.parse_args(arguments)
    print("| workload | none | median | distribution | against the median, % | known | "
          "p99, median | p99, distribution |")  # fmt: skip
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    latencies(given.workload, given.seeds, given.requests, given.aging)
    print("\n| workload | method | median | distribution | against the median, % |")
    print("| --- | --- | ---: | ---: | ---: |")
    batches = [name for name in given.workload if name in BATCHES]
    makespans(batches, given.seeds, given.batch)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
