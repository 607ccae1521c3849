"""One way from what a user names to what runs, simulated or real.

A name with its parameters, ``module:Class``, a registered policy, a method, a policy class or a
policy object: each becomes a method. Those that are policies (``LiveMethod``) decide live on a real
worker, too; for the others a schedule is made and then followed.
"""

from __future__ import annotations

import os
from copy import deepcopy
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.common.own_code import is_own, path_in
from orsched.common.pairs import read_pairs
from orsched.common.registry import names, resolve
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orsched.solving.methods import Method


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


def read_spec(text: str, field: str = "method") -> Spec:
    """Return the parts of a method's specification; values are JSON where they can be, else text.

    Raises ``InputError`` at the field for a parameter without a value or given twice.
    """
    path = path_in(text) or ""
    head, *pairs = text[len(path) :].split("+")
    name, at, information = head.partition("@")
    name = path + name
    if at and not information:
        raise InputError(
            f"{text!r} names no information", field=field, remedy="none, predicted, clairvoyant"
        )
    parameters = read_pairs(pairs, field)
    return Spec(
        name, information or None, parameters, "+".join([f"{name}{at}{information}", *pairs])
    )


def choose(
    source: str | Method | Policy | type[Policy] | Chosen,
    information: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    field: str = "method",
) -> Chosen:
    """Return the method that a name, ``module:Class``, a class or an object stands for.

    What the name itself specifies takes precedence over ``information`` and ``parameters``. What
    has been chosen already is returned as it is.

    Raises:
        InputError: there is no such method, which is named at ``field``, or it does not run with
            the information.
    """
    if isinstance(source, Chosen):
        return source
    given, label = dict(parameters or {}), ""
    method: Method
    if isinstance(source, str):
        spec = read_spec(source, field)
        method, information = method_named(spec.name, field), spec.information or information
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
            f"{source!r} is not a method", field=field, remedy="give a name, e.g. hybrid"
        )
    return Chosen(method, _information(method, information), given, label)


def choose_all(
    sources: Iterable[str | Method | Policy | type[Policy] | Chosen],
    information: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    field: str = "methods",
) -> list[Chosen]:
    """Return the methods that several sources stand for, each labelled as it was given.

    A policy object is copied: it stays as it is, and can be given more than once.

    Raises:
        InputError: one of them is none, has a parameter that there is not, or is an object that has
            run before or cannot be copied and is given twice.
    """
    found: list[Chosen] = []
    seen: list[Policy] = []
    for source in sources:
        chosen = choose(_copied(source, seen), information, parameters, field)
        check = getattr(chosen.method, "check_parameters", None)
        if check is not None:
            check(chosen.parameters)
        fresh = getattr(chosen.method, "require_fresh", None)
        if fresh is not None:
            fresh()
        label = _label(source, chosen)
        if not isinstance(source, (str, Chosen)):
            taken = {each.label for each in found}
            label = next(name for name in _numbered(label) if name not in taken)
        found.append(chosen._replace(label=label))
    return found


def _copied(source: Any, seen: list[Policy]) -> Any:
    if not isinstance(source, Policy):
        return source
    twice = any(source is each for each in seen)
    seen.append(source)
    try:
        return deepcopy(source)
    except Exception as error:
        if not twice:
            return source
        raise InputError(
            f"an object of {type(source).__name__} is given twice and cannot be copied: {error}",
            field="methods",
            remedy="give the class, or two objects",
        ) from None


def _label(source: object, chosen: Chosen) -> str:
    """Return what a method is called beside others: a file by its name, without its folders."""
    if chosen.label:
        return chosen.label
    if isinstance(source, str):
        path = path_in(source) or ""
        return os.path.basename(path) + source[len(path) :]
    policy = getattr(chosen.method, "policy", None)
    named: str = chosen.method.name if policy is None else policy.name
    if named != Policy.name or policy is None:
        return named
    return policy.__name__ if isinstance(policy, type) else type(policy).__name__


def _numbered(label: str) -> Iterator[str]:
    yield label
    yield from (f"{label} ({number})" for number in count(2))


def _information(method: Method, information: str | None) -> Information:
    kinds = tuple(method.information)
    if information is None:
        return kinds[0] if kinds else Information.NONE
    if not kinds:
        raise InputError(
            "the class itself says what it must know",
            field="information",
            remedy="leave information out",
        )
    if information not in kinds:
        raise InputError(
            f"method {method.name} does not run with information {information!r}",
            field="information",
            remedy=known_names(information, kinds, "one of: "),
        )
    return Information(information)


def method_names() -> list[str]:
    """Return the names of all methods and registered policies."""
    known = names("methods")
    return known + [name for name in names("policies") if name not in known]


def method_named(name: str, field: str = "method") -> Method:
    """Return the method of a name, or of ``module:Class``, whose module is then imported.

    Raises:
        InputError: there is none, or the class is no policy.
    """
    method: Method
    if is_own(name):
        from orsched.heuristics.own_method import own_method

        return own_method(name, field)
    if name in names("methods"):
        method = resolve("methods", name)
        return method
    if name in names("policies"):
        from orsched.common.own_code import require_class
        from orsched.heuristics.own_method import OwnMethod

        cls = resolve("policies", name)
        require_class(cls, Policy, name)
        return OwnMethod(name, cls)
    if name.endswith(".py"):
        from orsched.common.own_code import classes_in

        raise InputError(
            "a file holds several classes: which one?",
            file=name,
            field=field,
            remedy=f"write {name}:{classes_in(name, field)}",
        )
    own, file = "of your own: path/to/own.py:Class, module:Class", f"{name.partition('.')[0]}.py"
    if os.path.isfile(file):
        own += f"; did you mean a class in {file}?"
    raise InputError(
        f"unknown method {name!r}",
        field=field,
        remedy=f"{known_names(name, method_names())}; {own}",
    )


def require_choice(
    source: str,
    information: str | None,
    parameters: Mapping[str, Any],
    fields: tuple[str, str, str] = ("policy", "information", "parameters"),
) -> None:
    """Refuse, before anything runs, an unknown method or a parameter that it does not have.

    What depends on the workers or the instance is left to the run, as are methods that check their
    parameters themselves, and the user's own, since looking at it would run it.

    Raises:
        InputError: ``fields`` say where name, information and parameters stand.
    """
    if is_own(source):
        return
    try:
        chosen = choose(source, information, parameters)
    except InputError as error:
        place = fields[1] if error.field == "information" else fields[0]
        raise InputError(error.problem, field=place, remedy=error.remedy) from None
    check = getattr(chosen.method, "check_parameters", None)
    if check is None:
        return
    try:
        check(chosen.parameters)
    except InputError as error:
        if error.file is not None:  # of a parameter that names a file: the fault stands there
            raise
        own = error.field not in (None, "parameters")
        place = f"{fields[2]}.{error.field}" if own else fields[2]
        raise InputError(error.problem, field=place, remedy=error.remedy) from None
