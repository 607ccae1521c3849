"""What policies refuse: which modes they do not go together with, and the error that says so."""

from __future__ import annotations

from typing import NamedTuple

from tests.product.modes import FACTORS
from tests.product.policies import is_dispatched

SEVERAL = tuple(name for name in FACTORS["workers"] if name != "one")
PANG = ("offline", "online", "hybrid")
ITERATION_LEVEL = ("vllm", "ils", "scls_continuous", "gittins")
BATCHED = ("ssjf", "sjf", "fcfs_batched")


class Refusal(NamedTuple):
    """A mode that methods refuse with an ``InputError``, unless ``lacks`` is among the parameters.

    Attributes:
        methods: their names.
        factor, levels: the mode.
        field: what the error names.
        why: the reason.
        alone: whether it is refused on one worker only.
    """

    methods: tuple[str, ...]
    factor: str
    levels: tuple[str, ...]
    field: str
    why: str
    lacks: tuple[str, ...] = ()
    alone: bool = False


REFUSALS = (
    Refusal(PANG, "workers", SEVERAL, "workers", "Pang's model has one worker"),
    Refusal(PANG, "padding", ("on",), "padding", "Pang's times of stages know no padding"),
    Refusal(ITERATION_LEVEL, "padding", ("on",), "padding", "nobody pads at iteration level"),
    Refusal(
        ("rolling", "robust"),
        "padding",
        ("on",),
        "padding",
        "stages of one worker know no padding",
        alone=True,
    ),
    Refusal(
        BATCHED,
        "padding",
        ("on",),
        "padding",
        "nobody pads at iteration level",
        ("batching=none", "batching=dynamic"),
    ),
)

OPEN = (
    ("trade_off=true", "cost", "levels", "mico weighs a stage that no level holds"),
    ("rolling@", "sharing", "stealing", "waiting of a RollingPolicy is no method"),
    ("rolling@", "sharing", "least_work_stealing", "waiting of a RollingPolicy is no method"),
)
"""Faults that are known: part of a policy's text, mode, and what happens. Each has a test that must
fail (``test_refusals.py``), so that an entry goes when its fault does."""


def refusal_of(policy, factor, level):
    """Return the refusal of a mode by a policy, or None."""
    name = policy.partition("@")[0]
    for refusal in REFUSALS:
        if name in refusal.methods and factor == refusal.factor and level in refusal.levels:
            return None if any(part in policy for part in refusal.lacks) else refusal
    return None


def refusals_of(cell):
    """Return the refusals that a cell meets."""
    found = [refusal_of(cell["policy"], name, cell[name]) for name in FACTORS]
    several = cell["workers"] != "one"
    return [one for one in found if one is not None and not (one.alone and several)]


def is_open(cell):
    """Whether a known fault may show in a cell."""
    return any(part in cell["policy"] and cell.get(name) == level for part, name, level, _ in OPEN)


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
    known = {"policy": pair["policy"], **dict.fromkeys(FACTORS), name: level}
    return refusal_of(pair["policy"], name, level) is None and not is_open(known)
