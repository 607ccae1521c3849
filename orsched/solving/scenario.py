"""Scenarios: an instance on other workers, with other arrivals and predicted lengths."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.data.autoscaling import Autoscaling, read_autoscaling
from orsched.data.links import Split, read_split
from orsched.data.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orsched.data.instance import Instance
    from orsched.instances.arrivals import Arrivals
    from orsched.instances.failures import Exponential
    from orsched.instances.predictions import Predictor

_MOST_COPIES = 100_000
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")

Workers = int | tuple[Worker, ...] | Split
"""How many copies of an instance's worker, other workers, or copies with roles."""


def read_workers(spec: object, base: str | os.PathLike[str] = ".") -> Workers:
    """Return the workers that a specification names.

    Args:
        spec: a number of copies (``4`` or ``"4"``), copies by role with their link
            (``2P2D:ns_per_token=5243,latency_ns=10000``, see ``data.links``), the path of a
            worker file, several of them with commas or in a list, or a list of tables and
            ``Worker`` objects. A worker file is JSON or TOML with the fields of an entry of
            ``workers`` in an instance file; ``cost`` may be the path of a cost-model file beside
            it, or the name of a machine, whose KV cache is then the default ``memory``.
        base: the folder that relative paths start from.

    Raises:
        InputError: the specification or a file is wrong.
    """
    given = spec
    if isinstance(spec, Split):
        return spec
    if isinstance(spec, str):
        if (split := read_split(spec)) is not None:
            return split
        parts = _parts(spec)
        if len(parts) == 1 and _NUMBER.fullmatch(parts[0]):
            return read_workers(int(parts[0]), base)
        spec = parts
    if isinstance(spec, (Worker, dict)):
        spec = [spec]
    if isinstance(spec, int) and not isinstance(spec, bool):
        return number_of_copies(spec)
    if not isinstance(spec, (list, tuple)) or not spec:
        raise InputError(
            f"{given!r} does not name workers",
            field="workers",
            remedy="give a number, or worker files",
        )
    return tuple(_worker(item, Path(base)) for item in spec)


def number_of_copies(number: object) -> int:
    """Return a number of workers; raises ``InputError`` for what is none."""
    return whole_number(number, "workers", minimum=1, maximum=_MOST_COPIES)


def copies(worker: Worker, number: int) -> tuple[Worker, ...]:
    """Return so many copies of a worker, each with a name of its own."""
    return tuple(replace(worker, name=f"worker-{index}") for index in range(number))


def _parts(spec: str) -> list[str]:
    return [part.strip() for part in spec.split(",") if part.strip()]


def worker_files(spec: object, base: str | os.PathLike[str] = ".") -> tuple[Path, ...]:
    """Return the files that ``read_workers`` reads for a specification it takes: the worker files,
    and the cost-model files that they name."""
    if isinstance(spec, str) and read_split(spec) is not None:
        return ()
    items = _parts(spec) if isinstance(spec, str) else spec
    if not isinstance(items, (list, tuple)):
        return ()
    found = []
    for path in [Path(base) / item for item in items if isinstance(item, str)]:
        if path.is_file():  # a number of copies is none
            found.append(path)
            cost = _table(path).get("cost")
            if isinstance(cost, str) and (path.parent / cost).is_file():  # else a machine's name
                found.append(path.parent / cost)
    return tuple(found)


def _worker(item: object, base: Path) -> Worker:
    from orsched.common.registry import cost_model

    if isinstance(item, Worker):
        return item
    if isinstance(item, dict):
        return Worker.from_dict(item, cost_model)
    if not isinstance(item, str):
        raise InputError(
            f"{item!r} is not a worker file", field="workers", remedy="give the path of a file"
        )
    path = base / item
    if not os.path.exists(path):  # unlike Path's, says no to names that no file can have
        roles = item.partition(":")[0].upper()
        remedy = "give a whole number of workers, or the paths of worker files"
        if read_split(roles) is not None:
            remedy = f"roles are capital letters: did you mean {roles}?"
        raise InputError("no such file", file=str(path), field="workers", remedy=remedy)
    try:
        return Worker.from_dict(_document(path), cost_model)
    except InputError as error:
        raise error.located(file=str(path)) from None


def _table(path: Path) -> dict[str, Any]:
    from orsched.files.text import parse_json, read_text, read_toml

    read = read_toml(path) if path.suffix == ".toml" else parse_json(read_text(path))
    if not isinstance(read, dict):
        raise InputError(
            "holds no worker", remedy="write the fields of an entry of workers in an instance file"
        )
    return read


def _document(path: Path) -> dict[str, Any]:
    """Return the fields of a worker file; the name of a machine gives cost and, unsaid, memory."""
    from orsched.calibration.catalogue import read_machine

    values = dict(_table(path))
    if isinstance(values.get("cost"), str):
        cost, memory = read_machine(values["cost"], path.parent)
        values["cost"] = {"model": cost.model, **cost.to_dict()}
        values.setdefault("memory", None if memory is None else memory.to_dict())
    return values


def with_workers(instance: Instance, workers: Workers) -> Instance:
    """Return an instance on other workers; raises ``InputError`` where copies are asked for of
    workers that differ in more than their names."""
    link, label = instance.link, ""
    if isinstance(workers, (int, Split)):
        first = instance.workers[0]
        if any(replace(other, name=first.name) != first for other in instance.workers):
            raise InputError(
                "the instance's workers differ: it is not clear which one to copy",
                field="workers",
                remedy="give worker files",
            )
        if isinstance(workers, Split):
            label, link = workers.name, workers.link or link
            workers = workers.of(first)
        else:
            workers = copies(first, workers)
    label = label or f"{len(workers)} worker{'s' if len(workers) > 1 else ''}"
    return instance.replace(workers=workers, link=link, name=f"{instance.name} ({label})")


def scenario(
    instance: Instance,
    workers: object = None,
    arrivals: str | Mapping[str, Any] | Arrivals | None = None,
    predictions: str | Mapping[str, Any] | Predictor | None = None,
    seed: int = 0,
    failures: str | Mapping[str, Any] | Exponential | None = None,
    autoscale: str | Mapping[str, Any] | Autoscaling | None = None,
    concurrency: int | None = None,
) -> Instance:
    """Return an instance on other workers, with other arrivals and predicted lengths, if given.

    Requests that fit onto none of its workers are left out (``Instance.admitted``).

    Args:
        instance: whose requests, and whose worker, are taken.
        workers: what ``read_workers`` takes: a number of copies, worker files, ``Worker`` objects.
        arrivals: what ``read_arrivals`` takes, e.g. ``poisson:rate=20``.
        predictions: what ``read_predictor`` takes, e.g. ``noise:sigma=0.3``.
        seed: of arrivals, predictions and failures.
        failures: what ``read_failures`` takes, e.g. ``exponential:mtbf=3600,mttr=120``.
        autoscale: what ``read_autoscaling`` takes, e.g. ``min=1,max=8,target=0.7,startup=40``.
        concurrency: requests (conversations) in flight at most (``Instance.concurrency``).

    Raises:
        InputError: a specification is wrong, or does not suit the instance.
    """
    from orsched.instances.arrivals import with_arrivals
    from orsched.instances.failures import with_failures
    from orsched.instances.predictions import predict

    if workers is not None:
        instance = with_workers(instance, read_workers(workers))
    if arrivals is not None:
        instance = with_arrivals(instance, arrivals, seed)
    if concurrency is not None:
        instance = instance.replace(concurrency=concurrency)
    if autoscale is not None:
        instance = instance.replace(autoscaling=read_autoscaling(autoscale))
    if instance.autoscaling is not None:
        try:
            instance.autoscaling.limits(instance.workers)
        except InputError as error:
            if autoscale is None:
                raise
            raise InputError(error.problem, field="autoscale", remedy=error.remedy) from None
    if failures is not None:
        instance = with_failures(instance, failures, seed)
    if predictions is not None:
        instance = predict(instance, predictions, seed)
    return instance.admitted()
