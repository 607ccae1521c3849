"""What a shell completes: names of instances, methods, generators, machines, laws, parameters.

``offer_names`` puts the functions to parameters by name; the user's own code is never imported.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import click
    from click.shell_completion import CompletionItem

    Complete = Callable[[click.Context, str], list[CompletionItem]]


def offer_names(command: click.Command) -> None:
    """Let the shell complete the names that a command, or those of a group, takes."""
    for each in getattr(command, "commands", {}).values():
        offer_names(each)
    for parameter in command.params:
        complete = NAMES.get((command.name or "", parameter.name or "")) or NAMES.get(
            parameter.name or ""
        )
        if complete is not None:
            parameter.shell_complete = complete  # type: ignore[method-assign,assignment]


def _known(*places: str, files: bool = False) -> Complete:
    """Return what completes names that stand at ``module:name``, and, for the shell, files."""

    def complete(context: click.Context, incomplete: str) -> list[CompletionItem]:
        found = _of([name for place in places for name in _names_at(place)], incomplete)
        return [*found, *([_files(incomplete)] if files else [])]

    return complete


def _names_at(place: str) -> Iterable[str]:
    module, _, name = place.partition(":")
    found = getattr(import_module(module), name)
    return [getattr(each, "name", each) for each in (found() if callable(found) else found)]


def methods(
    context: click.Context, incomplete: str, *, several: bool = False
) -> list[CompletionItem]:
    """Return methods, behind ``@`` what they may know, behind ``+`` their parameters.

    ``several``: methods with commas in between, of which the last is completed.
    """
    done, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
    found = [done + comma + each for each in _method(last)]
    return [*_of(found, incomplete), *([] if found or comma else [_files(incomplete)])]


def _method(text: str) -> Iterator[str]:
    """Yield what a method's specification can go on with."""
    from orsched.solving.method_choice import method_named, method_names, parameters_of

    name = text.partition("+")[0].partition("@")[0]
    if name not in method_names():
        yield from (each for each in method_names() if each.startswith(text))
        return
    if "+" in text:
        begin, _, given = text.rpartition("+")
        known = [each.name for each in parameters_of(method_named(name))]
        yield from (f"{begin}+{each}=" for each in known if f"{each}=".startswith(given))
    elif "@" in text:
        kinds = method_named(name).information
        yield from (whole for each in kinds if (whole := f"{name}@{each}").startswith(text))
    else:
        yield from (each for each in method_names() if each.startswith(text))


def parameters(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the parameters of the method or policy that the command names."""
    from orsched.solving.method_choice import method_named, method_names, parameters_of

    given = context.params
    name = str(given.get("policy") or given.get("method") or "").partition("+")[0].partition("@")[0]
    if name not in method_names():
        return []
    return _of([f"{each.name}=" for each in parameters_of(method_named(name))], incomplete)


def arguments(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the arguments of the generator that the command names, for ``--set``."""
    from inspect import signature

    from orsched.instances.catalog import GENERATORS

    named = [context.params.get("generator"), context.params.get("instance"), *context.args]
    generator = next((GENERATORS[name] for name in named if name in GENERATORS), None)
    if generator is None:  # click leaves arguments in ``args`` behind an option without its value
        return []
    known = [name for name in signature(generator).parameters if name != "seed"]
    return _of([f"{name}=" for name in known], incomplete)


def topics(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return all that ``orsched info`` describes."""
    from orsched.common.registry import names

    known = [name for place in (_INSTANCES, _GENERATORS, _METHODS) for name in _names_at(place)]
    known += [*names("cost_models"), "machines", *_names_at(_MACHINES)]
    return [*_of(dict.fromkeys(known), incomplete), _files(incomplete)]


def _specs(place: str) -> Complete:
    """Return what completes laws or predictors, and behind ``:`` their parameters."""

    def complete(context: click.Context, incomplete: str) -> list[CompletionItem]:
        from dataclasses import fields

        module, _, name = place.partition(":")
        kinds: dict[str, Any] = getattr(import_module(module), name)
        kind, colon, rest = incomplete.partition(":")
        if not colon or kind not in kinds:
            return _of(kinds, incomplete)
        begin = incomplete[: len(incomplete) - len(rest.rpartition(",")[2])]
        return _of([f"{begin}{item.name}=" for item in fields(kinds[kind])], incomplete)

    return complete


def _of(known: Iterable[str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(each) for each in known if each.startswith(incomplete)]


def _files(incomplete: str) -> CompletionItem:
    """Return what tells the shell to complete paths itself."""
    from click.shell_completion import CompletionItem

    return CompletionItem(incomplete, type="file")


_INSTANCES = "orsched.instances.catalog:names"
_GENERATORS = "orsched.instances.catalog:GENERATORS"
_METHODS = "orsched.solving.method_choice:method_names"
_MACHINES = "orsched.calibration.catalogue:machines"

_instances = _known(_INSTANCES, files=True)

NAMES: dict[str | tuple[str, str], Complete] = {
    "instance": _instances,
    "instance_source": _instances,
    "like": _instances,
    "method": methods,
    "policy": methods,
    "methods": partial(methods, several=True),
    "parameters": parameters,
    "generator": _known(_GENERATORS),
    "settings": arguments,
    "arrivals": _specs("orsched.instances.arrivals:LAWS"),
    "predictions": _specs("orsched.instances.predictions:PREDICTORS"),
    "format": _known("orsched.instances.readers.formats:format_names"),
    "cost": _known(_MACHINES, files=True),
    "source": _known("orsched.instances.datasets:DATA_SETS", files=True),
    ("compare", "instance"): _known(_GENERATORS, _INSTANCES, files=True),
    ("run", "source"): _instances,
    ("info", "name"): topics,
}
"""What completes a parameter, by its name, or by command and name where they differ."""
