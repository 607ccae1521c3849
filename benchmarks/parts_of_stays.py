"""Of what the mean JCT of the four workloads is made, in schedules and in the bound on it.

python -m benchmarks.parts_of_stays [--loads 0.5 0.7 0.9] [--names NAME ...] [--seed 0]
    [--method gittins@clairvoyant]

Needs ``ORSCHED_DATA``. A request's stay is its own time (its prefill, and its rounds with nobody
else in them), its wait until its prefill begins, the others' parts of its rounds, and the rest, in
which it is held up: prefills of others, and rounds without it. All are means over the requests in
seconds, and the least that is proven of the JCT stands beside them.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

import orsched
from benchmarks.arguments import share
from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.page_tables import markdown
from benchmarks.which_side_is_loose import bounds_of
from orsched.certificates.context import Context
from orsched.certificates.shared_rounds import parts_of
from orsched.common.units import NS_PER_S
from orsched.data.schedule import DECODE, PREFILL
from orsched.data.schedule_classes import allowances_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

ALLOWS = ("chunks", "mixed")


def stays(instance: Instance, schedule: Schedule) -> dict[str, float]:
    """Return the mean parts of the requests' stays in seconds, which add up to the mean JCT.

    The schedule prefills each request once, on workers whose rounds cost each request the same.
    """
    parts = parts_of(Context.allowing(instance, ALLOWS))
    work, steps = schedule.work, schedule.steps
    arrivals = instance.requests.arrival_ns
    begun = np.full(len(instance), np.iinfo(np.int64).max)
    prefills, decodes = work.phase == PREFILL, work.phase == DECODE
    np.minimum.at(begun, work.request[prefills], steps.start_ns[work.first_step[prefills]])
    ends = np.zeros(len(instance), np.int64)
    np.maximum.at(ends, work.request, steps.end_ns[work.last_step])
    others = _others(schedule, decodes) * parts.shared
    own, wait, stay = parts.own.sum(), (begun - arrivals).sum(), (ends - arrivals).sum()
    rest = stay - own - wait - others
    totals = {"JCT": stay, "own": own, "wait": wait, "rounds": others, "held up": rest}
    return {name: float(total) / len(instance) / NS_PER_S for name, total in totals.items()}


def _others(schedule: Schedule, decodes: NDArray[Any]) -> int:
    """Return the sum over all rounds of m (m - 1), where m requests are in a round."""
    work, steps = schedule.work, schedule.steps
    total = 0
    for worker in np.unique(steps.worker):
        rows = np.flatnonzero((steps.worker == worker) & (steps.phase != PREFILL))
        here = decodes & (steps.worker[work.first_step] == worker)
        change = np.zeros(len(rows) + 1, np.int64)
        np.add.at(change, np.searchsorted(rows, work.first_step[here]), 1)
        np.add.at(change, np.searchsorted(rows, work.last_step[here]) + 1, -1)
        m = np.cumsum(change)[:-1]
        total += int((m * (m - 1) * steps.rounds[rows]).sum())
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    names = list(setting.WORKLOADS)
    parser.add_argument("--names", nargs="+", choices=names, default=names, help="workloads")
    parser.add_argument("--loads", nargs="+", type=share, default=list(setting.LOADS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="gittins@clairvoyant")
    given: Any = parser.parse_args(arguments)
    rows = []
    for load in given.loads:
        for name in given.names:
            instance = setting.workload(name, load, given.seed)
            schedule = orsched.solve(instance, given.method).schedule
            if not allowances_of(instance, schedule) <= set(ALLOWS):
                raise SystemExit(f"{given.method} restarts requests")
            parts = {title: f"{value:.2f}" for title, value in stays(instance, schedule).items()}
            least = max(bounds_of(instance, ALLOWS).values()) / len(instance) / NS_PER_S
            rows.append({"workload": name, "load": f"{load:g}", **parts, "bound": f"{least:.2f}"})
            print(" ".join(rows[-1].values()), flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
