"""``orsched info``: instances, methods, generators, cost models and machines by their names."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.declaring import argument, command
from orsched.cli.machines import names_machines, show_machines
from orsched.cli.options import Printed
from orsched.cli.output import (
    LISTS,
    line_width,
    print_facts,
    print_json,
    printable,
    require_format,
    table,
    wrapped,
)
from orsched.cli.policies import own_code
from orsched.cli.request_options import RequestsAndCopies, load_instance
from orsched.common.errors import did_you_mean
from orsched.common.own_code import is_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orsched.common.parameters import Parameter

    Show = Callable[[str, str], None]


@command(
    "info",
    usual="style clients cost class_limits format",
)
class InfoCommand(Printed, RequestsAndCopies):
    """Describe NAME: an instance (a name or a path), a method, a preset, a generator, a cost model
    or a machine; or "machines", which lists GPUs, models and machines.

    Of a method, its parameters, what it may know and where it comes from; of a generator, its
    arguments; NAME may be module:Class of a policy of your own. Without NAME, list instances,
    generators, methods and versions.

    Examples: orsched info pang-100x20; orsched info vllm; orsched info gsm8k
    """

    name: str | None = argument("[NAME]", required=False)

    def _run(self) -> None:
        name, style = self.name, self.style
        if name is None:
            require_format(style, LISTS, "the list of names")
            _list_all(style)
            return
        show = None if name.startswith("lib:") else topic(name)
        if show is None:
            from orsched.calibration.catalogue import machine_words

            problem = load_instance(name)
            print_facts(problem.summary() | {"machine": machine_words(problem)}, style, wrap=True)
        else:
            show(name, style)


def _list_all(style: str) -> None:
    """Print what there is by name, and the versions."""
    from orsched.calibration.catalogue import machines, measured
    from orsched.common.registry import names
    from orsched.common.versions import versions
    from orsched.instances import catalog
    from orsched.solving.method_choice import method_named, method_names, presets

    methods = [method_named(name) for name in method_names()]
    if style != "table":
        facts = {
            "instances": catalog.names(),
            "generators": list(catalog.GENERATORS),
            "methods": [m.name for m in methods],
            "presets": list(presets()),
            "cost_models": names("cost_models"),
            "machines": [machine.name for machine in machines()],
            "versions": versions(),
        }
        print_json(facts)
        return
    some = ", ".join(machine.name for machine in measured())
    listed = {
        "instances:": ", ".join(catalog.names()),
        "generators:": ", ".join(catalog.GENERATORS),
        "cost models:": ", ".join(names("cost_models")),
        "machines:": f"{some}, and those of data sheets: orsched info machines",
    }
    listed["presets:"] = ", ".join(presets())
    for head, text in listed.items():
        click.echo(wrapped(text, head, 13))
    left = max(len(m.name) for m in methods) + 2
    click.echo("\n" + wrapped("what it does [what it may know of output lengths]", "method", left))
    click.echo("-" * (left - 2) + "  " + "-" * (line_width() - left))
    for m in methods:
        click.echo(wrapped(f"{m.summary} [{', '.join(m.information)}]", m.name, left))
    click.echo()
    found = [{"package": k, "version": v or "not installed"} for k, v in versions().items()]
    click.echo(table(found))
    click.echo("\norsched info NAME describes one of these.")


def topic(name: str) -> Show | None:
    """Return what prints a name's description, or None where it must be an instance (or a path).

    ``InputError`` for an unknown name that is near to another known one.
    """
    from orsched.instances.catalog import names

    if name in names():  # also where another thing has the same name
        return None
    for knows, show in TOPICS:
        if knows(name):
            return show
    _suggest(name)
    return None


def _suggest(name: str) -> None:
    """Raise ``InputError`` where no instance, but something else has nearly this name."""
    from pathlib import Path

    from orsched.calibration.catalogue import machines
    from orsched.common.errors import InputError
    from orsched.common.registry import names
    from orsched.instances.catalog import GENERATORS
    from orsched.instances.catalog import names as instances
    from orsched.solving.method_choice import method_names, presets

    if name in instances() or Path(name).exists() or Path(name).suffix in (".json", ".parquet"):
        return
    known = [
        *instances(),
        *GENERATORS,
        *method_names(),
        *presets(),
        *names("cost_models"),
        "machines",
        *(each.name for each in machines()),
    ]
    meant = did_you_mean(name, known)
    if meant:
        raise InputError(
            f"unknown instance, method, generator or cost model {name!r}",
            field="NAME",
            remedy=f"{meant} orsched info lists all",
        )


def _is_method(name: str) -> bool:
    from orsched.solving.method_choice import method_names

    return is_own(name) or name in method_names()


def show_method(name: str, style: str) -> None:
    """Print what is known of a method, with its parameters."""
    require_format(style, LISTS, "the description of a method")
    from orsched.solving.method_choice import method_info

    with own_code([name]):
        found = method_info(name)
    if style != "table":
        print_json({**found._asdict(), "parameters": _as_rows(found.parameters)})
        return
    information = ", ".join(found.information) or "as its class says"
    facts: dict[str, Any] = {
        "method": found.name,
        "what it does": found.summary or "-",
        "information": f"{information} (the first is the default)"
        if len(found.information) > 1
        else information,
        "workers": "any number" if found.workers == "any" else "one",
        "minimises": ", ".join(found.objectives) or "nothing: it goes by its own rule",
        "searches": "yes: --gap, --time-limit and --iterations end it"
        if found.searches
        else "no: it makes one schedule",
        "from": found.paper or "-",
    }
    print_facts(facts, style, wrap=True)
    show_parameters(found.parameters, "parameters", f"{name}+{{}}={{}}")


def _is_preset(name: str) -> bool:
    from orsched.solving.method_choice import presets

    return name in presets()


def show_preset(name: str, style: str) -> None:
    """Print what a preset of a paper sets."""
    require_format(style, LISTS, "the description of a preset")
    from orsched.solving.method_choice import method_info, presets, read_spec

    spec, said = read_spec(name), presets()[name]
    facts = {
        "preset": name,
        "what it does": said["does"],
        "method": said["method"],
        "information": spec.information or method_info(spec.name).information[0],
        **{f"sets {key}": str(value) for key, value in spec.parameters.items()},
        "note": said["note"],
    }
    print_facts(facts, style, wrap=True)


def show_generator(name: str, style: str) -> None:
    """Print what a generator makes, with its arguments."""
    require_format(style, LISTS, "the description of a generator")
    from orsched.common.parameters import of_function
    from orsched.instances.catalog import GENERATORS

    facts = {"generator": name, "what it does": _summary(GENERATORS[name])}
    example = f"orsched generate {name} --set {{}}={{}}"
    _show(facts, of_function(GENERATORS[name]), "arguments", example, style)


def show_cost_model(name: str, style: str) -> None:
    """Print what a cost model is, with the fields of its file."""
    require_format(style, LISTS, "the description of a cost model")
    from orsched.common.parameters import of_dataclass
    from orsched.common.registry import cost_model

    model = cost_model(name)
    facts = {"cost model": name, "what it is": _summary(model).replace("``", "")}
    _show(facts, of_dataclass(model), "fields", "", style)


def _summary(what: object) -> str:
    import inspect

    return (inspect.getdoc(what) or "").partition("\n")[0]


def _show(
    facts: dict[str, str], parameters: Iterable[Parameter], what: str, example: str, style: str
) -> None:
    if style != "table":
        print_json({**facts, what: _as_rows(parameters)})
        return
    print_facts(facts, style, wrap=True)
    show_parameters(parameters, what, example)


def show_parameters(parameters: Iterable[Parameter], what: str, example: str) -> None:
    """Print parameters: name and default on a line, the meaning below or beside it."""
    listed = list(parameters)
    if not listed:
        click.echo(f"\nIt has no {what}.")
        return
    width = line_width()
    heads = [f"{each.name} = {each.shown}" for each in listed]
    left = min(34, max(map(len, heads)))
    click.echo(f"\n{what}:")
    for head, each in zip(heads, listed, strict=True):
        room = max(20, width - left - 4)
        lines = textwrap.wrap(each.meaning, room) or [""]
        if len(head) > left:
            click.echo(f"  {printable(head)}")
            head = ""
        for line in lines:
            click.echo(f"  {printable(head):{left}}  {printable(line)}".rstrip())
            head = ""
    if example:
        told = [each for each in listed if each.shown not in ("(required)", "null")]
        first = next((each for each in told if each.name != "seed"), None)
        if first is not None:
            click.echo(f"\nE.g. {example.format(first.name, first.shown)}")


def _as_rows(parameters: Iterable[Parameter]) -> list[dict[str, Any]]:
    from orsched.common.parameters import REQUIRED

    return [
        {
            "name": each.name,
            **({} if each.default is REQUIRED else {"default": _plain(each.default)}),
            "required": each.default is REQUIRED,
            "meaning": each.meaning,
        }
        for each in parameters
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _is_generator(name: str) -> bool:
    from orsched.instances.catalog import GENERATORS

    return name in GENERATORS


def _is_cost_model(name: str) -> bool:
    from orsched.common.registry import names

    return name in names("cost_models")


TOPICS: list[tuple[Callable[[str], bool], Show]] = [
    (_is_method, show_method),
    (_is_preset, show_preset),
    (_is_generator, show_generator),
    (_is_cost_model, show_cost_model),
    (names_machines, show_machines),
]
"""Tests of a name and what prints it, in this order; an instance is what no test takes."""
