"""For which instances ``fleet`` plans, and how workers then serve their shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.certificates.context import Context
from orsched.certificates.kv_volume import prompts_known
from orsched.common.errors import InputError
from orsched.costs.roofline import ridge_tokens
from orsched.data.feasibility import most_output_tokens
from orsched.models.fleet.shares import ALLOWS

if TYPE_CHECKING:
    from orsched.data.instance import Instance


def chosen_below(instance: Instance, below: str, information: str = "clairvoyant") -> str:
    """Return what serves the shares. A plan on predicted lengths is carried out by vllm; so is one
    under cost models with a ridge, and where a worker or prompt does not suit whole stages."""
    if below != "auto":
        return below
    stages = information == "clairvoyant" and plans_stages(instance)
    return "windows" if stages and not has_ridge(instance) else "vllm"


def has_ridge(instance: Instance) -> bool:
    """Whether each cost model has a ridge, below which prompts cost little beside rounds."""
    try:
        return min(ridge_tokens(worker.cost) for worker in instance.workers) > 0
    except InputError:
        return False


def plans_stages(instance: Instance) -> bool:
    """Whether each worker alone takes stages of whole prompts, and no prompt is too long."""
    if instance.needs_chunks:
        return False
    try:
        for worker in instance.workers:
            instance.replace(workers=(worker,)).require_stages("fleet")
    except InputError:
        return False
    return True


def require_planned(instance: Instance) -> None:
    """Raise ``InputError`` for workers that ``fleet`` does not plan for."""
    remedy = "leave that out, or choose vllm with a dispatcher"
    for worker in instance.workers:
        if worker.padding:
            raise InputError("fleet does not support padding", field="padding", remedy=remedy)
    if instance.link is not None:
        raise InputError(
            "fleet does not support workers that only prefill or only decode",
            field="workers",
            remedy="give all workers both roles, or choose disaggregated",
        )
    instance.require_steady("fleet")
    context = Context.allowing(instance, ALLOWS)
    try:
        floors = context.has_floors
        prompts_known(context)
    except ValueError:
        floors = False
    if not floors:
        raise InputError(
            "fleet plans by floors under the times of steps, which a cost model does not state",
            field="cost",
            remedy="let its model state a floor, or choose vllm, which serves several workers",
        )


def plannable(instance: Instance) -> bool:
    """Whether ``fleet`` plans for these workers."""
    try:
        require_planned(instance)
    except InputError:
        return False
    return True


def predictions_as_lengths(instance: Instance) -> Instance:
    """Return the instance with its predicted lengths as true ones; ``InputError`` without any."""
    predicted = instance.requests.predicted_tokens
    if predicted is None:
        raise InputError(
            "the instance has no predicted lengths",
            field="predicted_tokens",
            remedy="--predictions classes adds some, in Python predictions='classes'; or choose "
            "clairvoyant information",
        )
    most = np.minimum(most_output_tokens(instance), instance.output_limit_tokens)
    believed = np.minimum(predicted, most)
    return instance.replace(requests=instance.requests.replace(output_tokens=believed))
