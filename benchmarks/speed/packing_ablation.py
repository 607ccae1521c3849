"""Which attacks on packing are needed: each taken away in turn, on seeded instances of each family.

    python -m benchmarks.speed.packing_ablation 12 H W --without branching "best fit"
    python -m benchmarks.speed.packing_ablation 12 H --plain --without dives

The limit is in seconds of CPU, so that other work on the machine changes little. An attack that is
not called on an instance is not taken away there: the run would be the same.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import contextmanager
from time import process_time
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from benchmarks.speed.packing_families import FAMILIES, Packing, gsm8k_like
from orsched.common import stop
from orsched.models import packing
from orsched.models.packing import pack
from orsched.models.pcmax import packing_search as search
from orsched.models.pcmax.packing_search import compiled, compiled_exchanges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 4.0
FIRST_SEED = 6000
"""Seeds from here on were used for no tuning."""
ATTACKS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "best fit": (packing, "best_fit", lambda *args: None),
    "room beside a length": (packing, "_by_rooms", lambda whole, certificate, most: certificate),
    "rooms filled first": (packing.Rooms, "fill", lambda self, slack: None),
    "exchanges": (packing, "_exchange", lambda *args: None),
    "dives": (search.Dive, "run", lambda dive, *args: ([], dive.columns.problem.counts)),
    "decimation": (search.Decimation, "run", lambda self, whole: ([], whole)),
    "guided attempts": (search.Guided, "attempt", lambda self: None),
    "branching": (search.Search, "_decide", lambda *args: None),
}
"""By name: where it is called, and what stands for it when it is taken away."""


@contextmanager
def without(name: str) -> Iterator[None]:
    """Take an attack away."""
    owner, attribute, nothing = ATTACKS[name]
    with mock.patch.object(owner, attribute, nothing):
        yield


@contextmanager
def watched(called: set[str]) -> Iterator[None]:
    """Note the attacks that are called."""
    patches = []
    for name, (owner, attribute, _) in ATTACKS.items():
        real = getattr(owner, attribute)

        def noting(*args: Any, name: str = name, real: Any = real, **more: Any) -> Any:
            called.add(name)
            return real(*args, **more)

        patches.append(mock.patch.object(owner, attribute, noting))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def solved(case: Packing) -> tuple[bool, int, float]:
    """Return whether a packing is proven optimal, its makespan, and the seconds of CPU."""
    begin = process_time()
    with (
        mock.patch.object(packing, "perf_counter", process_time),
        mock.patch.object(stop, "perf_counter", process_time),
    ):
        result = pack(case.jobs, case.clients, time_limit=LIMIT_S)
    return result.optimal, result.makespan - result.bound, process_time() - begin


def lines(family: str, count: int, attacks: list[str], first: int) -> Iterator[str]:
    """Yield a line for all attacks, and one for each that changes what is proven or found."""
    cases = [FAMILIES[family](seed) for seed in range(first, first + count)]
    whole, calls = [], []
    for case in cases:
        called: set[str] = set()
        with watched(called):
            whole.append(solved(case))
        calls.append(called)
    yield _line(family, "all", count, whole, len(cases))
    for name in attacks:
        again = [k for k in range(count) if name in calls[k]]
        if not again:
            continue
        found = list(whole)
        with without(name):
            for k in again:
                found[k] = solved(cases[k])
        yield _line(family, f"no {name}", len(again), found, len(cases))


def _line(
    family: str, what: str, run: int, found: list[tuple[bool, int, float]], count: int
) -> str:
    proven = sum(optimal for optimal, _, _ in found)
    gap = sum(gap for _, gap, _ in found)
    seconds = float(np.mean([seconds for _, _, seconds in found]))
    return f"{family:4} {what:26} {run:4} {proven:4}/{count} {gap:8} {seconds:9.3f}"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, help="instances of each family")
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--without", nargs="*", default=list(ATTACKS), help="attacks to take away")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first seed")
    parser.add_argument("--plain", action="store_true", help="as where numba is not installed")
    options = parser.parse_args()
    if options.plain:
        sys.modules["numba"] = None  # type: ignore[assignment]
    for loops in (compiled(), compiled_exchanges()):
        loops.get(True)
    solved(gsm8k_like(0))
    solved(FAMILIES["H"](0))
    sys.stdout.write("case attack                     runs proven      gap  mean_cpu_s\n")
    for family in options.families:
        for line in lines(family, options.count, options.without, options.first):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
