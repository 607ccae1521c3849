"""The axes of a study that make scenarios of its instances: arrivals, workers and the like.

Each stands in a study as specifications, texts or tables whose lists are grids, and is written as
texts or plain values; None leaves an instance as it is.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from orsched.data.autoscaling import read_autoscaling
from orsched.data.splits import Split
from orsched.planning.study.grids import grid, listed
from orsched.solving.scenario import read_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

T = TypeVar("T")


def arrivals_axis(value: object) -> tuple[str | None, ...]:
    """Read specifications of arrivals; raises ``InputError`` for what is none."""
    from orsched.instances.arrivals import read_arrivals

    found = _specs(value, "arrivals", read_arrivals)
    return tuple(dict.fromkeys(None if law is None else law.spec() for law in found))


def predictions_axis(value: object) -> tuple[str | None, ...]:
    """Read specifications of predictors; raises ``InputError`` for what is none."""
    from orsched.instances.predictions import read_predictor

    return tuple(dict.fromkeys(map(_text, _specs(value, "predictions", read_predictor))))


def failures_axis(value: object) -> tuple[str | None, ...]:
    """Read specifications of failures; raises ``InputError`` for what is none."""
    from orsched.instances.failures import read_failures

    return tuple(dict.fromkeys(map(_text, _specs(value, "failures", read_failures))))


def autoscale_axis(value: object) -> tuple[Any, ...]:
    """Read rules of autoscaling; raises ``InputError`` for what is none."""
    found = _specs(value, "autoscale", read_autoscaling)
    return _distinct(None if rule is None else rule.to_dict() for rule in found)


def workers_axis(value: object, base: Path) -> tuple[Any, ...]:
    """Read numbers of copies, splits, and lists of worker files or tables."""
    if value is None:
        return (None,)
    found: list[Any] = []
    for item in listed(value, "workers"):
        workers = read_workers([item] if isinstance(item, dict) else item, base)
        if isinstance(workers, Split):
            found.append(str(workers))
        elif isinstance(workers, int):
            found.append(workers)
        else:
            found.append([worker.to_dict() for worker in workers])
    return _distinct(found)


def _specs(value: object, field: str, read: Callable[[Any], T]) -> Iterator[T | None]:
    """Yield what the items of an axis say, and None for ``as_given`` or an axis left out."""
    for item in [None] if value is None else listed(value, field):
        if item is None or item == "as_given":
            yield None
        else:
            yield from map(read, grid(item) if isinstance(item, dict) else [item])


def _text(law: Any) -> str | None:
    """Return a law as a specification with all its parameters."""
    if law is None:
        return None
    pairs = ",".join(f"{name}={number!r}" for name, number in asdict(law).items())
    return f"{law.law}:{pairs}" if pairs else str(law.law)


def _distinct(items: Iterable[Any]) -> tuple[Any, ...]:
    """Return plain values in order, each once."""
    return tuple({repr(item): item for item in items}.values())
