"""Errors of a command's words: options that it lacks or that gave a wrong value, in one line."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from orsched.common.errors import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orsched.common.errors import InputError

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
