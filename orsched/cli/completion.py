"""What a shell completes, and errors of a command's words, in one line each."""

from __future__ import annotations

import os
import re
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from orsched.common.errors import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from click.shell_completion import CompletionItem

    from orsched.common.errors import InputError

    Complete = Callable[[click.Context, str], list[CompletionItem]]


SYNONYMS = {
    "method": ("methods", "policy"), "methods": ("method", "policy"),
    "policy": ("method", "methods"), "policies": ("methods", "method", "policy"),
    "scheduler": ("policy", "method", "methods"), "slos": ("slo", "slo-ttft"),
    "ttft": ("slo-ttft",), "tpot": ("slo-tpot",), "slo-itl": ("slo",), "goodput": ("slo",),
    "rate": ("arrivals",),
    "qps": ("arrivals",), "arrival": ("arrivals",), "prediction": ("predictions",),
    "predictor": ("predictions",), "replicas": ("workers",), "servers": ("workers",),
    "gpus": ("workers",), "copies": ("workers",), "worker": ("workers",), "slots": ("clients",),
    "batch-size": ("clients",), "max-num-seqs": ("clients",), "machine": ("cost", "workers"),
    "seeds": ("seed",), "timeout": ("time-limit",), "limit": ("time-limit",),
    "parameter": ("param",), "parameters": ("param",), "params": ("param",),
    "html": ("report", "output"), "report": ("output",), "out": ("output", "report"),
    "output": ("report", "gantt"), "plot": ("gantt",), "chart": ("gantt",),
    "csv": ("format csv",), "json": ("format json",), "name": ("set name=VALUE",),
    "requests": ("set requests=N",),
}  # fmt: skip
"""What people write for an option, and the options that may be meant; the first there is counts."""


def explained(error: click.ClickException) -> str:
    """Return what is wrong with a command's words in one line, with the remedy."""
    context = getattr(error, "ctx", None)
    path = "orsched" if context is None else context.command_path
    problem, remedy = _problem(error, context)
    asked = "".join(f"{each} " if each.endswith("?") else f"{each}; " for each in remedy)
    return f"{problem} ({asked}see {path} --help)"


def _problem(error: click.ClickException, context: click.Context | None) -> tuple[str, list[str]]:
    message = error.format_message().rstrip(".")
    if context is None:
        return message, []
    name = context.info_name or ""
    if isinstance(error, click.NoSuchOption):
        near = meant(error.option_name, list(_options(context)))
        return f"{name} has no option {error.option_name}", _did_you_mean(near)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        usage = " ".join([context.command_path, *_arguments(context)])
        return f"{name} needs {_shown(error.param)}", [f"write {usage}"]
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_shown(error.param)}: {error.message.rstrip('.')}", _near_choice(error)
    if message.startswith("No such command"):
        return _unknown_command(error, context)
    if message.startswith("Got unexpected extra argument"):
        return _too_many(message, context)
    return message, []


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield from (each for each in parameter.opts if each.startswith("--"))


def _arguments(context: click.Context) -> list[str]:
    found = (p for p in context.command.params if isinstance(p, click.Argument))
    return [_shown(parameter) for parameter in found]


def _shown(parameter: click.Parameter) -> str:
    """Return how a parameter is written: the longest of an option's names, or the argument's."""
    if isinstance(parameter, click.Argument):
        return str(parameter.metavar or parameter.human_readable_name)
    return max(parameter.opts, key=len)


def meant(option: str, known: list[str]) -> list[str]:
    """Return the options that may be meant by one that there is not."""
    plain = option.lower().replace("_", "-")
    same = [each for each in known if each.replace("-", "") == plain.replace("-", "")]
    if same:
        return same
    for each in SYNONYMS.get(plain.lstrip("-"), ()):
        if f"--{each.partition(' ')[0]}" in known:
            return [f"--{each}"]
    return nearest(plain, known)


def _near_choice(error: click.BadParameter) -> list[str]:
    kind = None if error.param is None else error.param.type
    if not isinstance(kind, click.Choice):
        return []
    wrong = re.match(r"'(.*)' is not one of", error.message)
    found = "" if wrong is None else did_you_mean(wrong[1], map(str, kind.choices))
    return [found] if found else []


def _did_you_mean(near: Iterable[str]) -> list[str]:
    listed = " or ".join(near)
    return [f"did you mean {listed}?"] if listed else []


def _unknown_command(error: Any, context: click.Context) -> tuple[str, list[str]]:
    word = context.args[0] if context.args else ""
    word = getattr(error, "command_name", word) or error.format_message().split("'")[1]
    problem = f"unknown command {word!r}"
    if os.path.exists(word):
        return problem, [f"it is a file: put a command before it, e.g. orsched compare {word}"]
    known = (
        context.command.list_commands(context) if isinstance(context.command, click.Group) else []
    )
    return problem, _did_you_mean(nearest(word, known)) or [f"known: {', '.join(known)}"]


def _too_many(message: str, context: click.Context) -> tuple[str, list[str]]:
    extra = message[message.index("(") + 1 : message.rindex(")")].split()
    takes = " ".join(_arguments(context)) or "options alone"
    problem = f"{context.info_name} takes {takes}: {' '.join(extra)} is too much"
    if context.info_name == "compare":
        from orsched.common.own_code import is_own
        from orsched.solving.method_choice import method_names

        known = method_names()
        if all(word.strip(",").partition("+")[0] in known or is_own(word) for word in extra):
            remedy = "separate methods with commas and no blanks: --methods fcfs,vllm"
        else:
            remedy = "one instance at a time; --seeds A:B compares on many of a generator"
        return problem, [remedy]
    return problem, ["put a text with blanks in quotes"] if len(extra) > 1 else []


_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "initial_schedule": ("initial",),
    "policy": ("policy", "method"),
    "predictor": ("predictions",),
    **{
        name: (name,)
        for name in (
            "arrivals", "autoscale", "concurrency", "failures", "first", "formulation", "gap",
            "information", "iterations", "max_nonzeros", "methods", "objective", "parameters",
            "points", "predictions", "rounds", "search", "second", "seed", "stages", "time_limit",
        )
    },
}  # fmt: skip
"""Names of a command's parameters by the argument that they are passed on as.

Names that files and instances have too (``workers``, ``clients``) are not among them.
"""


def name_option(error: InputError, command: click.Command | None) -> None:
    """Let an error that names an argument name the command's option, if it has one."""
    if command is None or error.file is not None or error.row is not None:
        return
    for name in _ARGUMENTS.get(error.field or "", ()):
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.name == name:
                error.field = max(parameter.opts, key=len)
                return


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
