"""The worker that serves requests: what a caller says of it, and what is taken of the rest."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from orsched.calibration.catalogue import gpu_of, kv_tokens_at
from orsched.calibration.catalogue import read_machine as read_named
from orsched.calibration.data_sheet import BLOCK_TOKENS as MACHINE_BLOCK
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.parameters import read_pairs
from orsched.common.scalars import is_number
from orsched.costs import AffineCost
from orsched.data.memory import ALLOCATION, BlockMemory, PrefixCache
from orsched.data.workers import Worker
from orsched.solving.engines import SEATS, engine_on, profile_named
from orsched.solving.scenario import copies, number_of_copies

if TYPE_CHECKING:
    from orsched.costs import CostModel
    from orsched.data.instance import Instance


BLOCK_TOKENS = 128  # of a KV cache, where neither the caller nor the machine says them
UNLIMITED = "unlimited"  # the number of blocks of a memory that never limits
SHARE, OFF = "gpu_memory_utilization", "off"  # the latter: without a prefix cache


@dataclass(frozen=True)
class WorkerChoice:
    """What is said of the worker that serves requests, as in ``load``; None: not said.

    ``cost`` is a cost model, or what ``read_machine`` takes. ``workers`` may be the workers
    themselves, in place of all but ``first_token`` and ``output_limit_tokens``.
    """

    clients: int | None = None
    cost: CostModel | str | os.PathLike[str] | None = None
    prefill_cap_tokens: int | None = None
    memory_blocks: int | str | None = None
    block_tokens: int | None = None
    allocation: str | None = None
    prefix_cache: str | None = None
    first_token: str | None = None
    output_limit_tokens: int | None = None
    workers: int | tuple[Worker, ...] | None = None
    engine: str | None = None
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None

    def given(self) -> list[str]:
        """Return the names of what is said."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]

    def filled(self) -> WorkerChoice:
        """Return the same, with what the engine has of all that is not said."""
        share, length = self.gpu_memory_utilization, self.max_model_len
        if isinstance(self.workers, tuple) or (self.engine, share, length) == (None, None, None):
            return self
        if share is not None and (not is_number(share) or not 0 < share <= 1):
            said = f"{share!r} is not a share in (0, 1]"
            raise InputError(said, field=SHARE, remedy="such as 0.92")
        if self.engine is None:
            if length is None:
                return self._sized(share)
            remedy = "add --engine NAME (engine=), or leave it out"
            raise InputError("is a limit of an engine", field="max_model_len", remedy=remedy)
        profile = profile_named(self.engine)
        rest = {n: own for n, own in profile["worker"].items() if getattr(self, n) is None}
        choice = replace(self, **rest)
        if choice.memory_blocks == UNLIMITED:
            choice = replace(choice, block_tokens=None, allocation=None, prefix_cache=None)
        elif choice.allocation == "whole" and "prefix_cache" in rest:
            choice = replace(choice, prefix_cache=OFF)
        choice = choice._sized(profile.get(SHARE) if share is None else share)
        blocks, size = choice.memory_blocks, choice.block_tokens
        tokens = blocks * size if isinstance(blocks, int) and isinstance(size, int) else None
        engine = engine_on(self.engine, choice.cost, length, tokens)
        seats = read_pairs(engine.split("+")[1:], "engine")[SEATS]
        return replace(
            choice, clients=seats if self.clients is None else self.clients, engine=engine
        )

    def _sized(self, share: float | None) -> WorkerChoice:
        """Return the same with the blocks of a share of the machine's memory."""
        if share is None or self.memory_blocks is not None:
            return self
        tokens, size = kv_tokens_at(self.cost, share), self.block_tokens or MACHINE_BLOCK
        if tokens is None:
            remedy = "give --memory-blocks N (memory_blocks=), or a machine, --cost NAME"
            raise InputError("the KV cache is not known", field="memory_blocks", remedy=remedy)
        size = whole_number(size, "block_tokens", minimum=1)
        return replace(self, memory_blocks=max(1, tokens // size), block_tokens=size)

    def _of_engine(self) -> str:
        """Return what the engine has where nothing is said, and what is said otherwise."""
        name, profile, whole = self.engine, profile_named(self.engine), self.filled()
        own = {SHARE: profile.get(SHARE), **profile["worker"]}
        own["clients"] = replace(self, clients=None).filled().clients
        implied, otherwise = [], []
        for field in ("memory_blocks", *own):
            said, usual = getattr(self, field), own.get(field)
            value = getattr(whole, field) if usual is None else usual
            if said is None and value is not None:
                implied.append(f"{field}={value}")
            elif usual is not None and said != usual:
                otherwise.append(f"{field}={said} (not {usual})")
        parts = [f"as {name} has it: {', '.join(implied)}"]
        parts += [f"said otherwise: {', '.join(otherwise)}"] if otherwise else []
        if len(profile["sizes"]) > 1 and gpu_of(whole.cost) is None:
            parts.append("the GPU is not known: requests and tokens of a step as on a small one")
        return "; ".join(parts)

    def made(self) -> tuple[Worker, ...]:
        """Return the workers; raises ``InputError`` for what is missing or wrong."""
        if isinstance(self.workers, tuple):
            remedy = "leave it out, or give a number of copies"
            self._refuse(_OF_A_WORKER, "the workers are given, with all that they have", remedy)
            return self.workers
        if self.clients is None:
            raise InputError(
                "requests have no worker of their own",
                field="clients",
                remedy="say how many requests it serves at once, --clients 64, and its cost "
                "model, --cost; in Python load(path, clients=64, cost=...)",
            )
        clients = whole_number(self.clients, "clients", minimum=1)
        cost, own = read_machine(self.cost)
        memory = self._memory(own)
        worker = Worker(clients, cost, self.prefill_cap_tokens, memory, engine=self.engine or "")
        if self.workers is None:
            return (worker,)
        return copies(worker, number_of_copies(self.workers))

    def _refuse(self, names: tuple[str, ...], problem: str, remedy: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(problem, field=name, remedy=remedy)

    def _memory(self, own: BlockMemory | None) -> BlockMemory | None:
        """Return the memory that is said, in the rest that of the machine."""
        size = BLOCK_TOKENS if own is None else own.block_tokens
        if self.block_tokens is not None:
            size = whole_number(self.block_tokens, "block_tokens", minimum=1)
        blocks = self.memory_blocks
        if blocks is None and own is not None:
            blocks = own.tokens // size
            if not blocks:
                raise InputError(
                    f"a block of {size:,} tokens is larger than the machine's KV cache",
                    field="block_tokens",
                    remedy=f"give at most {own.tokens:,}",
                )
        if blocks is None or blocks == UNLIMITED:
            remedy = "give --memory-blocks N (memory_blocks=)"
            self._refuse(_OF_BLOCKS, "needs a number of blocks", remedy)
            return None
        count = whole_number(
            blocks, "memory_blocks", minimum=1, remedy="give at least 1, or unlimited"
        )
        kept = None
        try:
            if self.prefix_cache not in (None, OFF):
                kept = PrefixCache(self.prefix_cache)
        except InputError as error:
            raise InputError(error.problem, field="prefix_cache", remedy=error.remedy) from None
        return BlockMemory(count, size, self.allocation or ALLOCATION, kept)

    def assumed(self, instance: Instance) -> str | None:
        """Return in words what was assumed of an instance's worker; None: nothing."""
        parts = []
        if self.engine is not None:
            return f"assumed of the worker, since not said: {self._of_engine()}"
        if not isinstance(self.workers, tuple):
            if self.cost is None:
                parts.append("the cost model of LLaMA-65B on eight Ascend devices (--cost)")
            parts += self._assumed_memory(instance)
            if self.prefill_cap_tokens is None:
                parts.append("prefill stages of any size (--prefill-cap)")
        if self.first_token is None:
            parts.append("the first token comes from the prefill stage (--first-token)")
        return f"assumed of the worker, since not said: {', '.join(parts)}" if parts else None

    def _assumed_memory(self, instance: Instance) -> list[str]:
        memory, parts = instance.workers[0].memory, []
        if memory is None:
            return [] if self.memory_blocks else ["memory without limit (--memory-blocks)"]
        size = f"blocks of {memory.block_tokens:,} tokens"
        if self.memory_blocks is None:
            kept = f"the KV cache of the machine, {memory.blocks:,} {size}"
            parts.append(f"{kept} (--memory-blocks)")
        elif self.block_tokens is None:
            parts.append(f"{size} (--block-tokens)")
        if self.allocation is None and self.prefix_cache is None:
            parts.append(f"{memory.allocation} allocation (--allocation)")
        if not memory.is_paged and self.output_limit_tokens is None:
            limit = f"an output limit of {instance.output_limit_tokens:,} tokens"
            parts.append(f"{limit}, the longest answer (--output-limit)")
        return parts

    def labels(self) -> dict[str, Any]:
        """Return the fields of ``Instance`` that are said here."""
        names = ("first_token", "output_limit_tokens")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


OF_ENGINES = ("engine", SHARE, "max_model_len")
_OF_BLOCKS = ("prefix_cache", "block_tokens", "allocation")
_OF_A_WORKER = (
    "clients", "cost", "prefill_cap_tokens", "memory_blocks", *_OF_BLOCKS, *OF_ENGINES
)  # fmt: skip


def read_machine(
    cost: CostModel | str | os.PathLike[str] | None,
) -> tuple[CostModel, BlockMemory | None]:
    """Return a cost model, and the memory of the machine that names it, None where none does.

    The model is the object itself, a machine's, the one in a file, or by default Pang's LLaMA-65B.
    """
    if cost is None:
        return AffineCost(), None
    return read_named(cost) if isinstance(cost, (str, os.PathLike)) else (cost, None)
