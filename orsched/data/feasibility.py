"""Which requests fit onto which workers: whether an instance has a schedule at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from orsched.common.errors import InfeasibleError
from orsched.common.units import MAX_TOKENS

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.autoscaling import Autoscaling
    from orsched.data.links import Link
    from orsched.data.memory import BlockMemory
    from orsched.data.requests import Requests
    from orsched.data.service_classes import ServiceClass
    from orsched.data.workers import Worker

    Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Parts(Protocol):
    """The parts of an instance, while it is made and after."""

    @property
    def requests(self) -> Requests:
        """The jobs."""
        ...

    @property
    def workers(self) -> tuple[Worker, ...]:
        """At least one worker."""
        ...

    @property
    def classes(self) -> tuple[ServiceClass, ...]:
        """The service classes."""
        ...

    @property
    def link(self) -> Link | None:
        """By which caches change workers, or None."""
        ...

    @property
    def autoscaling(self) -> Autoscaling | None:
        """The rule that starts and drains workers, or None."""
        ...

    @property
    def first_token(self) -> str:
        """From which step the first token comes."""
        ...

    @property
    def rounds_needed(self) -> IntColumn:
        """Decode rounds of each request."""
        ...

    def __len__(self) -> int: ...


def require_feasible(instance: Parts, chunks: bool) -> None:
    """Raise ``InfeasibleError`` as ``Instance.require_feasible`` says."""
    fits = fits_some_worker(instance, chunks)
    if fits.all():
        return
    row = int(np.argmin(fits))
    reasons = [
        _misfit(instance, worker, row, chunks)
        for worker in instance.workers
        if not _fits(instance, worker, chunks or not worker.prefills)[row]
    ]
    named = f"request {instance.requests.id_of(row)} (row {row})"
    if len(instance.workers) == 1:
        raise InfeasibleError(f"{named} {reasons[0]}, or leave the request out")
    raise InfeasibleError(f"{named} fits onto no worker: it " + "; it ".join(reasons))


def fits_some_worker(instance: Parts, chunks: bool) -> Mask:
    """Which requests some worker could prefill, and some worker decode."""
    fits = np.ones(len(instance), bool)
    for able in roles_of(instance):
        some = np.zeros(len(instance), bool)
        for worker in instance.workers:
            if getattr(worker, able):
                some |= _fits(instance, worker, chunks or able == "decodes")
        fits &= some
    return fits


def most_output_tokens(instance: Parts) -> IntColumn:
    """Return the most output tokens that each request could have and fit some worker, at least 1.

    A prediction above it is wrong: a server would cut the answer there.
    """
    most = np.ones(len(instance), np.int64)
    for memory in dict.fromkeys(worker.memory for worker in instance.workers):
        if memory is None:
            return np.full(len(instance), MAX_TOKENS)
        first = memory.is_paged and instance.first_token == "prefill"  # which is never cached
        most = np.maximum(most, memory.tokens + first - instance.requests.prompt_tokens)
    return np.minimum(most, MAX_TOKENS)


def roles_of(instance: Parts) -> tuple[str, ...]:
    """Return what some worker has to be able to do for each request, by ``Worker``'s attribute."""
    return ("prefills",) if instance.link is None else ("prefills", "decodes")


def takes_prompt(requests: Requests, limit: int | None) -> Mask:
    """Which prompts are within a limit for a prefill step; None: all, as where it takes parts."""
    if limit is None:
        return np.ones(len(requests), bool)
    return requests.prompt_tokens <= limit


def _fits(instance: Parts, worker: Worker, chunks: bool) -> Mask:
    """Which requests the worker could serve alone."""
    fits = takes_prompt(instance.requests, None if chunks else worker.prefill_limit)
    if worker.memory is not None:
        fits &= _most_blocks(instance, worker.memory) <= worker.memory.blocks
    return fits


def _most_blocks(instance: Parts, memory: BlockMemory) -> IntColumn:
    """Blocks that each request holds at its end; the prefill's own token is never cached."""
    cached = (
        instance.requests.output_tokens if memory.allocation == "whole" else instance.rounds_needed
    )
    blocks: IntColumn = -(-(instance.requests.prompt_tokens + cached) // memory.block_tokens)
    return blocks


def _misfit(instance: Parts, worker: Worker, row: int, chunks: bool) -> str:
    """Say why a request does not fit onto a worker."""
    limit, prompt = worker.prefill_limit, int(instance.requests.prompt_tokens[row])
    if limit is not None and prompt > limit and not chunks and worker.prefills:
        return (
            f"has {prompt} prompt tokens, more than the {limit} that a prefill stage "
            f"of {worker.name} can hold: raise prefill_cap_tokens, or choose a method that divides "
            "prompts (vllm)"
        )
    assert worker.memory is not None
    return (
        f"needs {_most_blocks(instance, worker.memory)[row]} memory blocks, more than the "
        f"{worker.memory.blocks} of {worker.name}: raise blocks"
    )
