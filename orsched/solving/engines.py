"""Engines as they are shipped: what a server or library has where its user says nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from orsched.calibration.catalogue import gpu_of
from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.data.memory import BlockMemory, PrefixCache

if TYPE_CHECKING:
    import os

    from orsched.costs import CostModel
    from orsched.data.instance import Instance

SEATS, LENGTH = "max_num_seqs", "max_model_len"


@cache
def profiles() -> dict[str, dict[str, Any]]:
    """Return the engines by name, as ``engines.toml`` has them."""
    import tomllib

    return tomllib.loads(files("orsched.solving").joinpath("engines.toml").read_text("utf-8"))


def profile_named(name: object, field: str = "engine") -> dict[str, Any]:
    """Return an engine by its name; raises ``InputError`` for an unknown one."""
    if not isinstance(name, str) or name not in profiles():
        remedy = known_names(name, profiles())
        raise InputError(f"unknown engine {name!r}", field=field, remedy=remedy)
    return profiles()[name]


def engine_on(
    name: str,
    cost: CostModel | str | os.PathLike[str] | None,
    length: int | None,
    tokens: int | None,
) -> str:
    """Return ``Worker.engine`` on the GPU of a machine, on a small one where it is not known;
    ``InputError`` where the tokens of the KV cache do not hold its limit on a request's length."""
    profile, gpu = profile_named(name), gpu_of(cost)
    small = gpu is None or any(each in gpu.name for each in profile.get("small", ()))
    held = 0 if small or gpu is None else gpu.memory_bytes // 10**9
    size = dict(next(each for each in profile["sizes"] if held >= each["gigabytes"]))
    del size["gigabytes"]
    if length is not None:
        whole_number(length, LENGTH, minimum=1)
        if tokens is not None and tokens < length:
            raise InputError(
                f"the KV cache holds {tokens:,} tokens: the engine does not start",
                field=LENGTH,
                remedy=f"give at most {tokens}",
            )
        if "max_num_batched_tokens" in size:
            most = size[SEATS] * length
            size["max_num_batched_tokens"] = min(size["max_num_batched_tokens"], most)
        size[LENGTH] = length
    settings = {**size, **profile["settings"]}
    return "+".join([name, *(f"{key}={str(value).lower()}" for key, value in settings.items())])


def with_engine(
    instance: Instance,
    name: str,
    cost: str | os.PathLike[str] | CostModel | None,
    length: int | None,
) -> Instance:
    """Return an instance whose workers run an engine: its settings, and its kind of KV cache.

    Clients, caps and the first-token rule stay, and so do the tokens of each memory.
    """
    said, workers, requests = profile_named(name)["worker"], [], instance.requests
    size, rule = said["block_tokens"], said.get("prefix_cache")
    kept = None if rule is None else PrefixCache(rule)
    for worker in instance.workers:
        memory = worker.memory
        if memory is not None and not worker.padding:
            blocks = max(1, memory.tokens // size)
            memory = BlockMemory(blocks, size, said["allocation"], kept)
        tokens = None if memory is None else memory.tokens
        engine = engine_on(name, cost or worker.cost, length, tokens)
        workers.append(replace(worker, memory=memory, engine=engine))
    if requests.prefixes is not None and kept and requests.prefixes.block_tokens % size == 0:
        requests = requests.refined(size)
    return instance.replace(
        requests=requests, workers=tuple(workers), name=f"{instance.name} ({name})"
    )
