"""The axes of a study: every choice validated when the study is read, before anything runs."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.own_code import at_path, code_in, is_own, path_in, source_of
from orsched.common.scalars import CELLS
from orsched.files.text import require_known, require_table
from orsched.solving.method_choice import read_spec, require_choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orsched.data.instance import Instance


def data_hash(generator: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the SHA-256 of the files that a generator reads (new data: new cells), or None.

    Raises ``InputError`` for an unreadable file or an unknown directory of the data sets.
    """
    from orsched.instances.sources import mix_files

    mix = arguments.get("mix")
    files = mix_files(mix) if generator == "sources" and isinstance(mix, str) else []
    if not files:
        return None
    together = hashlib.sha256()
    for path in files:
        try:
            together.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise InputError(
                f"cannot be read: {error.strerror or error}",
                file=str(path),
                field="instances.mix",
                remedy="see orsched data for the data sets and their places",
            ) from None
    return together.hexdigest()


def grid(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the combinations, counted first, of a table's values; a list is a grid, all else one.

    A value that is itself a list is in a list of its own: ``[[1, 128]]``.
    """
    for name, value in table.items():
        if value == []:
            raise InputError(
                "an empty list has no value to run",
                field=name,
                remedy="give at least one value, or leave the key out",
            )
        _require_plain(value, name)
    axes = {name: options(value) for name, value in table.items()}
    longest = max(axes, key=lambda name: len(axes[name]), default="")
    CELLS.require(prod(map(len, axes.values())), longest)
    for values in product(*axes.values()):
        yield dict(zip(table, values, strict=True))


def _require_plain(value: object, field: str) -> None:
    """Raise ``InputError`` for what JSON cannot hold: dates of TOML, NaN and infinity."""
    if isinstance(value, (list, tuple)):
        for item in value:
            _require_plain(item, field)
    elif isinstance(value, dict):
        for item in value.values():
            _require_plain(item, field)
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InputError(
                f"{value} is not a finite number", field=field, remedy="give a finite number"
            )
    elif not (value is None or isinstance(value, (str, int))):
        raise InputError(
            f"{value!r} is not a number, a text or a truth value",
            field=field,
            remedy="give one of these",
        )


def entry(item: object, field: str, example: str) -> dict[str, Any]:
    """Return an entry of an axis that is not a name; raises ``InputError`` unless it is a table."""
    if not isinstance(item, dict):
        raise InputError(
            f"{item!r} is neither a name nor a table",
            field=field,
            remedy=f"give a name in quotes, or {example}",
        )
    return item


def options(value: object) -> list[Any]:
    """Return the values of an option that a list makes a grid of."""
    return value if isinstance(value, list) else [value]


def listed(value: object, field: str) -> Iterable[Any]:
    """Return the items of an axis; one alone may stand without its list."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if not items:
        raise InputError("holds nothing to run", field=field, remedy="leave it out, or fill it")
    return items


_LOG = logging.getLogger("orsched.planning.study")


@dataclass(frozen=True)
class InstanceChoice:
    """An instance of the grid: ``content`` is all that it follows from, beside the seed.

    ``label`` is for the table; ``path`` is the file of those that lie in one, which is not part of
    the content; ``made`` the instance itself, for those given as objects.
    """

    label: str
    content: dict[str, Any]
    path: str | None = None
    made: Instance | None = None


@dataclass(frozen=True)
class PolicyChoice:
    """A policy of the grid: ``content`` is name, information, parameters, for own code its hash."""

    label: str
    content: dict[str, Any]


def instance_axis(value: object, base: Path) -> tuple[InstanceChoice, ...]:
    """Read names, paths, tables and ``Instance`` objects; see the page *Studies*."""
    found: dict[str, InstanceChoice] = {}
    for item in listed(value, "instances"):
        found |= {repr(choice.content): choice for choice in _instances(item, base)}
        CELLS.require(len(found), "instances")
    return tuple(found.values())


def _instances(item: object, base: Path) -> Iterator[InstanceChoice]:
    from orsched.data.instance import Instance

    if isinstance(item, Instance):
        content = {"sha256": item.sha256}
        yield InstanceChoice(item.name, content, made=item)
        return
    if isinstance(item, str):
        item = {"name": item}
    table = entry(item, "instances", '{generator = "uniform", ...}')
    if ("generator" in table) == ("name" in table):
        raise InputError(
            "say which: a name (or path), or a generator",
            field="instances",
            remedy='instances = ["gsm8k-llama65b", "case.json", {generator = "uniform", ...}]',
        )
    if "generator" in table:
        yield from _generated(table)
        return
    require_known(table, "instances", ("name", "sample", "label", *REQUEST_KEYS))
    yield from _of_requests(table, base) if _has_requests(table, base) else _named(table, base)


REQUEST_KEYS = (
    "clients", "cost", "prefill_cap_tokens", "memory_blocks", "block_tokens", "allocation",
    "prefix_cache", "first_token", "output_limit_tokens", "classes", "format", "drop_empty",
    "spread", "engine", "gpu_memory_utilization", "max_model_len",
)  # fmt: skip
"""What is said beside a file of requests: arguments of ``orsched.load``."""


def _has_requests(table: dict[str, Any], base: Path) -> bool:
    from orsched.files.locate import holds_requests

    name = table["name"]
    if any(key in table for key in REQUEST_KEYS):
        return True
    if not isinstance(name, str) or "\0" in name:
        return False
    return holds_requests(base / name) or holds_requests(name)


def _of_requests(table: dict[str, Any], base: Path) -> Iterator[InstanceChoice]:
    """Take a file of requests with the worker that the table describes; a list is a grid."""
    from orsched.files.locate import assumptions, load

    name, said = _name_of(table), {key: table[key] for key in REQUEST_KEYS if key in table}
    classes = said.pop("classes", [])
    assumed: set[str] = set()
    for values in grid(said):
        chosen = dict(values)
        cost = chosen.get("cost")
        if isinstance(cost, str) and (base / cost).exists():
            chosen["cost"] = str(base / cost)
        try:
            source = base / name if (base / name).exists() or Path(name).suffix else name
            found = load(source, classes=options(classes), **chosen)
        except InputError as error:
            field = f"instances.{error.field}" if error.field in REQUEST_KEYS else error.field
            remedy = error.remedy
            if "clients" not in chosen and error.field == "clients":
                remedy = f'write {{name = "{name}", clients = 64}}, and cost = "FILE" beside it'
            raise InputError(
                error.problem, file=error.file, row=error.row, field=field, remedy=remedy
            ) from None
        if (words := assumptions(found, **chosen)) is not None and words not in assumed:
            assumed.add(words)
            _LOG.warning("%s: %s", name, words)
        varied = [f"{key}={values[key]}" for key in values if isinstance(said[key], list)]
        label = " ".join([str(table.get("label", found.name)), *varied])
        for sample in _samples(table):
            yield InstanceChoice(label, {"sha256": found.sha256} | sample, made=found)


def _named(table: dict[str, Any], base: Path) -> Iterator[InstanceChoice]:
    """Take a shipped instance or a file, whose content counts and not its name."""
    from orsched.instances.catalog import names

    name = _name_of(table)
    path = None if name in names() else str((base / name).resolve())
    given: dict[str, Any] = {"name": name}
    if path is not None:
        given = {"sha256": _found(name, path).sha256}
    label = str(table.get("label", Path(name).stem if path else name))
    for sample in _samples(table):
        yield InstanceChoice(label, given | sample, path)


def _found(name: str, path: str) -> Instance:
    """Return the instance in a file; raises ``InputError`` that names both name and path."""
    from orsched.data.instance import say_unused
    from orsched.files.locate import load

    try:
        found = load(path) if Path(path).exists() or Path(name).suffix else load(name)
        say_unused(found)
        return found
    except InputError as error:
        field = error.field if error.file is not None and error.field else "instances"
        raise InputError(
            error.problem, file=error.file, row=error.row, field=field, remedy=error.remedy
        ) from None


def _generated(table: dict[str, Any]) -> Iterator[InstanceChoice]:
    """Take a generator with the grid of its arguments: a list is a grid."""
    from inspect import signature

    from orsched.instances.catalog import GENERATORS

    name = table["generator"]
    if not isinstance(name, str) or name not in GENERATORS:
        raise InputError(
            f"unknown generator {name!r}",
            field="instances.generator",
            remedy=known_names(name, GENERATORS),
        )
    arguments = {k: v for k, v in table.items() if k not in ("generator", "sample", "label")}
    known = signature(GENERATORS[name]).parameters
    require_known(arguments, "instances", [*known, "sample", "label", "generator"])
    for parameter in known.values():
        if parameter.default is parameter.empty and parameter.name not in arguments:
            raise InputError(
                f"the generator {name} needs it",
                field=f"instances.{parameter.name}",
                remedy="add it",
            )
    for values in grid(arguments):
        read = data_hash(name, values)
        given = {"generator": name, "arguments": values} | ({} if read is None else {"data": read})
        for sample in _samples(table):
            yield InstanceChoice(str(table.get("label", name)), given | sample)


def _samples(table: dict[str, Any]) -> Iterator[dict[str, int]]:
    """Yield the sizes of samples that a table asks for, as parts of contents."""
    for value in options(table.get("sample")):
        known = value is not None
        yield {"sample": whole_number(value, "instances.sample", minimum=1)} if known else {}


def _name_of(table: dict[str, Any]) -> str:
    name = table["name"]
    if not isinstance(name, str) or "\0" in name:
        raise InputError(
            f"{name!r} is not a name", field="instances.name", remedy="give a name in quotes"
        )
    return name


def policy_axis(
    value: object, shared: dict[str, Any], base: Path = Path()
) -> tuple[PolicyChoice, ...]:
    """Read specifications and tables, ``shared`` parameters for all; paths start from ``base``."""
    found: dict[str, PolicyChoice] = {}
    for item in listed(value, "policies"):
        named = {"name": item} if isinstance(item, str) else item
        table = entry(named, "policies", '{name = "vllm", parameters = {...}}')
        require_known(table, "policies", ("name", "information", "parameters", "label"))
        for choice in _policies(table, shared, base):
            found.setdefault(repr(choice.content), choice)
        CELLS.require(len(found), "policies")
    return tuple(found.values())


_PLACES = ("policies.name", "policies.information")


def _policies(table: dict[str, Any], shared: dict[str, Any], base: Path) -> Iterator[PolicyChoice]:
    if not isinstance(table.get("name"), str):
        raise InputError(
            f"{table.get('name')!r} is not a policy",
            field="policies.name",
            remedy="give the name of a method in quotes",
        )
    own = require_table(table.get("parameters", {}), "policies.parameters")
    information = table.get("information")
    name, told, given, _ = read_spec(table["name"])
    if (told and information) or given.keys() & own.keys():
        raise InputError(
            f"{table['name']!r} already says this", field="policies", remedy="say it once"
        )
    own, information = {**own, **{k: [v] for k, v in given.items()}}, told or information
    given_name, name = name, at_path(name, base)
    source = _source_hash(name, given_name) if is_own(name) else None
    if source is not None and information is not None:
        raise InputError(
            "the class itself says what it must know",
            field="policies.information",
            remedy="leave information out",
        )
    told = "" if information is None else f"@{information}"
    label = str(table.get("label", f"{given_name}{told}"))
    where = "policies.parameters" if own else "parameters"
    require_choice(name, information, {}, (*_PLACES, where))  # before the grid is made
    for parameters in grid({**shared, **own}):
        require_choice(name, information, parameters, (*_PLACES, where))
        content = {"name": name, "information": information, "parameters": parameters}
        sources = [] if source is None else [source]
        sources += [_source_hash(target, target) for target in code_in(parameters)]
        yield PolicyChoice(label, {**content, "source": sources[0]} if sources else content)


def _source_hash(target: str, given: str) -> str:
    """Return the hash of the file that holds a policy's module: a changed policy runs again."""
    found = source_of(target)
    if found is None and path_in(target) is not None:
        raise InputError(
            "no such file",
            file=path_in(given),
            field="policies.name",
            remedy="give the path from the study's file",
        )
    if found is None:
        raise InputError(
            f"no module {target.partition(':')[0]!r} was found",
            field="policies.name",
            remedy="give module:Class of a module that Python finds from here",
        )
    return hashlib.sha256(found.read_bytes()).hexdigest()
