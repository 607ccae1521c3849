"""One way from what a user names to what runs, simulated or real.

A name with its parameters, ``module:Class``, a registered policy, a method, a policy class or a
policy object: each becomes a method. Those that are policies (``LiveMethod``) decide live on a real
worker, too; of the others a schedule is made, which is then followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.errors import InputError
from orsched.own_code import is_own
from orsched.pairs import read_pairs
from orsched.policy import Information, Policy
from orsched.registry import names, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orsched.methods import Method


class Spec(NamedTuple):
    """A method in one word: ``name[@information][+parameter=value]...``."""

    name: str
    information: str | None
    parameters: dict[str, Any]
    label: str


class Chosen(NamedTuple):
    """A method, and what it is run with.

    Attributes:
        information: what it may know; of a policy of the user's own the policy says it.
        parameters: by name.
        label: what it is called in comparisons; empty: the name in its schedule.
    """

    method: Method
    information: Information
    parameters: dict[str, Any]
    label: str = ""


def read_spec(text: str) -> Spec:
    """Return the parts of a method's specification; values are JSON where they can be, else text.

    Raises ``InputError`` for a parameter without a value or given twice.
    """
    head, *pairs = text.split("+")
    name, at, information = head.partition("@")
    if at and not information:
        raise InputError(
            f"{text!r} names no information", field="method", remedy="none, predicted, clairvoyant"
        )
    parameters = read_pairs(pairs, "method")
    return Spec(name, information or None, parameters, "+".join([name, *pairs]))


def choose(
    source: str | Method | Policy | type[Policy],
    information: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Chosen:
    """Return the method that a name, ``module:Class``, a class or an object stands for.

    What a name says itself counts before ``information`` and ``parameters``.

    Raises:
        InputError: there is no such method, or it does not run with the information.
    """
    given, label = dict(parameters or {}), ""
    method: Method
    if isinstance(source, str):
        spec = read_spec(source)
        method, information = method_named(spec.name), spec.information or information
        given |= spec.parameters
        label = "" if is_own(spec.name) else spec.label
    elif isinstance(source, Policy):
        from orsched.heuristics.own_method import PolicyObject

        method = PolicyObject(source, source.name)
    elif isinstance(source, type) and issubclass(source, Policy):
        from orsched.heuristics.own_method import OwnMethod

        method = OwnMethod(f"{source.__module__}:{source.__qualname__}", source)
    elif callable(source) and hasattr(source, "information") and not isinstance(source, type):
        method = source
    else:
        raise InputError(
            f"{source!r} is no method", field="method", remedy="give a name, e.g. hybrid"
        )
    return Chosen(method, _information(method, information), given, label)


def _information(method: Method, information: str | None) -> Information:
    kinds = tuple(method.information)
    if information is None:
        return kinds[0] if kinds else Information.NONE
    if not kinds:
        raise InputError("the class itself says what it must know", field="information")
    if information not in kinds:
        raise InputError(
            f"method {method.name} does not run with information {information!r}",
            field="information",
            remedy=f"one of: {', '.join(kinds)}",
        )
    return Information(information)


def method_names() -> list[str]:
    """Return the names of all methods and registered policies."""
    known = names("methods")
    return known + [name for name in names("policies") if name not in known]


def method_named(name: str) -> Method:
    """Return the method of a name, or of ``module:Class``, whose module is then imported.

    Raises:
        InputError: there is none, or the class is no policy.
    """
    method: Method
    if is_own(name):
        from orsched.heuristics.own_method import own_method

        return own_method(name)
    if name in names("policies") and name not in names("methods"):
        from orsched.heuristics.own_method import OwnMethod
        from orsched.own_code import require_class

        cls = resolve("policies", name)
        require_class(cls, Policy, name)
        return OwnMethod(name, cls)
    try:
        method = resolve("methods", name)
    except InputError as error:  # the argument, and the option, has another name
        raise InputError(error.problem, field="method", remedy=error.remedy) from None
    return method


def require_method(name: str, information: object, field: str) -> None:
    """Raise ``InputError`` unless a method has this name and runs with this information."""
    from difflib import get_close_matches

    known = method_names()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"there is no policy {name!r}",
            field=field,
            remedy=f"{hint}known: {', '.join(known)}; or module:Class of your own",
        )
    kinds = tuple(str(kind) for kind in method_named(name).information)
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
    check = getattr(method_named(name), "check_parameters", None)
    if check is None:
        return
    try:
        check(dict(parameters))
    except InputError as error:
        place = field if error.field in (None, "parameters") else f"{field}.{error.field}"
        raise InputError(error.problem, field=place, remedy=error.remedy) from None
