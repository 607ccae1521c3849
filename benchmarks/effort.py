"""What each part is worth at equal effort: moves of windows, attacks of the packing, bounds.

    python -m benchmarks.effort moves --seeds 20 --cpu 3
    python -m benchmarks.effort attacks --seeds 20 --cpu 3
    python -m benchmarks.effort bounds --most 400 --cpu 10

``moves``: seeds of 100 requests on 20 clients, each with all CPU seconds of a row; then without one
part, with the same. ``attacks``: the same of the packing, on families where it needs one.
``bounds``: every kind of bound on the rows of the instance library with at most so many requests.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from statistics import mean
from time import process_time
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

import orsched
from benchmarks.arguments import count, share
from benchmarks.speed.packing_families import FAMILIES
from orsched.certificates.context import Context
from orsched.common.stop import Clock
from orsched.instances import library_index
from orsched.instances.catalog import generate
from orsched.models.bounds import bounds
from orsched.models.bounds.latency_bounds import candidates
from orsched.models.bounds.makespan_certificates import Limits
from orsched.models.pcmax import packing_search
from orsched.models.windows import window_moves, window_search, window_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

NS = 10**9
KINDS = ("exchange", "start", "relocation", "stage", "chain")
SEARCH = "orsched.models.windows.window_search"
PACKING = "orsched.models.packing"
PART = "orsched.models.pcmax.packing_search.Search"


@contextmanager
def without_move(kind: int) -> Iterator[None]:
    """Draw no move of a kind: its draws become those of the others, in their shares."""
    plain = window_state.anneal

    def anneal(state: Any, how: Any, rng: Any, give_up: Any, fast: Any) -> int:
        edges = np.array([0.0, *window_moves.shares_of(state.tables), 1.0])
        return plain(state, how, _Others(rng, edges, kind), give_up, fast)

    with mock.patch.object(window_search, "anneal", anneal):
        yield


class _Others:
    """A generator of draws whose first column keeps out of an interval."""

    def __init__(self, rng: Any, edges: Any, kind: int) -> None:
        self.rng, self.low, self.high = rng, edges[kind], edges[kind + 1]

    def random(self, shape: Any) -> Any:
        """Return draws, the kinds of moves among them."""
        draws = self.rng.random(shape)
        kinds = draws.reshape(-1, window_moves.DRAWS)[:, 0]
        kinds *= 1 - (self.high - self.low)
        kinds[kinds >= self.low] += self.high - self.low
        return draws


def without_reduction(name: str) -> AbstractContextManager[Any]:
    """Draw no reduction of a name."""
    left = {key: way for key, way in window_search.REDUCTIONS.items() if key != name}
    return mock.patch.object(window_search, "REDUCTIONS", left)


def gone(place: str) -> AbstractContextManager[Any]:
    """Let what stands at a place do nothing."""
    return mock.patch(place, return_value=None)


MOVES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "all": ExitStack,
    **{f"no move {name}": lambda k=k: without_move(k) for k, name in enumerate(KINDS)},
    **{f"no {name}": lambda n=name: without_reduction(n) for name in window_search.REDUCTIONS},
    "no pilots": lambda: gone(f"{SEARCH}.Search._pilots_pay"),
    "no long first states": lambda: gone(f"{SEARCH}.Search._long_first"),
    "no program over paths": lambda: gone(f"{SEARCH}.PathRepair"),
    "one start": lambda: mock.patch("orsched.models.windows.method.STARTS", 0),
}
ATTACKS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "all": ExitStack,
    "no guided search": lambda: gone(f"{PART}._guide_at"),
    "no branching": lambda: gone(f"{PART}._decide"),
    "no rooms": lambda: gone(f"{PACKING}.Rooms.of"),
    "no proof by rooms": lambda: gone(f"{PACKING}.prove_by_rooms"),
    "no exchanges": lambda: gone(f"{PACKING}._exchange"),
}
PACKED = ("NU3", "BIG", "T", "L1", "X", "H", "G", "W")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def moves(seeds: int, cpu_s: float, only: Sequence[str]) -> str:
    """Return a table of gaps with all parts, and without each."""
    cases = [generate("gsm8k", seed=seed, requests=100, clients=20) for seed in range(seeds)]
    lower = [orsched.bound(case, time_limit=orsched.CpuSeconds(1)).value_ns for case in cases]
    window_state.compiled().wait()
    rows, known = [], list[float]()
    for name, changed in MOVES.items():
        if only and name != "all" and name not in only:
            continue
        gaps = []
        for seed, (case, bound) in enumerate(zip(cases, lower, strict=True)):
            with changed():
                limit = orsched.CpuSeconds(cpu_s)
                found = orsched.solve(
                    case, "windows", parameters={"threads": 1}, seed=seed, time_limit=limit
                )
            gaps.append(100 * (found.makespan_ns - bound) / bound)
        known = known or gaps
        less = [gap - base for gap, base in zip(gaps, known, strict=True)]
        worse, better = sum(x > 0 for x in less), sum(x < 0 for x in less)
        error = float(np.std(less, ddof=1) / len(less) ** 0.5) if len(less) > 1 else 0.0
        rows.append(
            [name, f"{mean(gaps):.3f}", f"{mean(less):+.3f}", f"{error:.3f}", worse, better]
        )
        print(rows[-1], file=sys.stderr)
    return table(["parts", "mean gap %", "change", "standard error", "worse", "better"], rows)


def attacks(seeds: int, cpu_s: float, only: Sequence[str]) -> str:
    """Return a table of packings proven and CPU seconds with all parts, and without each."""
    rows = []
    for loops in (packing_search.compiled(), packing_search.compiled_exchanges()):
        loops.wait()
    for name, changed in ATTACKS.items():
        if only and name not in only:
            continue
        cells: list[Any] = [name]
        for family in PACKED:
            proven, used = 0, process_time()
            for seed in range(seeds):
                jobs, clients, _ = FAMILIES[family](90_000 + seed)
                with changed():
                    found = orsched.pack(jobs, clients, orsched.CpuSeconds(cpu_s), seed)
                proven += found.optimal
            cells.append(f"{proven} in {process_time() - used:.1f}")
        rows.append(cells)
        print(rows[-1], file=sys.stderr)
    return table(["parts", *PACKED], rows)


def kind_of(found: dict[str, Any]) -> str:
    """Return the kind of a certificate, with what raised it."""
    inner = found.get("one_worker", found)
    raised = ["ends"] if "ends" in inner else []
    raised += ["duals"] if "duals" in inner.get("decode_rounds", {}) else []
    return " with ".join([inner["bound"], *(["+".join(raised)] if raised else [])])


def proposed(instance: Any, objective: str, allows: Any, cpu_s: float) -> dict[str, list[Any]]:
    """Return the largest value and CPU seconds of each kind of bound on an instance."""
    clock = Clock(orsched.CpuSeconds(cpu_s))
    context = Context.allowing(bounds.loosened(instance.admitted()), allows)
    cache = bounds._Cache.of(context)
    if objective == "makespan":
        limits = Limits(clock.out, clock.left, True)
        found = bounds._all_certificates(context, cache, limits)
    else:
        found = candidates(cache.relaxed, objective, clock.out)
    kinds: dict[str, list[Any]] = {}
    begin = process_time()
    for each in found:
        used, name = process_time() - begin, kind_of(each)
        known = kinds.setdefault(name, [0, 0.0])
        known[0], known[1] = max(known[0], each["value_ns"]), known[1] + used
        begin = process_time()
    return kinds


NAMES = {"makespan": "makespan", "jct_mean": "mean_jct", "ttft_mean": "mean_ttft"}


def best_bounds(most: int, cpu_s: float) -> str:
    """Return how often each kind is best over the library, and by how much where it is alone."""
    counted: dict[tuple[str, str], list[Any]] = defaultdict(lambda: [0, 0, 0, [], 0.0])
    for place, listed in library_index.listed().items():
        if listed.requests > most:
            continue
        instance = library_index.load_listed(place)
        for objective in {NAMES[each] for each in listed.objectives if each in NAMES}:
            kinds = proposed(instance, objective, listed.allows, cpu_s)
            print(place, objective, file=sys.stderr, flush=True)
            values = sorted((value for value, _ in kinds.values()), reverse=True)
            for name, (value, used) in kinds.items():
                row = counted[objective, name]
                row[0] += 1
                row[1] += value == values[0]
                row[4] += used
                if value == values[0] and values[1:2] != [value]:
                    row[2] += 1
                    row[3].append(100 * (1 - values[1] / value) if len(values) > 1 else 100.0)
    rows = []
    for (objective, name), (tried, best, alone, gains, used) in sorted(counted.items()):
        gain = f"{mean(gains):.2f}" if gains else "-"
        rows.append([objective, name, tried, best, alone, gain, f"{used:.1f}"])
    heads = ["objective", "kind", "rows", "best", "alone best", "mean lead %", "CPU s"]
    return table(heads, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="effort", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["moves", "attacks", "bounds"])
    parser.add_argument("--seeds", type=count, default=20, help="how many seeds")
    parser.add_argument("--cpu", type=share, default=3.0, help="CPU seconds of each search")
    parser.add_argument("--most", type=count, default=400, help="bounds: most requests")
    parser.add_argument("--only", action="append", default=[], help="only without this part")
    given = parser.parse_args(arguments)
    if given.what == "bounds":
        print(best_bounds(given.most, given.cpu))
    else:
        measured = moves if given.what == "moves" else attacks
        print(measured(given.seeds, given.cpu, given.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
