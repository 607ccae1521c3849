"""Text, JSON and TOML: read strictly, with the place of every mistake, and written."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import tomllib
from contextlib import contextmanager
from decimal import Decimal, DecimalException
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn, cast

from orsched.common.errors import InputError, ResourceError, file_hint, is_of_machine, known_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from io import BufferedReader
    from typing import TextIO

    Path = str | os.PathLike[str]


MAX_DEPTH = 50
"""Deepest nesting of the free blocks of a file (parameters, results, bound, run)."""

HEAD_BYTES = 65_536

_KINDS = {
    b"\x1f\x8b": ("gzip-compressed", "unpack it with gunzip first"),
    b"BZh": ("bzip2-compressed", "unpack it with bunzip2 first"),
    b"\xfd7zXZ": ("xz-compressed", "unpack it with unxz first"),
    b"\x28\xb5\x2f\xfd": ("zstd-compressed", "unpack it with unzstd first"),
    b"PK\x03\x04": ("a ZIP archive or a spreadsheet", "unpack it, or save the sheet as CSV"),
    b"PAR1": ("a Parquet file", "convert it to CSV, or load it with orsched.load"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
}
"""How files of other kinds begin, what they are, and what to do with one."""

_FORMULA = re.compile(r"[=@\t\r]|[+-](?![0-9.]+$)")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONG_NUMBER = re.compile(r"\d{4000,}")

_LOG = logging.getLogger(__name__)


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
        with _opened(name) as stream:
            return stream.read()
    except OSError as error:
        raise _unreadable(name, error) from None


def _opened(name: str) -> BufferedReader:
    """Open a file to read, with a buffer that holds its head."""
    try:
        stream = cast("BufferedReader", open(name, "rb", buffering=HEAD_BYTES))  # noqa: SIM115
    except ValueError as error:  # a zero byte in the name
        raise InputError(
            f"no such file name: {error}", file=repr(name), remedy="check the path"
        ) from None
    if stat.S_ISCHR(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise InputError("is a device", file=name, remedy="name a file")
    return stream


def _unreadable(name: str, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError):
        problem, remedy = "the file does not exist", file_hint(name)
    elif isinstance(error, IsADirectoryError):
        problem, remedy = "is a folder", "name a file in it"
    elif isinstance(error, PermissionError):
        problem, remedy = "may not be read", "ask for the permission to read it"
    else:
        problem, remedy = f"cannot be read: {error.strerror or error}", "check the path"
        if is_of_machine(error):
            return ResourceError(f"{name}: {problem} (the machine or its disk failed)")
    return InputError(problem, file=name, remedy=remedy)


def read_text(path: Path) -> str:
    """Return a UTF-8 file (with or without byte order mark) as text; ``InputError`` if it fails."""
    raw = read_bytes(path)
    name = os.fspath(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _of_a_kind(raw, name) or _not_utf8(raw, error, name) from None
    if not text.strip():
        raise _empty(name)
    return text


@contextmanager
def open_text(path: Path) -> Iterator[tuple[str, TextIO]]:
    """Open a UTF-8 text to read line by line, and give its first 64 KiB beside it.

    A byte order mark is skipped, line ends stay as they are. Raises ``InputError`` for what cannot
    be read, and what is empty, compressed, binary or not UTF-8, with a guess at what it is.
    """
    name = os.fspath(path)
    try:
        stream = _opened(name)
        head = stream.peek(HEAD_BYTES)[:HEAD_BYTES]
    except OSError as error:
        raise _unreadable(name, error) from None
    with stream:
        text = _head(head, name)
        try:
            yield text, TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        except UnicodeDecodeError:
            raw = read_bytes(path)
            try:
                raw.decode()
            except UnicodeDecodeError as error:
                raise _not_utf8(raw, error, name) from None
            raise


def head_of(path: Path) -> str:
    """Return the first 64 KiB of a text file; raises as ``open_text``."""
    with open_text(path) as (head, _):
        return head


def _head(head: bytes, name: str) -> str:
    if known := _of_a_kind(head, name):
        raise known
    if b"\0" in head:
        raise InputError("holds NUL bytes: not text", file=name, remedy="save it as UTF-8 text")
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4 or len(head) < HEAD_BYTES:
            raise _not_utf8(head, error, name) from None
        text = head[: error.start].decode("utf-8-sig")  # cut within a letter
    if not text.strip():
        raise _empty(name)
    return text


def _of_a_kind(head: bytes, name: str) -> InputError | None:
    """Return what to say of a file that begins as another kind than text does."""
    for magic, (what, remedy) in _KINDS.items():
        if head.startswith(magic):
            return InputError(f"is {what}, not UTF-8 text", file=name, remedy=remedy)
    return None


def _not_utf8(raw: bytes, error: UnicodeDecodeError, name: str) -> InputError:
    line = raw.count(b"\n", 0, error.start) + 1
    return InputError("is not UTF-8 text", file=name, row=line, remedy="save it as UTF-8")


def _empty(name: str) -> InputError:
    return InputError("the file is empty", file=name, remedy="write it again from its source")


def parse_json(text: str, *, exact: bool = False, line: int | None = None) -> Any:
    """Parse strict JSON: no NaN or infinity, no name twice in one object, valid Unicode only.

    ``exact``: numbers with a fraction or an exponent are ``Decimal``. ``line`` is that of JSON
    lines, which an ``InputError`` then names; otherwise it names line and column.
    """
    try:
        value = (_EXACT if exact else _FLOATS).decode(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        place = f"line {error.lineno}, " if line is None else ""
        raise InputError(
            f"not valid JSON at {place}column {error.colno}: {error.msg}",
            row=line,
            remedy="the file is cut short" if cut else "correct the text at this place",
        ) from None
    except InputError as error:
        raise error.located(row=line) if line is not None else error from None
    except RecursionError:
        raise InputError(
            "nested too deeply", row=line, remedy="remove the inner levels, which no field needs"
        ) from None
    except ValueError:  # Python converts no digits beyond its limit
        raise _long_number(text, line) from None
    if _ESCAPED_SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            raise InputError(
                "half a surrogate pair in a text", row=line, remedy="remove it"
            ) from None
    return value


def json_object(text: str, *, exact: bool = False, line: int) -> dict[str, Any]:
    """Return the JSON object in a line; raises ``InputError`` that names the line."""
    value = parse_json(text, exact=exact, line=line)
    if not isinstance(value, dict):
        raise InputError(
            "is not a JSON object", row=line, remedy="give one JSON object in each line"
        )
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
        raise _too_large(digits)
    return value


def _exact(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except DecimalException:  # exponents beyond any use
        raise _too_large(digits) from None


def _too_large(digits: str) -> InputError:
    return InputError(f"{digits:.40} is too large for a number", remedy="give a finite number")


_FLOATS, _EXACT = (
    json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant, parse_float=number)
    for number in (_finite_float, _exact)
)


def _long_number(text: str, line: int | None) -> InputError:
    found = _LONG_NUMBER.search(text)
    if found is None:
        return InputError("not valid JSON: a number cannot be read", row=line, remedy="correct it")
    column = found.start() - text.rfind("\n", 0, found.start())
    place = "" if line is not None else f"line {text.count(chr(10), 0, found.start()) + 1}, "
    return InputError(
        f"a number of {len(found.group())} digits at {place}column {column}",
        row=line,
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

    Raises ``InputError`` that names the field for NaN, infinity and what else JSON cannot hold.
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


def warn_of_formulas(texts: Iterable[object], where: str) -> None:
    """Log a warning if texts begin as formulas do.

    CSV cannot say that a cell is no formula: an apostrophe would be part of the text elsewhere.
    """
    found = [text for text in texts if isinstance(text, str) and _FORMULA.match(text)]
    if found:
        _LOG.warning(
            "%s: a spreadsheet would run %d text%s as a formula, %.60r first: import such columns "
            "as text",
            where,
            len(found),
            "s" if len(found) > 1 else "",
            found[0],
        )


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raises ``InputError`` with the line of a mistake."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"is not TOML: {error}", file=os.fspath(path), remedy="write texts in quotes"
        ) from None
    except ValueError as error:  # Python converts no digits beyond its limit
        raise InputError(
            f"a number cannot be read: {error}",
            file=os.fspath(path),
            remedy="numbers have at most 64 bits",
        ) from None
    except RecursionError:
        raise InputError(
            "nested too deeply", file=os.fspath(path), remedy="write fewer levels"
        ) from None


def require_table(value: object, field: str, known: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a table; raises ``InputError`` for another type, or that names an unknown key."""
    if not isinstance(value, dict):
        raise InputError(f"{value!r} is not a table", field=field, remedy=f"write [{field}]")
    if known is not None:
        require_known(value, field, known)
    return value


def require_known(table: Mapping[str, Any], where: str, known: Iterable[str]) -> None:
    """Raise ``InputError`` for the first key of a table that is none of those known."""
    names = list(known)
    for key in table:
        if key not in names:
            raise InputError(
                f"unknown key {key!r}",
                field=f"{where}.{key}" if where else str(key),
                remedy=known_names(key, names),
            )
