"""``load``: an instance by name, by path, or of requests alone and the worker that serves them."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.columns import as_frame
from orsched.common.errors import InputError, file_hint
from orsched.files.worker_choice import OF_ENGINES, WorkerChoice, read_machine
from orsched.solving.engines import with_engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from orsched.common.columns import HasPandas
    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.service_classes import ServiceClass
    from orsched.data.workers import Worker
    from orsched.instances.readers import ReadReport

    Rows = pd.DataFrame | Mapping[str, Any] | Iterable[Mapping[str, Any]] | HasPandas
    """What holds requests beside files."""


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

    kinds, said = with_specs(DEFAULT_CLASSES, classes), choice
    choice = choice.filled()
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
    return Loaded(instance, report, said.assumed(instance))


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
    engine: str | None = None,
    gpu_memory_utilization: float | None = None,
    max_model_len: int | None = None,
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
        engine: ``vllm-0.33`` (its server), ``vllm-0.33-offline`` (its ``LLM`` class) or ``pang``:
            what is not said is as it has it, for policies too. A native instance keeps its clients.
        gpu_memory_utilization: share of a machine's memory (default: the engine's, else 0.9).
        max_model_len: the engine's limit on prompt and answer together.

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
        first_token, output_limit_tokens, workers, engine, gpu_memory_utilization, max_model_len,
    )  # fmt: skip
    is_path = isinstance(source, (str, os.PathLike))
    if not is_path or format is not None or holds_requests(source):  # type: ignore[arg-type]
        return load_requests(
            source, choice, classes=classes, format=format, drop_empty=drop_empty, spread=spread
        ).instance
    found = _native(source)  # type: ignore[arg-type]
    foreign = [name for name, value in (("drop_empty", drop_empty), ("spread", spread)) if value]
    for name in (*choice.given(), *foreign):
        if name not in ("cost", *OF_ENGINES) or (engine is None and name in OF_ENGINES):
            raise has_its_own(name)
    if cost is not None:
        found = with_cost(found, cost)
    if engine is not None:
        found = with_engine(found, engine, cost, max_model_len)
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
