"""The plot of a capacity: attainment and latencies against the number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.errors import InputError
from orsched.plotting.pictures import require_matplotlib, save_picture
from orsched.plotting.style import WORKER_COLOURS

if TYPE_CHECKING:
    import os

    from orsched.sizing.answer import Capacity

_BLUE, _ORANGE, _GREEN = WORKER_COLOURS[:3]


def save_capacity(found: Capacity, path: str | os.PathLike[str]) -> None:
    """Draw attainment with its interval, and p99 of TTFT and TPOT, against workers or price.

    What is proven to be too small is shaded. The suffix says the format: png, svg or pdf.

    Raises:
        InputError: another suffix, or nothing was simulated.
        MissingDependencyError: matplotlib is missing.
    """
    require_matplotlib()
    if not found.curve:
        raise InputError("no fleet was simulated", field="plot")
    save_picture(lambda figure: _draw(figure, found), path)


def _draw(figure: Any, found: Capacity) -> None:
    figure.set_size_inches(6.4, 5.2)
    figure.set_layout_engine("constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    several = len(found.machines) > 1
    rows = sorted(found.curve, key=lambda each: each.workers)
    at = [each.workers for each in rows]
    low = [each.attainment - each.low for each in rows]
    high = [each.high - each.attainment for each in rows]
    line = "none" if several else "-"
    above.errorbar(
        at,
        [each.attainment for each in rows],
        yerr=[[max(0, x) for x in low], [max(0, x) for x in high]],
        marker="o",
        color=_BLUE,
        capsize=3,
        linestyle=line,
        label="measured",
    )
    above.axhline(found.attainment_wanted, color=_ORANGE, linestyle="--", label="wanted")
    bound = found.lower_bound_workers
    if bound > 1:
        above.axvspan(0, bound - 0.5, color="#999999", alpha=0.3, label="proven too few")
        below.axvspan(0, bound - 0.5, color="#999999", alpha=0.3)
    if found.workers is not None:
        above.axvline(found.workers, color=_GREEN, linestyle=":", label="answer")
        below.axvline(found.workers, color=_GREEN, linestyle=":")
    above.set_ylabel("attainment")
    above.set_ylim(-0.03, 1.03)
    above.legend(loc="lower right", fontsize=8)
    for name, colour, marker in (("ttft", _BLUE, "o"), ("tpot", _ORANGE, "s")):
        values = [getattr(each, f"{name}_p99_s") for each in rows]
        pairs = [(x, y) for x, y in zip(at, values, strict=True) if y]
        if pairs:
            below.plot(
                *zip(*pairs, strict=True),
                marker=marker,
                color=colour,
                linestyle=line,
                label=f"{name.upper()} p99",
            )
    below.set_yscale("log")
    below.set_ylabel("seconds")
    below.set_xlabel("workers")
    below.set_xlim(0.5, max(at) + 0.5)
    below.xaxis.get_major_locator().set_params(integer=True)
    below.legend(fontsize=8)
    for ax in (above, below):
        ax.grid(alpha=0.3)
