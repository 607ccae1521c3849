"""Reading and writing of text and JSON: strict, with the place of every mistake."""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from orsched.common.errors import InputError, ResourceError, is_of_machine
from orsched.common.near_names import file_hint

if TYPE_CHECKING:
    from collections.abc import Iterator

    Path = str | os.PathLike[str]

MAX_DEPTH = 50
"""Deepest nesting of the free blocks of a file (parameters, results, bound, run)."""

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONG_NUMBER = re.compile(r"\d{4000,}")


@contextmanager
def locating(path: Path) -> Iterator[None]:
    """Give every ``InputError`` of the block the file, and turn what remains into one."""
    name = os.fspath(path)
    try:
        yield
    except InputError as error:
        raise error.located(file=name) from None
    except RecursionError:
        raise InputError(
            "nested too deeply", file=name, remedy="remove the inner levels, which no field needs"
        ) from None
    except MemoryError:
        raise ResourceError(
            f"{name}: too large for the memory of this machine "
            "(use a machine with more memory, or fewer requests)"
        ) from None
    except UnicodeEncodeError:
        raise _no_unicode(name) from None


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; raises ``InputError`` when it cannot be read."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as stream:
            if stat.S_ISCHR(os.fstat(stream.fileno()).st_mode):
                raise InputError("is a device", file=name, remedy="name a file")
            return stream.read()
    except FileNotFoundError:
        problem, remedy = "no such file", file_hint(name)
    except IsADirectoryError:
        problem, remedy = "is a folder", "name a file in it"
    except PermissionError:
        problem, remedy = "may not be read", "ask for the permission to read it"
    except OSError as error:
        problem, remedy = f"cannot be read: {error.strerror or error}", "check the path"
        if is_of_machine(error):
            raise ResourceError(f"{name}: {problem} (the machine or its disk failed)") from None
    except InputError:
        raise
    except ValueError as error:  # a zero byte in the name
        name, problem, remedy = repr(name), f"no such file name: {error}", "check the path"
    raise InputError(problem, file=name, remedy=remedy)


def read_text(path: Path) -> str:
    """Return a UTF-8 file (with or without byte order mark) as text; ``InputError`` if it fails."""
    raw = read_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"not UTF-8 text: byte {error.start} (line {line})",
            file=os.fspath(path),
            remedy="save the file as UTF-8",
        ) from None
    if not text.strip():
        raise InputError(
            "the file is empty", file=os.fspath(path), remedy="write it again from its source"
        )
    return text


def parse_json(text: str) -> Any:
    """Parse strict JSON: no NaN or infinity, no name twice in one object, valid Unicode only.

    Raises ``InputError`` with line and column.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_finite_float,
        )
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        raise InputError(
            f"not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}",
            remedy="the file is cut short" if cut else "correct the text at this place",
        ) from None
    except InputError:
        raise
    except ValueError:  # Python converts no digits beyond its limit
        raise _long_number(text) from None
    if _ESCAPED_SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InputError("half a surrogate pair in a text", remedy="remove it") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InputError("the name appears twice", field=name, remedy="keep one of them")
            seen.add(name)
    return values


def _no_constant(name: str) -> NoReturn:
    raise InputError(f"{name} is not a JSON number", remedy="give a finite number or null")


def _finite_float(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise InputError(f"{digits} is too large for a number", remedy="give a finite number")
    return value


def _long_number(text: str) -> InputError:
    found = _LONG_NUMBER.search(text)
    if found is None:
        return InputError("not valid JSON: a number cannot be read", remedy="correct it")
    line = text.count("\n", 0, found.start()) + 1
    column = found.start() - text.rfind("\n", 0, found.start())
    return InputError(
        f"a number of {len(found.group())} digits at line {line}, column {column}",
        remedy="numbers have at most 64 bits",
    )


def dump_json(document: dict[str, Any]) -> Iterator[str]:
    """Yield a document as JSON text: one field a line, in blocks one column or item a line."""
    yield "{\n"
    last = len(document) - 1
    for i, (key, value) in enumerate(document.items()):
        yield f" {_compact(key)}: "
        yield from _block(value)
        yield ",\n" if i < last else "\n}\n"


def _block(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        heads, items, ends = [f"{_compact(key)}: " for key in value], list(value.values()), "{}"
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        heads, items, ends = [""] * len(value), value, "[]"
    else:
        yield _compact(value)
        return
    separator = ends[0] + "\n  "
    for head, item in zip(heads, items, strict=True):
        yield separator + head
        yield _compact(item)
        separator = ",\n  "
    yield "\n " + ends[1]


def _compact(value: Any) -> str:
    separators = (",", ":") if isinstance(value, list) else (", ", ": ")
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=separators)


def plain(value: Any, field: str, depth: int = 0) -> Any:
    """Return a copy of plain JSON values with the names of objects in order (tuples as lists).

    Raises ``InputError`` that names the field for NaN, infinity and everything else that JSON
    cannot hold.
    """
    if depth > MAX_DEPTH:
        raise InputError("nested too deeply", field=field, remedy=f"at most {MAX_DEPTH} levels")
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float and value - value == 0:
        return value
    if isinstance(value, dict) and all(type(key) is str for key in value):
        return {key: plain(value[key], f"{field}.{key}", depth + 1) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{field}[{i}]", depth + 1) for i, item in enumerate(value)]
    what = str(value) if type(value) is float else f"a {type(value).__name__}"
    raise InputError(
        f"{what} is not a JSON value", field=field, remedy="texts, finite numbers, lists, objects"
    )


def _no_unicode(name: str) -> InputError:
    return InputError("a text is not valid Unicode", file=name, remedy="remove half characters")
