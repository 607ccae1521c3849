"""What an instance must be: its parts checked, and which requests fit onto which workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from orsched.common.columns import exact_sum, whole_number
from orsched.common.errors import InfeasibleError, InputError
from orsched.common.scalars import BLOCKS, STEPS
from orsched.common.units import MAX_TIME, MAX_TIME_NS, MAX_TOKENS
from orsched.costs.exact import whole_time
from orsched.data.autoscaling import MOST_LOOKS, Autoscaling
from orsched.data.links import Link
from orsched.data.memory import refused_pair

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
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
        if not fits_worker(instance, worker, chunks or not worker.prefills)[row]
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
                some |= fits_worker(instance, worker, chunks or able == "decodes")
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


def fits_worker(instance: Parts, worker: Worker, chunks: bool) -> Mask:
    """Which requests the worker could serve alone."""
    fits = takes_prompt(instance.requests, None if chunks else worker.prefill_limit)
    if worker.memory is not None:
        fits &= _most_blocks(instance, worker.memory) <= worker.memory.blocks
    if (longest := worker.settings.get("max_model_len")) is not None:
        fits &= instance.requests.prompt_tokens + instance.requests.output_tokens <= longest
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
    tokens = prompt + int(instance.requests.output_tokens[row])
    if (longest := worker.settings.get("max_model_len", tokens)) < tokens:
        return f"has {tokens} tokens, more than the max_model_len of {worker.name}: raise {longest}"
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


def check_block_sizes(instance: Parts) -> None:
    """Require that prefixes come in blocks of the size of each prefix cache."""
    prefixes = instance.requests.prefixes
    if prefixes is None:
        _require_one_size(instance)
        return
    for index, worker in enumerate(instance.workers):
        if worker.memory is None or not worker.caches_prefixes:
            continue
        size = worker.memory.block_tokens
        if size != prefixes.block_tokens:
            raise InputError(
                f"the prefixes come in blocks of {prefixes.block_tokens} tokens, the prefix "
                f"cache of {worker.name} has blocks of {size}",
                field=f"workers[{index}].memory.block_tokens",
                remedy=f"give it blocks of {prefixes.block_tokens}"
                + (
                    f", or take requests.refined({size})"
                    if prefixes.block_tokens % size == 0
                    else ""
                ),
            )


def _require_one_size(instance: Parts) -> None:
    """Require that turns find the blocks of their parents in caches with blocks of one size."""
    caches = [worker.memory for worker in instance.workers if worker.caches_prefixes]
    sizes = {memory.block_tokens for memory in caches if memory is not None}
    if instance.requests.parent is not None and len(sizes) > 1:
        raise InputError(
            "turns, and prefix caches with blocks of several sizes",
            field="workers",
            remedy="give all prefix caches one size of blocks",
        )


def checked_refused(refused: object, classes: int) -> tuple[int, ...]:
    """Return the requests refused by class, () where none was."""
    if not isinstance(refused, (list, tuple)) or len(refused) > classes:
        raise InputError(
            f"must be at most {classes} counts, one for each class",
            field="refused",
            remedy="leave it out: Instance.admitted fills it in",
        )
    counts = tuple(whole_number(each, "refused", maximum=MAX_TOKENS) for each in refused)
    return counts if any(counts) else ()


def check_roles(instance: Parts) -> None:
    """Require a link where workers have roles, and memory that can change hands with it."""
    if instance.link is not None and not isinstance(instance.link, Link):
        raise InputError(
            f"{instance.link!r} is not a Link",
            field="link",
            remedy="Link(5243, 10_000)",
        )
    named = [worker.device for worker in instance.workers if worker.device]
    for index, worker in enumerate(instance.workers):
        where = f"workers[{index}]."
        if instance.link is None:
            if worker.role != "both" or named.count(worker.device) > 1:
                raise InputError(
                    "workers with roles or a common device need a link",
                    field=where + ("device" if worker.role == "both" else "role"),
                    remedy="give the instance a link: Link() costs nothing, as 2P2D:free does",
                )
            continue
        whole = worker.memory is not None and not worker.memory.is_paged
        keeps = worker.caches_prefixes and worker.role != "prefill"
        found = {"prefix cache": keeps, "whole memory": whole}
        found |= {"failures": bool(worker.available_ns), "padding": worker.padding}
        for other in filter(found.__getitem__, found):
            raise refused_pair("link", other, where)
    for able in ("prefills", "decodes"):
        if not any(getattr(worker, able) for worker in instance.workers):
            raise InputError(
                f"no worker {able}",
                field="workers",
                remedy=f"give one the role both or {able.removesuffix('s')}",
            )


def check_classes(instance: Parts) -> None:
    """Require that every request is of a class that there is."""
    codes, last = instance.requests.service_class, len(instance.classes) - 1
    if int(codes.max(initial=0)) > last:
        row = int(np.argmax(codes > last))
        listed = ", ".join(f"{i} {kind.name}" for i, kind in enumerate(instance.classes))
        raise InputError(
            f"{codes[row]} is above {last}", row=row, field="service_class", remedy=listed
        )


def check_horizon(instance: Parts) -> None:
    """Reject instances that could end after the largest time even when served one by one."""
    if len(instance) == 0:
        return
    req = instance.requests
    prompt, output = int(req.prompt_tokens.max()), int(req.output_tokens.max())
    slowest = 0
    for worker in instance.workers:
        ctx = prompt + output
        load = (worker.clients, ctx * worker.clients, ctx)
        one_round = whole_time(worker.cost, "round_ns", *load)
        capped = prompt if worker.prefill_limit is None else min(prompt, worker.prefill_limit)
        stages = -(-prompt // capped) * whole_time(worker.cost, "prefill_ns", [capped])
        slowest = max(slowest, stages + output * one_round)
    if instance.link is not None:
        slowest += instance.link.transfer_ns(prompt + output)
    ups = [start for worker in instance.workers for start, _ in worker.available_ns]
    horizon = max(int(req.arrival_ns.max()), *ups, 0) + len(instance) * slowest
    if req.delay_ns is not None:
        horizon += exact_sum(np.maximum(req.delay_ns, 0))
    if horizon > MAX_TIME_NS:
        raise InputError(
            f"served one by one, the requests end after {MAX_TIME}, the largest time",
            field="requests",
            remedy="use smaller token counts, arrivals or costs",
        )


def check_size(instance: Parts) -> None:
    """Refuse what a few numbers ask for: blocks, steps and looks are estimated before any work."""
    req, workers = instance.requests, instance.workers
    caching = [w.memory for w in workers if w.memory is not None and w.caches_prefixes]
    if caching and len(instance):
        size = min(memory.block_tokens for memory in caching)
        most = max(memory.blocks for memory in caching)
        # A request that fits nowhere is refused later, and holds no more than there is.
        held = int(np.minimum((req.prompt_tokens + req.output_tokens) // size, most).sum())
        BLOCKS.require(sum(memory.blocks for memory in caching) + held // 10, "workers.memory")
    limits = [w.prefill_limit for w in workers]
    if None not in limits and len(instance):
        most = max(limit for limit in limits if limit is not None)
        STEPS.require(int(-(-req.prompt_tokens // most).sum()), "workers.prefill_cap_tokens")


def _check_looks(instance: Parts, rule: Autoscaling) -> None:
    """Refuse more looks at the load than are taken, by when the last request ends at the least."""
    req = instance.requests
    if len(instance) == 0:
        return
    rounds = int(req.output_tokens.max()) - 1
    longest = int(req.prompt_tokens.max())

    def alone_ns(worker: Worker) -> int:
        """Return the least time of the longest prompt and the longest answer."""
        prompt = 1 if worker.caches_prefixes else min(longest, worker.prefill_limit or longest)
        decode = worker.cost.rounds_ns(rounds, 1, rounds, rounds) if rounds else 0
        return max(worker.cost.prefill_ns([prompt]), decode)

    fastest = min(map(alone_ns, instance.workers))
    looks = (int(req.arrival_ns.max()) + fastest) // rule.interval_ns
    if looks > MOST_LOOKS:
        least = -(-looks * rule.interval_ns // MOST_LOOKS)
        raise InputError(
            f"{looks:,} looks at the load or more, where {MOST_LOOKS:,} are taken",
            field="autoscaling.interval_ns",
            remedy=f"look less often: set it to at least {least}",
        )


def check_autoscaling(instance: Parts) -> None:
    """Require workers that autoscaling can start and drain: none that stays away, no links."""
    if instance.autoscaling is None:
        return
    if not isinstance(instance.autoscaling, Autoscaling):
        raise InputError("must be an Autoscaling", field="autoscaling")
    if any(worker.available_ns and worker.available_ns[-1][1] for worker in instance.workers):
        raise refused_pair("failures for good", "autoscaling")
    if instance.link is not None:
        raise refused_pair("link", "autoscaling")
    _check_looks(instance, instance.autoscaling)
