"""Shipped instances and generators, by name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.instances.gsm8k import gsm8k, pang_case
from orsched.instances.small import KNOWN_OPTIMA, SMALL
from orsched.instances.sources import sources
from orsched.instances.synthetic import peers_workload, uniform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orsched.data.instance import Instance

__all__ = ["GENERATORS", "KNOWN_OPTIMA", "generate", "load_named", "names"]


def _gsm8k_llama65b() -> Instance:
    """Pang's main case: 1,319 requests on 200 clients, seed 0."""
    return gsm8k(seed=0, name="gsm8k-llama65b")


def _pang_100x20() -> Instance:
    """The size at which Pang solves the full MIP: the first 100 requests on 20 clients."""
    return gsm8k(seed=0, requests=100, clients=20, name="pang-100x20")


SHIPPED: dict[str, Callable[[], Instance]] = {
    "gsm8k-llama65b": _gsm8k_llama65b,
    "pang-100x20": _pang_100x20,
    **SMALL,
}

GENERATORS: dict[str, Callable[..., Instance]] = {
    "gsm8k": gsm8k,
    "pang-case": pang_case,
    "peers": peers_workload,
    "sources": sources,
    "uniform": uniform,
}
"""Generators of instances, by name; their arguments are those of the functions."""


def names() -> list[str]:
    """Return the names of the shipped instances."""
    return list(SHIPPED)


@cache
def _made(name: str) -> Instance:
    return SHIPPED[name]()


def load_named(name: str) -> Instance:
    """Return a shipped instance.

    Raises:
        InputError: no shipped instance has that name; the message lists them.
    """
    if name in GENERATORS and name not in SHIPPED:
        raise InputError(
            f"{name!r} is a generator, and no instance",
            field="name",
            remedy=f"orsched generate {name} -o {name}.json makes one; compare takes --seeds 0:10",
        )
    if name not in SHIPPED:
        raise _unknown("shipped instance", name, SHIPPED)
    return _made(name)


def generate(name: str, /, **parameters: Any) -> Instance:
    """Return an instance of a generator (``GENERATORS``), with the arguments of its function.

    Raises:
        InputError: the generator or an argument is unknown, missing or wrong.
    """
    if not isinstance(name, str) or name not in GENERATORS:
        raise _unknown("generator", str(name), GENERATORS)
    from inspect import signature

    known = signature(GENERATORS[name])
    for parameter in parameters:
        if parameter not in known.parameters:
            raise InputError(
                f"generator {name} has no argument {parameter!r}",
                field="parameters",
                remedy=known_names(parameter, known.parameters, "known arguments: "),
            )
    try:
        known.bind(**parameters)
    except TypeError as error:
        raise InputError(
            f"generator {name}: {error}",
            field="parameters",
            remedy=f"known arguments: {', '.join(known.parameters)}",
        ) from None
    return GENERATORS[name](**parameters)


def _unknown(kind: str, name: str, known: Mapping[str, object]) -> InputError:
    return InputError(f"there is no {kind} {name!r}", field="name", remedy=known_names(name, known))
