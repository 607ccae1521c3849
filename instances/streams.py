"""Random streams, one for each purpose, and specifications of what is drawn from them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.parameters import read_list_of_pairs
from orsched.common.scalars import printed


def read_spec(
    spec: object, base: type, kinds: Mapping[str, Any], *, field: str, what: str, example: str
) -> Any:
    """Return what a specification names: one of ``kinds`` with its parameters.

    ``spec`` is a text, a mapping with the key ``law`` beside the parameters, or an object of the
    ``base`` class already; the dataclass checks the values. ``field``, ``what`` and ``example`` are
    for errors.
    """
    if isinstance(spec, base):
        return spec
    if isinstance(spec, str):
        name, _, rest = spec.partition(":")
        parameters = _pairs(name, rest, kinds, field)
    elif isinstance(spec, Mapping):
        parameters = {key: value for key, value in spec.items() if key != "law"}
        name = spec.get("law", "")
    else:
        raise InputError(
            f"{printed(spec)} is not a specification", field=field, remedy=f"e.g. {example}"
        )
    if not isinstance(name, str) or name not in kinds:
        raise InputError(
            f"unknown {what} {printed(name)}",
            field=field,
            remedy=f"{known_names(name, kinds)}; e.g. {example}",
        )
    known = {item.name: item for item in fields(kinds[name])}
    for parameter in parameters:
        if parameter not in known:
            remedy = known_names(parameter, known, none="it has none")
            raise InputError(
                f"{name} has no parameter {printed(parameter)}", field=field, remedy=remedy
            )
    for item in known.values():
        if item.name not in parameters and item.default is MISSING:
            raise InputError(
                f"{name} lacks {item.name}", field=field, remedy=f"e.g. {name}:{item.name}=1"
            )
    return kinds[name](**parameters)


def _pairs(name: str, rest: str, kinds: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return the parameters; a value without its name is answered with how it is written."""
    try:
        return read_list_of_pairs(rest, field)
    except InputError as error:
        names = [item.name for item in fields(kinds[name])] if name in kinds else []
        if "=" in rest or not names:
            raise
        raise InputError(
            error.problem, field=field, remedy=f"did you mean {name}:{names[0]}={rest}?"
        ) from None


def stream(name: str, seed: int) -> np.random.Generator:
    """Return the random stream of a name under a seed.

    The generator is PCG64, seeded by the seed and the SHA-256 of the name, so a further stream
    shifts none of the others. Raises ``InputError`` unless the seed is a whole number >= 0.
    """
    number = whole_number(seed, "seed", remedy="give a whole number of at least 0")
    digest = hashlib.sha256(name.encode()).digest()
    words = np.frombuffer(digest[:16], dtype="<u4").tolist()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([number, *words])))
