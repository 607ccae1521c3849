"""Instances of requests alone: a file or a trace, and the worker that serves it."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.errors import InputError
from orsched.near_names import file_hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.costs import CostModel
    from orsched.instance import Instance
    from orsched.instances.readers import ReadReport
    from orsched.memory import BlockMemory
    from orsched.service_classes import ServiceClass
    from orsched.workers import Worker

BLOCK_TOKENS = 128
"""Tokens of a KV-cache block, where none are said."""


@dataclass(frozen=True)
class WorkerChoice:
    """What is said of the worker that serves requests; None: not said.

    Attributes:
        clients: J, the requests that it serves at once.
        cost: a cost model, or what ``read_cost`` takes.
        prefill_cap_tokens: most tokens of a prefill stage.
        memory_blocks, block_tokens: KV-cache blocks, and the tokens of one.
        prefix_cache: the rule of eviction of a prefix cache.
        first_token, output_limit_tokens: as in ``Instance``.
        workers: copies of the worker; or the workers themselves, in place of all but
            ``first_token`` and ``output_limit_tokens``.
    """

    clients: int | None = None
    cost: CostModel | str | os.PathLike[str] | None = None
    prefill_cap_tokens: int | None = None
    memory_blocks: int | None = None
    block_tokens: int | None = None
    prefix_cache: str | None = None
    first_token: str | None = None
    output_limit_tokens: int | None = None
    workers: int | tuple[Worker, ...] | None = None

    def given(self) -> list[str]:
        """Return the names of what is said."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]

    def made(self) -> tuple[Worker, ...]:
        """Return the workers; raises ``InputError`` for what is missing or wrong."""
        from orsched.columns import whole_number
        from orsched.scenario import copies, number_of_copies
        from orsched.workers import Worker

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
        worker = Worker(clients, read_cost(self.cost), self.prefill_cap_tokens, self._memory())
        if self.workers is None:
            return (worker,)
        return copies(worker, number_of_copies(self.workers))

    def _memory(self) -> BlockMemory | None:
        from orsched.memory import BlockMemory, PrefixCache

        if self.memory_blocks is None:
            for name in ("prefix_cache", "block_tokens"):
                if getattr(self, name) is not None:
                    raise InputError(
                        "needs a number of blocks",
                        field=name,
                        remedy="give --memory-blocks N (memory_blocks=)",
                    )
            return None
        size = BLOCK_TOKENS if self.block_tokens is None else self.block_tokens
        if self.prefix_cache is None:
            return BlockMemory(self.memory_blocks, size)
        try:
            kept = PrefixCache(self.prefix_cache)
        except InputError as error:
            raise InputError(error.problem, field="prefix_cache", remedy=error.remedy) from None
        return BlockMemory(self.memory_blocks, size, "paged", kept)

    def assumed(self) -> str | None:
        """Return in words what was assumed of the worker since it was not said; None: nothing."""
        whole = isinstance(self.workers, tuple)
        names = [name for name in _ASSUMED if not whole or name not in _OF_A_WORKER]
        parts = [_ASSUMED[name] for name in names if getattr(self, name) is None]
        return f"assumed of the worker, since not said: {', '.join(parts)}" if parts else None

    def labels(self) -> dict[str, Any]:
        """Return the fields of ``Instance`` that are said here."""
        names = ("first_token", "output_limit_tokens")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


_OF_A_WORKER = (
    "clients", "cost", "prefill_cap_tokens", "memory_blocks", "block_tokens", "prefix_cache",
)  # fmt: skip
_ASSUMED = {
    "cost": "the cost model of LLaMA-65B on eight Ascend devices (--cost)",
    "memory_blocks": "memory without limit (--memory-blocks)",
    "prefill_cap_tokens": "prefill stages of any size (--prefill-cap)",
    "first_token": "the first token comes from the prefill stage (--first-token)",
}
"""What ``made`` takes for what is not said, in the words of a note."""


def read_cost(cost: CostModel | str | os.PathLike[str] | None) -> CostModel:
    """Return a cost model: the object, a machine's or the one in a file, or Pang's LLaMA-65B.

    Raises ``InputError`` for a file that is wrong, and for a name that is no machine's.
    """
    from orsched.costs import AffineCost

    if cost is None:
        return AffineCost()
    if isinstance(cost, (str, os.PathLike)):
        from orsched.hardware import read_cost as read_named

        return read_named(os.fspath(cost))
    return cost


def assumptions(**said: Any) -> str | None:
    """Return in words what ``orsched.load`` assumes beside these arguments; None: nothing."""
    known = {each.name for each in fields(WorkerChoice)}
    return WorkerChoice(**{key: said[key] for key in said if key in known}).assumed()


class Loaded(NamedTuple):
    """An instance that was made of requests, the report on reading them, and what was assumed."""

    instance: Instance
    report: ReadReport
    assumed: str | None


def holds_requests(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a file of requests or a data set, and no native instance.

    Native are the shipped names, Parquet files and what names a format of orsched; a JSON file
    that is neither native nor a known trace counts as a native one that is broken.
    """
    from orsched.instances.catalog import names
    from orsched.instances.dataset_table import DATA_SETS
    from orsched.instances.readers import detect

    path = Path(source)
    if not path.is_file():
        known = str(source) in DATA_SETS and str(source) not in names() and not path.exists()
        return known or path.suffix.lower() in REQUEST_SUFFIXES
    if path.suffix.lower() == ".parquet":
        return False
    if path.suffix.lower() in REQUEST_SUFFIXES:
        return True
    with path.open("rb") as stream:
        head = stream.read(4096)
    if b'"orsched/' in head:
        return False
    try:
        detect(path)
    except InputError:
        return False
    return True


REQUEST_SUFFIXES = (".csv", ".tsv", ".jsonl", ".xlsx", ".xlsm", ".xls", ".ods")


def load_requests(
    source: str | os.PathLike[str],
    choice: WorkerChoice,
    *,
    classes: Sequence[str | ServiceClass] = (),
    format: str | None = None,
    drop_empty: bool = False,
    spread: bool = False,
) -> Loaded:
    """Return the instance of a file of requests, or of a trace, and the worker that is said.

    Args:
        source: requests in orsched's own columns, a trace that ``orsched convert`` reads, or the
            name of a data set in the folder that ``ORSCHED_DATA`` names.
        choice: the worker.
        classes: service classes, or specifications such as ``interactive:ttft=1``.
        format: the trace's format; None: recognised.
        drop_empty: leave failed requests out, counted in the report.
        spread: spread equal arrival times (``spread_arrivals``).

    Raises:
        InputError: the worker is not said, or the file is wrong.
    """
    from orsched.instances.datasets import instance_of, source_path
    from orsched.instances.readers import detect, read, spread_arrivals
    from orsched.instances.readers.formats import OWN
    from orsched.service_classes import DEFAULT_CLASSES, priority_classes, with_specs

    path = source_path(source)
    if not os.path.exists(path):
        raise InputError("there is no such file", file=str(path), remedy=file_hint(path))
    workers = choice.made()
    kinds = with_specs(DEFAULT_CLASSES, classes)
    form = detect(path) if format is None else format
    options = {"classes": [kind.name for kind in kinds]} if form == OWN else {}
    requests, report = read(path, form, drop_empty=drop_empty, **options)
    if spread:
        requests = spread_arrivals(requests)
    if report.priorities:
        kinds = with_specs(priority_classes(report.priorities), classes)
    named = {"classes": kinds, **choice.labels()}
    instance = instance_of(requests, report, path, workers, **named)
    return Loaded(instance, report, choice.assumed())
