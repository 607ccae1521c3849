"""Makespan packing on many fresh seeds of one family: how many are proven, and the slowest.

    python -m benchmarks.speed.packing_seeds G --first 20000 --count 1000
    python -m benchmarks.speed.packing_seeds H --first 20000 --count 20 --limit 60

Every answer is verified by the checker. Seeds that are not proven are named, and the five slowest.
With ``--log`` each answer is a line of CSV as soon as it is there. With ``--cpu`` the limit counts
seconds of CPU, so that other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

from benchmarks.arguments import count, share
from benchmarks.speed.packing_families import FAMILIES, gsm8k_like
from orsched.checker.certificates import packing_violations
from orsched.common import stop
from orsched.models.packing import pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SLOWEST = 5


class Answer(NamedTuple):
    """One instance: its seed, wall and CPU seconds, what is proven and what the checker says."""

    seed: int
    wall_s: float
    cpu_s: float
    makespan: int
    bound: int
    violations: int

    @property
    def proven(self) -> bool:
        """Whether the makespan is the bound, and the checker agrees."""
        return self.makespan == self.bound and not self.violations


def measure(family: str, seed: int, limit_s: float | None) -> Answer:
    """Pack one instance; the check is not in the time."""
    jobs, clients, _ = FAMILIES[family](seed)
    begin, cpu = perf_counter(), process_time()
    result = pack(jobs, clients, time_limit=limit_s)
    wall, used = perf_counter() - begin, process_time() - cpu
    wrong = len(packing_violations(jobs, clients, result))
    return Answer(seed, wall, used, result.makespan, result.bound, wrong)


def summary(family: str, answers: Sequence[Answer]) -> str:
    """Return the figures in a few lines."""
    walls, cpus = [a.wall_s for a in answers], [a.cpu_s for a in answers]
    proven = sum(a.proven for a in answers)
    first, last = answers[0].seed, answers[-1].seed
    lines = [
        f"{family}, seeds {first} to {last}: {proven} of {len(answers)} proven, "
        f"{sum(a.violations > 0 for a in answers)} refused by the checker",
        f"wall s: median {median(walls):.4f}, mean {mean(walls):.4f}, worst {max(walls):.3f}; "
        f"over 1 s: {sum(wall > 1 for wall in walls)}",
        f"CPU s: median {median(cpus):.4f}, mean {mean(cpus):.4f}, worst {max(cpus):.3f}; "
        f"over 1 s: {sum(cpu > 1 for cpu in cpus)}",
    ]
    slow = sorted(answers, key=lambda a: -a.cpu_s)[:SLOWEST]
    named = ", ".join(f"{a.seed} (CPU {a.cpu_s:.2f} s, wall {a.wall_s:.2f} s)" for a in slow)
    lines.append(f"slowest: {named}")
    lines += [
        f"not proven: seed {a.seed}, makespan {a.makespan}, bound {a.bound}"
        for a in answers
        if not a.proven
    ]
    return "\n".join(lines)


def measured(
    family: str, seeds: Sequence[int], limit_s: float | None, log: Path | None
) -> Iterator[Answer]:
    """Yield the answers; each is a line of the log at once."""
    with ExitStack() as stack:
        file = stack.enter_context(log.open("w", encoding="utf-8")) if log else None
        if file:
            file.write(",".join(Answer._fields) + "\n")
        for seed in seeds:
            answer = measure(family, seed, limit_s)
            if file:
                file.write(",".join(map(str, answer)) + "\n")
                file.flush()
            yield answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="packing_seeds", description=__doc__.splitlines()[0])
    parser.add_argument("family", choices=list(FAMILIES), help="a family of packing_families")
    parser.add_argument("--first", type=count, default=20_000, help="first seed")
    parser.add_argument("--count", type=count, default=1_000, help="how many seeds")
    parser.add_argument("--limit", type=share, help="seconds an instance (default: none)")
    parser.add_argument("--log", type=Path, help="a CSV file, one line an instance")
    parser.add_argument("--cpu", action="store_true", help="the limit is in seconds of CPU")
    given = parser.parse_args(arguments)
    pack(gsm8k_like(0).jobs, 200)  # warm up
    seeds = range(given.first, given.first + given.count)
    with ExitStack() as stack:
        if given.cpu:
            stack.enter_context(mock.patch.object(stop, "perf_counter", process_time))
        answers = list(measured(given.family, seeds, given.limit, given.log))
    print(summary(given.family, answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
