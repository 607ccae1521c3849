"""Lower bounds: which is best where, what each adds, and the gap to a schedule of ``windows``.

python -m benchmarks.speed.bounds [--seconds S]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

import orsched
from benchmarks.speed.section import Options, Section
from orsched.checker.certificates import bound_violations
from orsched.instances import catalog
from orsched.models.bounds.bounds import improving_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.data.instance import Instance

NAME = "bounds"
SECONDS = 20.0


def run(options: Options, seconds: float = SECONDS) -> Section:
    """Tabulate the bounds of the main instances and of variants with arrivals and workers."""
    section = Section(NAME, "lower bounds, every certificate verified by the checker")
    for name, instance in _single(options.tiny):
        section.rows += _makespan_rows(name, instance, 1.0 if options.tiny else seconds)
    for name, instance in _variants(options.tiny):
        section.rows += _makespan_rows(name, instance, None)
        section.rows += [_mean_row(name, instance, of) for of in ("mean_jct", "mean_ttft")]
    for name, instance in _variants(options.tiny):
        section.rows += _class_rows(name, instance.replace(first_token="prefill"))
    section.notes = [
        "after_ms: from the call until that bound. gap: of a schedule by windows (one worker, all "
        f"requests there at once) after {seconds:g} s, against that bound.",
        "allows: what schedules may do beside plain ones (docs/bounds.md).",
        "Poisson arrivals: seed 0. unequal: a second worker with half the clients, twice as slow.",
    ]
    return section


def _single(tiny: bool) -> Iterator[tuple[str, Instance]]:
    yield "pang-100x20", orsched.load("pang-100x20")
    if not tiny:
        for seed in (1, 2, 3, 4):
            instance = catalog.generate("gsm8k", seed=seed, requests=100, clients=20)
            yield f"100 x 20, seed {seed}", instance
        yield "gsm8k-llama65b", orsched.load("gsm8k-llama65b")


def _variants(tiny: bool) -> Iterator[tuple[str, Instance]]:
    for name, per_s in (
        (("pang-100x20", 2),) if tiny else (("pang-100x20", 2), ("gsm8k-llama65b", 10))
    ):
        base = orsched.load(name)
        rng = np.random.default_rng(0)
        arrivals = np.cumsum(rng.exponential(1e9 / per_s, len(base))).astype(np.int64)
        late = base.requests.replace(arrival_ns=arrivals)
        worker = base.worker
        slow = replace(worker, clients=worker.clients // 2, cost=worker.cost.scaled(2), name="slow")
        yield name, base
        yield f"{name}, Poisson {per_s}/s", base.replace(requests=late)
        yield f"{name}, two workers", base.replace(workers=(worker, worker))
        yield f"{name}, unequal", base.replace(workers=(worker, slow))
        yield (
            f"{name}, unequal, Poisson {per_s}/s",
            base.replace(requests=late, workers=(worker, slow)),
        )


def _makespan_rows(name: str, instance: Instance, seconds: float | None) -> list[dict[str, Any]]:
    begin, rows = perf_counter(), []
    for bound in improving_bounds(instance, lambda: False):
        assert bound_violations(instance, bound.to_dict()) == []
        certificate = bound.certificate.get("one_worker", bound.certificate)
        rounds = certificate.get("decode_rounds", {}).get("reason", "")
        rows.append(
            {
                "instance": name,
                "of": "makespan",
                "bound": bound.name,
                "rounds by": rounds,
                "value_s": bound.value_s,
                "after_ms": round(1e3 * (perf_counter() - begin), 1),
            }
        )
    if seconds is not None:
        makespan = orsched.solve(instance, "windows", time_limit=seconds).makespan_ns
        for row in rows:
            row["gap %"] = round(100 * (makespan / 1e9 / row["value_s"] - 1), 3)
    return rows


def _class_rows(name: str, instance: Instance) -> list[dict[str, Any]]:
    """What the bounds for other classes of schedules are."""
    classes: list[tuple[str, ...]] = [(), ("chunks", "mixed"), ("chunks", "mixed", "restarts")]
    return [
        _mean_row(name, instance, objective, allows)
        for allows in classes
        for objective in ("makespan", "mean_jct", "mean_ttft")
    ]


def _mean_row(
    name: str, instance: Instance, objective: str, allows: tuple[str, ...] | None = None
) -> dict[str, Any]:
    begin = perf_counter()
    bound = orsched.bound(instance, objective, allows=allows or ())
    after = round(1e3 * (perf_counter() - begin), 1)
    assert bound_violations(instance, bound.to_dict(), objective) == []
    row = {"instance": name, "of": objective, "bound": bound.name, "value_s": bound.value_s}
    if allows is not None:
        row |= {"first token": instance.first_token, "allows": " ".join(allows)}
    return {**row, "after_ms": after}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each schedule")
    parser.add_argument("--tiny", action="store_true", help="show that everything runs")
    arguments = parser.parse_args()
    print(run(Options(Path(), tiny=arguments.tiny), arguments.seconds).text())


if __name__ == "__main__":
    main()
