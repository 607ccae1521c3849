"""``load``: an instance by name, by path, or of requests alone and the worker that serves them."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError
from orsched.common.frames import as_frame
from orsched.common.near_names import file_hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from orsched.common.frames import HasPandas
    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.memory import BlockMemory
    from orsched.data.service_classes import ServiceClass
    from orsched.data.workers import Worker
    from orsched.instances.readers import ReadReport

    Rows = pd.DataFrame | Mapping[str, Any] | Iterable[Mapping[str, Any]] | HasPandas
    """What holds requests beside files."""


BLOCK_TOKENS = 128
"""Tokens of a KV-cache block, where neither the caller nor the machine says them."""

UNLIMITED = "unlimited"
"""The number of blocks of a memory that never limits."""


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

    def given(self) -> list[str]:
        """Return the names of what is said."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]

    def made(self) -> tuple[Worker, ...]:
        """Return the workers; raises ``InputError`` for what is missing or wrong."""
        from orsched.common.columns import whole_number
        from orsched.data.workers import Worker
        from orsched.solving.scenario import copies, number_of_copies

        if isinstance(self.workers, tuple):
            for name in _OF_A_WORKER:
                if getattr(self, name) is not None:
                    raise InputError(
                        "the workers are given, with all that they have",
                        field=name,
                        remedy="leave it out, or give a number of copies",
                    )
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
        worker = Worker(clients, cost, self.prefill_cap_tokens, self._memory(own))
        if self.workers is None:
            return (worker,)
        return copies(worker, number_of_copies(self.workers))

    def _memory(self, own: BlockMemory | None) -> BlockMemory | None:
        """Return the memory that is said, in the rest that of the machine."""
        from orsched.common.columns import whole_number
        from orsched.data.memory import ALLOCATION, BlockMemory, PrefixCache

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
            for name in _OF_BLOCKS:
                if getattr(self, name) is not None:
                    raise InputError(
                        "needs a number of blocks",
                        field=name,
                        remedy="give --memory-blocks N (memory_blocks=)",
                    )
            return None
        count = whole_number(
            blocks, "memory_blocks", minimum=1, remedy="give at least 1, or unlimited"
        )
        kept = None
        try:
            if self.prefix_cache is not None:
                kept = PrefixCache(self.prefix_cache)
        except InputError as error:
            raise InputError(error.problem, field="prefix_cache", remedy=error.remedy) from None
        return BlockMemory(count, size, self.allocation or ALLOCATION, kept)

    def assumed(self, instance: Instance) -> str | None:
        """Return in words what was assumed of an instance's worker; None: nothing."""
        parts = []
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


_OF_BLOCKS = ("prefix_cache", "block_tokens", "allocation")
_OF_A_WORKER = ("clients", "cost", "prefill_cap_tokens", "memory_blocks", *_OF_BLOCKS)


def read_machine(
    cost: CostModel | str | os.PathLike[str] | None,
) -> tuple[CostModel, BlockMemory | None]:
    """Return a cost model, and the memory of the machine that names it, None where none does.

    The model is the object itself, a machine's, the one in a file, or by default Pang's LLaMA-65B.
    """
    from orsched.costs import AffineCost

    if cost is None:
        return AffineCost(), None
    if isinstance(cost, (str, os.PathLike)):
        from orsched.calibration.catalogue import read_machine as read_named

        return read_named(os.fspath(cost))
    return cost, None


def assumptions(instance: Instance, **said: Any) -> str | None:
    """Return in words what ``orsched.load`` assumed beside these arguments; None: nothing."""
    known = {each.name for each in fields(WorkerChoice)}
    return WorkerChoice(**{key: said[key] for key in said if key in known}).assumed(instance)


class Loaded(NamedTuple):
    """An instance that was made of requests, the report on reading them, and what was assumed."""

    instance: Instance
    report: ReadReport
    assumed: str | None


def holds_requests(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a file of requests or a data set, and no native instance.

    Native are the shipped names and files that name a format of orsched; a JSON file that is
    neither native nor a known trace counts as a native one that is broken where it has its fields.
    """
    from orsched.files.parquet import holds_rows
    from orsched.instances.catalog import names
    from orsched.instances.datasets import DATA_SETS
    from orsched.instances.readers import detect

    path = Path(source)
    if not path.is_file():
        known = str(source) in DATA_SETS and str(source) not in names() and not path.exists()
        return known or path.suffix.lower() in REQUEST_SUFFIXES
    if path.suffix.lower() in (".parquet", *REQUEST_SUFFIXES):
        return path.suffix.lower() != ".parquet" or holds_rows(path)
    with path.open("rb") as stream:
        head = stream.read(4096)
    if b'"orsched/' in head:
        return False
    try:
        detect(path)
    except InputError:
        return not any(name in head for name in (b'"format"', b'"version"', b'"requests"'))
    return True


REQUEST_SUFFIXES = (".csv", ".tsv", ".jsonl", ".xlsx", ".xlsm", ".xls", ".ods")


def load_requests(
    source: str | os.PathLike[str] | pd.DataFrame,
    choice: WorkerChoice,
    *,
    classes: Sequence[str | ServiceClass] = (),
    format: str | None = None,
    drop_empty: bool = False,
    spread: bool = False,
) -> Loaded:
    """Return the instance of a file of requests, or of a trace, and the worker that is said.

    Arguments as in ``load``, without native files and shipped names. Raises ``InputError`` if the
    worker is not said, or the file is wrong.
    """
    from orsched.data.service_classes import DEFAULT_CLASSES, priority_classes, with_specs
    from orsched.instances.datasets import instance_of, source_path
    from orsched.instances.readers import detect, read, spread_arrivals
    from orsched.instances.readers.own_columns import FORMAT as OWN
    from orsched.instances.readers.own_columns import read_frame

    kinds = with_specs(DEFAULT_CLASSES, classes)
    options: dict[str, Any] = {"drop_empty": drop_empty}
    names = [kind.name for kind in kinds]
    if isinstance(source, (str, os.PathLike)):
        path = source_path(source)
        if not os.path.exists(path):
            raise InputError("the file does not exist", file=str(path), remedy=file_hint(path))
        form = detect(path) if format is None else format
        workers = choice.made()
        options |= {"classes": names} if form == OWN else {}
        requests, report = read(path, form, **options)
    else:
        path, workers = Path("data frame"), choice.made()
        requests, report = read_frame(source, classes=names, **options)
    if spread:
        requests = spread_arrivals(requests)
    if report.priorities:
        kinds = with_specs(priority_classes(report.priorities), classes)
    named = {"classes": kinds, "concurrency": report.concurrency, **choice.labels()}
    instance = instance_of(requests, report, path, workers, **named)
    return Loaded(instance, report, choice.assumed(instance))


def load(
    source: str | os.PathLike[str] | Rows,
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

    A text with a suffix or a folder in it is a path; everything else is a name, ``lib:NAME`` one of
    the public library. A native file (JSON or Parquet) and a name hold their workers. Requests
    alone (CSV, JSON lines, Parquet, each trace that ``orsched convert`` reads) need ``clients``,
    and get one worker, or ``workers`` copies of it:

        orsched.load("mine.csv", clients=64, cost="cost.json", memory_blocks=4000)

    Args:
        source: a name, a path, or requests: a data frame, a dict of columns, records (a list of
            dicts), or an object with ``to_pandas`` (a data set of Hugging Face, a table of Arrow
            or Polars). All take the column names that files may have.
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

    Raises ``InputError`` if the file does not exist or name, the file is wrong, requests have no
    ``clients``, or a native instance gets arguments that are for requests.

    >>> case = orsched.load("pang-100x20")
    >>> len(case.requests), case.workers[0].clients
    (100, 20)
    """

    if not isinstance(source, (str, os.PathLike)):
        source = as_frame(source)
    choice = WorkerChoice(
        clients, cost, prefill_cap_tokens, memory_blocks, block_tokens, allocation, prefix_cache,
        first_token, output_limit_tokens, workers,
    )  # fmt: skip
    is_path = isinstance(source, (str, os.PathLike))
    if not is_path or format is not None or holds_requests(source):  # type: ignore[arg-type]
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

    Clients, caps and memory stay; a worker without memory gets the KV cache of the machine.
    """

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
    """Return the instance in a native file, or one by its name, shipped or of the library."""
    path = Path(source)
    if _is_path(source):
        from orsched.files import load_instance

        return load_instance(path)
    if str(source).startswith("lib:"):
        from orsched.instances.library_index import load_listed

        return load_listed(str(source))
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
