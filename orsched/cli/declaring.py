"""Commands declare options as fields of a class; click's commands are made of them here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    T = TypeVar("T", bound="Options")

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
THERE = click.Path(exists=True, dir_okay=False, path_type=Path)
"""A file that must exist."""
AT_LEAST_1 = click.IntRange(min=1)

_TYPES = {"int": click.INT, "float": click.FLOAT, "str": click.STRING, "Path": FILE}
"""Types of options by the words that annotate their fields."""

_EVERY, _BRIEF = "orsched.every_option", "orsched.brief_help"


class _Declared(NamedTuple):
    """An option, or an argument, as a field says it."""

    flags: tuple[str, ...]
    settings: dict[str, Any]
    is_argument: bool = False

    def flag(self, name: str) -> str:
        """Return the long flag of a field's option."""
        long = (each for each in self.flags if each.startswith("--"))
        return next(long, f"--{name.replace('_', '-')}")

    def parameter(self, name: str, annotation: str) -> click.Parameter:
        """Return click's parameter for a field with this name and annotation."""
        settings, of = dict(self.settings), annotation.removesuffix(" | None")
        several = of.startswith("tuple[") and of.endswith(", ...]")
        of = of.removeprefix("tuple[").removesuffix(", ...]")
        if "choices" in settings:
            settings["type"] = click.Choice(settings.pop("choices"))
        elif of in _TYPES:
            settings.setdefault("type", _TYPES[of])
        if self.is_argument:
            return click.Argument([name], **{"nargs": -1 if several else 1, **settings})
        if of == "bool":
            settings["is_flag"] = True
        elif several:
            settings.setdefault("multiple", True)
        if "default" in settings:
            settings.setdefault("show_default", True)
        flags = dict.fromkeys((*self.flags, self.flag(name)))
        return click.Option([*flags, name], **settings)


def option(help: str, *flags: str, **settings: Any) -> Any:
    """Declare an option: its help, flags (without any: the field's name) and what click takes.

    The annotation of the field says the type: bool is a flag, a tuple an option that may be given
    several times. ``choices`` are the words that it takes; a ``default`` is shown.
    """
    return _Declared(flags, {"help": help, **settings})


def argument(metavar: str | None = None, **settings: Any) -> Any:
    """Declare an argument; a tuple takes one or more."""
    return _Declared((), {"metavar": metavar, **settings}, is_argument=True)


class Options:
    """What a command was given: a field for each option and argument; ``_run`` is the command."""

    command: ClassVar[Command]

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def _run(self) -> int | None:
        raise NotImplementedError

    @classmethod
    def declared(cls) -> dict[str, tuple[_Declared, str]]:
        """Return declaration and annotation of each field: a class's own before its bases'."""
        found: dict[str, tuple[_Declared, str]] = {}
        for each in cls.__mro__:
            for name, value in vars(each).items():
                if isinstance(value, _Declared) and name not in found:
                    found[name] = value, each.__annotations__[name]
        return found


class Command(click.Command):
    """A command whose ``--help`` shows the usual options, and says how many more there are."""

    def __init__(self, options: type[Options], usual: Iterable[str], **settings: Any) -> None:
        self.options, self.usual = options, frozenset(usual)
        params = [each.parameter(name, of) for name, (each, of) in options.declared().items()]
        super().__init__(params=[*params, quiet(), _help_all()], **settings)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all parameters; those that are shown while a brief help is made."""
        found = super().get_params(ctx)
        if not ctx.meta.get(_BRIEF):
            return found
        return [each for each in found if each.name not in self.further()]

    def further(self) -> list[str]:
        """Return the names of the options that ``--help`` does not show."""
        if not self.usual:
            return []
        shown = {*self.usual, "help", "help_all"}
        options = (each for each in self.params if isinstance(each, click.Option))
        return [each.name or "" for each in options if each.name not in shown and not each.hidden]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help, of the usual options unless all are asked for."""
        ctx.meta[_BRIEF] = not ctx.meta.get(_EVERY)
        super().format_help(ctx, formatter)
        further = len(self.further())
        if ctx.meta.pop(_BRIEF) and further:
            formatter.write_paragraph()
            formatter.write_text(f"{ctx.command_path} --help-all shows {further} more options.")


def command(
    name: str, short_help: str | None = None, *, usual: str = "", group: click.Group | None = None
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that makes a command of a class of options; its help is the docstring.

    ``usual``: names of the fields that ``--help`` shows, with blanks in between; "": all.
    """

    def decorate(options: type[T]) -> type[T]:
        options.command = Command(
            options,
            usual.split(),
            name=name,
            short_help=short_help,
            help=options.__doc__,
            callback=lambda **values: options(values)._run(),
        )
        if group is not None:
            group.add_command(options.command)
        return options

    return decorate


QUIET = "orsched.quiet"
"""Where ``--quiet`` stands in a command's context."""


def _be_quiet(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.meta[QUIET] = True


def quiet() -> click.Option:
    """Return the option ``--quiet``, which all that is printed looks at."""
    return click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=False,
        callback=_be_quiet,
        help="Print no progress and no remarks on stderr; errors still appear.",
    )


def _show_all(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[_EVERY] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _help_all() -> click.Option:
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help="Show every option and exit.",
    )
