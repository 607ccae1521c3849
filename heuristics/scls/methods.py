"""SCLS and its baselines as methods, and the ablation as parameters of one policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orsched.heuristics.policy_method import PolicyMethod
from orsched.heuristics.scls.continuous import ContinuousParams, ContinuousSlices
from orsched.heuristics.scls.iteration import IterationLevel, IterationParams
from orsched.heuristics.scls.sliced import SlicedPolicy, SliceParams
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.simulator.policy import Policy

_NONE = (Information.NONE,)


@dataclass(frozen=True)
class SequenceParams:
    """Parameters of sequence-level scheduling.

    Attributes:
        batch_size: requests in a batch; SCLS uses 16 for transformers, 12 for DeepSpeed.
    """

    batch_size: int = 16

    def __post_init__(self) -> None:
        SliceParams(batch_size=self.batch_size)


def _ablation() -> dict[str, dict[str, Any]]:
    so = {
        "batching": "arrival",
        "batch_size": 16,
        "interval": "none",
        "offloading": "round_robin",
    }
    pm = so | {"batching": "adaptive", "interval": "fixed"}
    ab = pm | {"batch_size": None}
    lb = ab | {"offloading": "max_min"}
    return {
        "SLS": so | {"slice_tokens": None},
        "SO": so,
        "PM": pm,
        "AB": ab,
        "LB": lb,
        "SCLS": lb | {"interval": "adaptive"},
    }


ABLATION: dict[str, dict[str, Any]] = _ablation()
"""What each strategy of SCLS, section 5.4, sets of ``SliceParams``: each adds one feature."""


def _sequence(
    instance: Instance, params: SequenceParams, information: Information, seed: int
) -> Policy:
    values = ABLATION["SLS"] | {"batch_size": params.batch_size}
    return SlicedPolicy(SliceParams(**values), "sls")


SLS = PolicyMethod(
    "sls",
    _NONE,
    "static batches of fixed size in order of arrival, served to the end (SCLS's baseline)",
    _sequence,
    SequenceParams,
    many_workers=True,
)

ILS = PolicyMethod(
    "ils",
    _NONE,
    "continuous batching that sets memory aside for the output limit (SCLS's baseline)",
    lambda instance, params, information, seed: IterationLevel(params),
    IterationParams,
    dispatch="round_robin",
)

SCLS = PolicyMethod(
    "scls",
    _NONE,
    "static batches of least serving time, slice by slice, on the least loaded worker (SCLS)",
    lambda instance, params, information, seed: SlicedPolicy(params),
    SliceParams,
    many_workers=True,
)

SCLS_CONTINUOUS = PolicyMethod(
    "scls_continuous",
    _NONE,
    "continuous batching in slices, on the worker with the most free memory (SCLS, section 7)",
    lambda instance, params, information, seed: ContinuousSlices(params),
    ContinuousParams,
    many_workers=True,
)
