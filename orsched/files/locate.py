"""``load``: an instance by name, by path, or of requests alone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.service_classes import ServiceClass
    from orsched.data.workers import Worker


def load(
    source: str | os.PathLike[str] | pd.DataFrame,
    *,
    clients: int | None = None,
    cost: CostModel | str | os.PathLike[str] | None = None,
    prefill_cap_tokens: int | None = None,
    memory_blocks: int | str | None = None,
    block_tokens: int | None = None,
    allocation: str | None = None,
    prefix_cache: str | None = None,
    first_token: str | None = None,
    output_limit_tokens: int | None = None,
    workers: int | tuple[Worker, ...] | None = None,
    classes: Sequence[str | ServiceClass] = (),
    format: str | None = None,
    drop_empty: bool = False,
    spread: bool = False,
) -> Instance:
    """Return the instance with this name, in this file, or of the requests in it.

    A text with a suffix or a folder in it is a path; everything else is a name. A native file (JSON
    or Parquet) and a shipped name hold their workers. Requests alone (CSV, JSON lines, and every
    trace that ``orsched convert`` reads) need ``clients``, and get one worker, or ``workers``
    copies of it:

        orsched.load("mine.csv", clients=64, cost="cost.json", memory_blocks=4000)

    Args:
        source: a name, a path, or a data frame with a row for each request.
        clients: J, the requests that the worker serves at once.
        cost: its cost model, a machine's name or a cost-model file (default: Pang's LLaMA-65B).
            It replaces the cost models of a native instance.
        prefill_cap_tokens: most tokens of a prefill stage (default: no limit).
        memory_blocks: its KV-cache blocks, or ``unlimited`` (default: those of the machine that
            ``cost`` names, else ``unlimited``).
        block_tokens: tokens per block (default: as the machine has them, else 128).
        allocation: ``paged`` (default): a request takes blocks as its cache grows; ``whole``: all
            at its admission.
        prefix_cache: ``lru``, ``task_aware`` or ``least_future_use``: keep freed blocks.
        first_token: as in ``Instance`` (default: ``prefill``).
        output_limit_tokens: the server's limit on output tokens.
        workers: copies of the worker, or workers in place of all that describes one.
        classes: service classes, or texts such as ``interactive:ttft=1,tpot=0.05``.
        format: the format of a foreign trace (default: recognised).
        drop_empty: leave requests without tokens out.
        spread: spread arrivals that share one clock tick.

    Raises:
        InputError: there is no such file or name, the file is wrong, requests have no ``clients``,
            or a native instance gets arguments that are for requests.
    """
    from orsched.files.request_files import WorkerChoice, holds_requests, is_frame, load_requests

    if not (isinstance(source, (str, os.PathLike)) or is_frame(source)):
        raise InputError(
            f"{type(source).__name__} is not a name, a path or a data frame",
            field="source",
            remedy='orsched.load("pang-100x20") or orsched.load("mine.csv", clients=64)',
        )
    choice = WorkerChoice(
        clients, cost, prefill_cap_tokens, memory_blocks, block_tokens, allocation, prefix_cache,
        first_token, output_limit_tokens, workers,
    )  # fmt: skip
    if is_frame(source) or format is not None or holds_requests(source):  # type: ignore[arg-type]
        return load_requests(
            source, choice, classes=classes, format=format, drop_empty=drop_empty, spread=spread
        ).instance
    found = _native(source)  # type: ignore[arg-type]
    foreign = [name for name, value in (("drop_empty", drop_empty), ("spread", spread)) if value]
    for name in (*choice.given(), *foreign):
        if name != "cost":
            raise has_its_own(name)
    if cost is not None:
        found = with_cost(found, cost)
    return found.with_classes(*classes) if classes else found


def with_cost(instance: Instance, cost: CostModel | str | os.PathLike[str]) -> Instance:
    """Return an instance whose workers have this cost model, or the one that a name stands for.

    Clients, caps and memory stay as they are; a worker without memory gets the KV cache of the
    machine. Raises ``InputError`` as ``read_machine``.
    """
    from orsched.files.request_files import read_machine

    model, memory = read_machine(cost)
    label = Path(cost).stem if isinstance(cost, (str, os.PathLike)) else model.model
    return instance.replace(
        workers=tuple(
            replace(worker, cost=model, memory=worker.memory or memory)
            for worker in instance.workers
        ),
        name=f"{instance.name} ({label})",
    )


def has_its_own(name: str) -> InputError:
    """Return what to say of an argument that a native instance does not take."""
    return InputError(
        "does not apply: a native instance has its own",
        field=name,
        remedy="leave it out, or write the requests alone with orsched convert INSTANCE "
        "requests.csv, and describe their worker",
    )


def _native(source: str | os.PathLike[str]) -> Instance:
    """Return the instance in a native file, or a shipped one by its name."""
    path = Path(source)
    if _is_path(source):
        from orsched.files import load_instance

        return load_instance(path)
    from orsched.instances.catalog import load_named

    try:
        return load_named(str(source))
    except InputError as error:
        raise InputError(
            error.problem,
            field="instance",
            remedy=f"{error.remedy}; or give the path of an instance file"
            if error.remedy
            else "give a shipped name or the path of an instance file",
        ) from None


def _is_path(source: str | os.PathLike[str]) -> bool:
    path = Path(source)
    return path.suffix in (".json", ".parquet") or path.name != str(source) or path.exists()
