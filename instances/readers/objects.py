"""JSON objects, one a line: exact numbers, with the line of every object."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

from orsched.common.errors import InputError
from orsched.common.units import MAX_TOKENS
from orsched.instances.readers.cells import exact, time_ns
from orsched.instances.readers.text import open_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for i, name in enumerate(names) if name in names[:i]))
    return values


class _TwiceError(ValueError):
    """A name appears twice in one object."""


DECODER = json.JSONDecoder(
    parse_float=exact, parse_constant=_no_constant, object_pairs_hook=_object
)
"""Decodes numbers exactly: int or Decimal; NaN, infinity and names that appear twice are errors."""


def refusal(error: Exception, file: str, line: int | None, remedy: str) -> InputError:
    """Return what to say of a text that ``DECODER`` does not take."""
    if isinstance(error, _TwiceError):
        return InputError(
            "the name appears twice", file=file, row=line, field=str(error), remedy="keep one"
        )
    if isinstance(error, RecursionError):
        remedy = "remove the inner levels, which no field needs"
    elif not isinstance(error, json.JSONDecodeError):  # a number that the decoder refuses
        remedy = "give a finite number"
    return InputError(f"is not JSON: {error}", file=file, row=line, remedy=remedy)


def read_objects(path: str | PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of each line of a JSONL file; blank lines are skipped.

    Raises:
        InputError: a line is not a JSON object.
    """
    file = str(path)
    with open_text(path) as stream:
        for line, text in enumerate(stream, start=1):
            if not text.strip():
                continue
            try:
                value = DECODER.decode(text)
            except (ValueError, RecursionError) as error:
                remedy = "give one JSON object in each line; the file may be cut off"
                raise refusal(error, file, line, remedy) from None
            if not isinstance(value, dict):
                raise InputError(
                    "is not a JSON object", file=file, row=line, remedy="one JSON object a line"
                )
            yield line, value


class Fields:
    """Typed access to the fields of JSON objects of one file."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.file = str(path)

    def whole(self, values: dict[str, Any], name: str, line: int, maximum: int = MAX_TOKENS) -> int:
        """Return a whole number from 0 to ``maximum``."""
        value = self._number(values, name, line)
        if isinstance(value, Decimal) and value != value.to_integral_value():
            raise self._wrong(f"{value} is not a whole number", name, line, "give a whole number")
        if not 0 <= value <= maximum:
            side = "negative" if value < 0 else f"above {maximum}"
            remedy = f"give a whole number, 0 or more, of at most {maximum}"
            raise self._wrong(f"{value} is {side}", name, line, remedy)
        return int(value)

    def time_ns(self, values: dict[str, Any], name: str, line: int, ns: int) -> int:
        """Return a time, given in units of ``ns`` nanoseconds, in nanoseconds."""
        value = self._number(values, name, line)
        try:
            return time_ns(value, ns)
        except ValueError as error:
            remedy = "give a time, 0 or more, of at most 2**62 ns (146 years)"
            raise self._wrong(str(error), name, line, remedy) from None

    def whole_list(self, values: dict[str, Any], name: str, line: int) -> list[int]:
        """Return a list of whole numbers from 0 to 2**62."""
        items = values.get(name)
        if not isinstance(items, list):
            raise self._wrong("is not a list", name, line, "give a list of whole numbers")
        for item in items:
            if type(item) is not int or not 0 <= item <= 2**62:
                raise self._wrong(
                    f"{item!r} is not a whole number from 0 to 2**62", name, line, "check the list"
                )
        return items

    def _number(self, values: dict[str, Any], name: str, line: int) -> Decimal | int:
        if name not in values:
            raise self._wrong("the field is missing", name, line, f"every object needs '{name}'")
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            shown = json.dumps(value, default=str)
            raise self._wrong(f"{shown[:40]} is not a number", name, line, "give a number")
        return value

    def _wrong(self, problem: str, name: str, line: int, remedy: str) -> InputError:
        return InputError(problem, file=self.file, row=line, field=name, remedy=remedy)
