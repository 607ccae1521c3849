"""What a shell completes: names of instances, methods, generators, machines, laws, parameters.

``offer_names`` puts the functions below to the parameters of all commands, by the parameters'
names. Code of the user's own is never imported here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from click.shell_completion import CompletionItem

    Complete = Callable[[click.Context, str], list[CompletionItem]]


def offer_names(group: click.Group) -> None:
    """Let the shell complete the names that the commands of a group take."""
    for command in group.commands.values():
        if isinstance(command, click.Group):
            offer_names(command)
        for parameter in command.params:
            complete = NAMES.get((command.name or "", parameter.name or "")) or NAMES.get(
                parameter.name or ""
            )
            if complete is not None:
                parameter.shell_complete = complete  # type: ignore[method-assign,assignment]


def instances(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return shipped instances and, for the shell, files."""
    from orsched.instances.catalog import names

    return [*_of(names(), incomplete), _files(incomplete)]


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


def generators(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the generators of instances."""
    from orsched.instances.catalog import GENERATORS

    return _of(GENERATORS, incomplete)


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


def instances_and_generators(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return shipped instances, generators (for ``--seeds``) and, for the shell, files."""
    return [*generators(context, incomplete), *instances(context, incomplete)]


def topics(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return all that ``orsched info`` describes."""
    from orsched.common.registry import names
    from orsched.instances import catalog
    from orsched.solving.method_choice import method_names

    known = [*catalog.names(), *catalog.GENERATORS, *method_names(), *names("cost_models")]
    known += ["machines", *_machines()]
    return [*_of(dict.fromkeys(known), incomplete), _files(incomplete)]


def machines(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return machines of the catalogue and, for the shell, files of cost models."""
    return [*_of(_machines(), incomplete), _files(incomplete)]


def _machines() -> list[str]:
    from orsched.calibration.catalogue import machines

    return [row.name for row in machines()]


def laws(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return laws of arrivals, and behind ``:`` their parameters."""
    from orsched.instances.arrivals import LAWS

    return _specs(LAWS, incomplete)


def predictors(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return predictors of lengths, and behind ``:`` their parameters."""
    from orsched.instances.predictions import PREDICTORS

    return _specs(PREDICTORS, incomplete)


def formats(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the formats of foreign traces."""
    from orsched.instances.readers.formats import format_names

    return _of(format_names(), incomplete)


def data_sets(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the known data sets and, for the shell, files."""
    from orsched.instances.datasets import DATA_SETS

    return [*_of(DATA_SETS, incomplete), _files(incomplete)]


def _specs(kinds: dict[str, Any], incomplete: str) -> list[CompletionItem]:
    from dataclasses import fields

    name, colon, rest = incomplete.partition(":")
    if not colon or name not in kinds:
        return _of(kinds, incomplete)
    begin = incomplete[: len(incomplete) - len(rest.rpartition(",")[2])]
    return _of([f"{begin}{item.name}=" for item in fields(kinds[name])], incomplete)


def _of(known: Iterable[str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(each) for each in known if each.startswith(incomplete)]


def _files(incomplete: str) -> CompletionItem:
    """Return what tells the shell to complete paths itself."""
    from click.shell_completion import CompletionItem

    return CompletionItem(incomplete, type="file")


NAMES: dict[str | tuple[str, str], Complete] = {
    "instance": instances,
    "instance_source": instances,
    "like": instances,
    "method": methods,
    "policy": methods,
    "methods": partial(methods, several=True),
    "parameters": parameters,
    "generator": generators,
    "settings": arguments,
    "arrivals": laws,
    "predictions": predictors,
    "format": formats,
    "cost": machines,
    "source": data_sets,
    ("compare", "instance"): instances_and_generators,
    ("run", "source"): instances,
    ("info", "name"): topics,
}
"""What completes a parameter, by its name, or by command and name where they differ."""
