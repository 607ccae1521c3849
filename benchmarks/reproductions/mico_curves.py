"""Draw Figs. 7 to 10 of MICO (Cong et al.): caches and completed queries over a run.

python -m benchmarks.reproductions.mico_curves [--seed S] [-o FILE.svg] draws one run of MICO and of
the baseline in the setting of ``mico --figure 7``: 200 queries, batch size 3, 3 clouds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.figures import DOCS
from benchmarks.reproductions.mico_runs import kv_lengths, scheduled
from benchmarks.reproductions.svg import save_svg
from orsched.common.units import NS_PER_S
from orsched.data.schedule import INVALID
from orsched.views.style import WORKER_COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.schedule import Schedule

CLOUDS = 3
SETTING = (200, CLOUDS, 3)
ROWS = (
    ("KV-Cache length", "iteration"),
    ("cumulated, millions", "iteration"),
    ("queries done, %", "time, s"),
)
NAMES = {"QI": "MICO", "neither": "baseline"}


class Curves(NamedTuple):
    """The curves of one cloud in one run.

    Attributes:
        iterations, lengths: corners of the KV-Cache length over iterations.
        cumulated: the sum of the lengths up to each corner.
        done_s: sorted times at which its queries have their last token.
    """

    iterations: list[int]
    lengths: list[int]
    cumulated: list[int]
    done_s: list[float]


def curves(schedule: Schedule, cloud: int) -> Curves:
    """Return the curves of a cloud, the cache as long as the longest one present."""
    iterations, lengths, cumulated = [0], [0], [0]
    for first, rounds in kv_lengths(schedule, cloud, literal=False):
        begin, total = iterations[-1], cumulated[-1]
        last = first + rounds - 1
        iterations += [begin + 1, begin + rounds]
        lengths += [first, last]
        cumulated += [total + first, total + rounds * first + rounds * (rounds - 1) // 2]
    return Curves(iterations, lengths, cumulated, _ends_s(schedule, cloud))


def _ends_s(schedule: Schedule, cloud: int) -> list[float]:
    steps, work = schedule.steps, schedule.work
    kept = (work.phase != INVALID) & (steps.worker[work.first_step] == cloud)
    ends: dict[int, int] = {}
    for request, step in zip(
        work.request[kept].tolist(), work.last_step[kept].tolist(), strict=True
    ):
        ends[request] = max(ends.get(request, 0), int(steps.end_ns[step]))
    return sorted(end / NS_PER_S for end in ends.values())


def draw(figure: Any, found: dict[str, list[Curves]]) -> None:
    """Draw a row of panels a figure, a column a cloud, the service as a whole the last."""
    axes = figure.subplots(3, CLOUDS + 1, sharex="row", sharey=False)
    for (name, clouds), colour in zip(found.items(), WORKER_COLOURS, strict=False):
        for at, cloud in enumerate(clouds):
            axes[0][at].plot(cloud.iterations, cloud.lengths, color=colour, linewidth=0.6)
            axes[1][at].plot(cloud.iterations, np.array(cloud.cumulated) / 1e6, color=colour)
            _share(axes[2][at], cloud.done_s, colour, name)
        _service(axes, clouds, colour, name)
    for at in range(CLOUDS):
        axes[0][at].set_title(f"cloud {at + 1}", fontsize=9)
    axes[0][CLOUDS].set_title("all: least, mean, most", fontsize=9)
    for row, (label, below) in zip(axes, ROWS, strict=True):
        row[0].set_ylabel(label, fontsize=8)
        for ax in row:
            ax.grid(alpha=0.3)
            ax.tick_params(labelsize=7)
            ax.set_xlabel(below, fontsize=8)
    axes[2][0].legend(fontsize=7)


def _share(ax: Any, done_s: Sequence[float], colour: str, name: str) -> None:
    shares = [100 * (k + 1) / len(done_s) for k in range(len(done_s))]
    ax.plot(done_s, shares, color=colour, label=name, drawstyle="steps-post")


def _service(axes: Any, clouds: Sequence[Curves], colour: str, name: str) -> None:
    """Draw Fig. 10: lengths over all clouds on common iterations, and what all have done."""
    last = max(cloud.iterations[-1] for cloud in clouds)
    at = np.linspace(1, last, 400)
    lengths = np.array([np.interp(at, c.iterations, c.lengths, right=0.0) for c in clouds])
    axes[0][CLOUDS].fill_between(
        at, lengths.min(axis=0), lengths.max(axis=0), color=colour, alpha=0.25, linewidth=0
    )
    axes[0][CLOUDS].plot(at, lengths.mean(axis=0), color=colour, linewidth=0.8)
    totals = [np.interp(at, cloud.iterations, cloud.cumulated) for cloud in clouds]
    axes[1][CLOUDS].plot(at, np.sum(totals, axis=0) / 1e6, color=colour)
    _share(axes[2][CLOUDS], sorted(t for cloud in clouds for t in cloud.done_s), colour, name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the figure and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=DOCS / "_static/figure-mico-run.svg")
    values = parser.parse_args(arguments)
    found = {}
    for variant, name in NAMES.items():
        _, schedule = scheduled(variant, *SETTING, values.seed, backoff=variant == "QI")
        found[name] = [curves(schedule, cloud) for cloud in range(CLOUDS)]
    save_svg(lambda figure: draw(figure, found), values.output, (9, 6), "mico")
    print(values.output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
