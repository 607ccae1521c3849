"""Measurements of steps whose times a cost model says."""

from orsched.calibration.measurements import Measurements
from orsched.costs import mixed_ns, prefill_ns

NAMES = (
    "phase", "count", "tokens", "longest", "context_sum", "context_max", "cached", "run",
    "duration_ns",
)  # fmt: skip


def load_of(contexts):
    """Return how many requests decode, and the sum and the maximum of their contexts."""
    return len(contexts), sum(contexts), max(contexts, default=0)


def step(cost, prompts=(), load=(0, 0, 0), *, cached=0, run=0, factor=1):
    """Return the row of a stage of prompts, of a round under a load, or of both at a time."""
    before = [cached] * len(prompts)
    if prompts and load[0]:
        phase, duration = "mixed", mixed_ns(cost, list(prompts), *load, before)
    elif prompts:
        phase, duration = "prefill", prefill_ns(cost, list(prompts), before)
    else:
        phase, duration = "decode", cost.round_ns(*load)
    count, longest = load[0] or len(prompts), max(prompts, default=0)
    return phase, count, sum(prompts), longest, *load[1:], cached, run, round(duration * factor)


def measured(steps):
    """Return the measurements of such rows."""
    columns = map(list, zip(*steps, strict=True))
    return Measurements(**dict(zip(NAMES, columns, strict=True)))
