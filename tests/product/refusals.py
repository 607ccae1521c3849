"""What policies refuse: which modes they do not go together with, and the error that says so."""

from __future__ import annotations

from typing import NamedTuple

from tests.product.modes import FACTORS
from tests.product.policies import is_dispatched

SEVERAL = tuple(name for name in FACTORS["workers"] if name != "one")
PANG = ("offline", "online", "hybrid")
PLANNED = ("robust",)
STEALING = ("stealing", "least_work_stealing")
COLOCATED = ("echo", "hygen", "conserve", "slack")
ITERATION_LEVEL = ("vllm", "vtc", "ils", "scls_continuous", "gittins", "disaggregated", "mc_sf")
ITERATION_LEVEL += COLOCATED
BATCHED = ("ssjf", "sjf", "fcfs_batched")


class Refusal(NamedTuple):
    """A mode that methods refuse with an ``InputError``, unless ``lacks`` is among the parameters.

    Attributes:
        methods: their names.
        factor, levels: the mode.
        field: what the error names.
        why: the reason.
    """

    methods: tuple[str, ...]
    factor: str
    levels: tuple[str, ...]
    field: str
    why: str
    lacks: tuple[str, ...] = ()


REFUSALS = (
    Refusal(PANG, "workers", SEVERAL, "workers", "Pang's model has one worker"),
    Refusal(PANG, "padding", ("on",), "padding", "Pang's times of stages know no padding"),
    Refusal(ITERATION_LEVEL, "padding", ("on",), "padding", "nobody pads at iteration level"),
    Refusal(PLANNED, "padding", ("on",), "padding", "planned times of stages know no padding"),
    Refusal(PLANNED, "sharing", STEALING, "steal", "they give no waiting request away"),
    Refusal(
        BATCHED,
        "padding",
        ("on",),
        "padding",
        "nobody pads at iteration level",
        ("batching=none", "batching=dynamic"),
    ),
)


def refusal_of(policy, factor, level):
    """Return the refusal of a mode by a policy, or None."""
    name = policy.partition("@")[0]
    for refusal in REFUSALS:
        if name in refusal.methods and factor == refusal.factor and level in refusal.levels:
            return None if any(part in policy for part in refusal.lacks) else refusal
    return None


def refusals_of(cell):
    """Return the refusals that a cell meets."""
    modes = ((name, level) for name, level in cell.items() if name != "policy")
    found = (refusal_of(cell["policy"], name, level) for name, level in modes)
    return [one for one in found if one is not None]


def goes_together(one, other):
    """Whether two levels (factor, level) may stand in one cell that is served."""
    pair = dict((one, other))
    # A dispatcher is for several workers, and for policies that serve one each.
    alone = pair.get("workers") == "one" or not is_dispatched(pair.get("policy", "fcfs"))
    if alone and pair.get("sharing", "as_it_is") != "as_it_is":
        return False
    if "policy" not in pair:
        return True
    ((name, level),) = [item for item in pair.items() if item[0] != "policy"]
    return refusal_of(pair["policy"], name, level) is None
