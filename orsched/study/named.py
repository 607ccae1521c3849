"""Named policies: what can be refused before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_method(name: str, information: object, field: str) -> None:
    """Raise ``InputError`` unless a method has this name and runs with this information."""
    from difflib import get_close_matches

    from orsched.registry import names, resolve

    known = names("methods")
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"there is no policy {name!r}",
            field=field,
            remedy=f"{hint}known: {', '.join(known)}; or module:Class of your own",
        )
    kinds = tuple(str(kind) for kind in resolve("methods", name).information)
    if information is not None and information not in kinds:
        raise InputError(
            f"{name} does not run with information {information!r}",
            field="information" if field == "policy" else "policies.information",
            remedy=f"one of: {', '.join(kinds)}",
        )


def require_parameters(name: str, parameters: Mapping[str, Any], field: str) -> None:
    """Raise ``InputError`` for a parameter that a method does not have, or a value out of range.

    What depends on the workers or the instance is left to the run, as are methods that check their
    parameters themselves. ``field`` is where the parameters stand.
    """
    from dataclasses import fields

    from orsched.heuristics.methods import GatedMethod
    from orsched.heuristics.policy_method import Dispatching, PolicyMethod, read_params
    from orsched.registry import resolve

    method = resolve("methods", name)
    sharing: set[str] = set()
    if isinstance(method, PolicyMethod) and not method.many_workers:
        sharing = {item.name for item in fields(Dispatching)}
    own = {key: value for key, value in parameters.items() if key not in sharing}
    try:
        if isinstance(method, PolicyMethod):
            read_params(method.params, own, sorted(sharing))
            read_params(Dispatching, {k: v for k, v in parameters.items() if k in sharing})
        elif isinstance(method, GatedMethod):
            read_params(type(method.defaults), {**method.defaults.to_dict(), **own})
    except InputError as error:
        place = field if error.field in (None, "parameters") else f"{field}.{error.field}"
        raise InputError(error.problem, field=place, remedy=error.remedy) from None
