"""Results of ``vllm bench serve``: one JSON object with an array for each quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.errors import InputError
from orsched.instances.readers.assemble import Columns, assemble
from orsched.instances.readers.objects import DECODER, Fields, refusal
from orsched.instances.readers.text import open_text
from orsched.units import NS_PER_S

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace


def read_vllm_bench(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read the requests of a benchmark result: ``input_lens``, ``output_lens``, ``start_times``.

    The arrays are in the file only when the benchmark ran with ``--save-detailed``; without
    ``start_times`` all requests arrive at 0, with a note. A request with a text in ``errors``
    failed: ``drop_empty`` leaves it out. Rows in messages count from 0.
    Raises ``InputError`` as all readers.
    """
    values = _load(path)
    prompts, outputs = _array(values, "input_lens", path), _array(values, "output_lens", path)
    starts = _array(values, "start_times", path, len(prompts)) if "start_times" in values else None
    errors = _array(values, "errors", path, len(prompts)) if "errors" in values else None
    if len(prompts) != len(outputs):
        raise _wrong_length(path, "output_lens", len(outputs), len(prompts))
    fields = Fields(path)
    rows = range(len(prompts))
    found = Columns(
        str(path),
        "vllm-bench",
        rows,
        [fields.whole({"input_lens": prompts[r]}, "input_lens", r) for r in rows],
        [fields.whole({"output_lens": outputs[r]}, "output_lens", r) for r in rows],
        "input_lens",
        "output_lens",
        None
        if starts is None
        else [fields.time_ns({"start_times": starts[r]}, "start_times", r, NS_PER_S) for r in rows],
        "start_times",
        failed=None if errors is None else ["failed" if e else "" for e in errors],
    )
    return assemble(found, drop_empty)


def _load(path: str | PathLike[str]) -> dict[str, Any]:
    with open_text(path) as stream:
        text = stream.read()
    try:
        values = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        remedy = "give one result; with --append-result a file holds several, one a line"
        raise refusal(error, str(path), getattr(error, "lineno", None), remedy) from None
    if not isinstance(values, dict):
        raise InputError("is not a JSON object", file=str(path), remedy="give a benchmark result")
    return values


def _array(
    values: dict[str, Any], name: str, path: str | PathLike[str], length: int | None = None
) -> list[Any]:
    if name not in values:
        raise InputError(
            "the array is missing",
            file=str(path),
            field=name,
            remedy="run the benchmark with --save-result --save-detailed",
        )
    column = values[name]
    if not isinstance(column, list):
        raise InputError("is not an array", file=str(path), field=name)
    if length is not None and len(column) != length:
        raise _wrong_length(path, name, len(column), length)
    return column


def _wrong_length(path: str | PathLike[str], name: str, found: int, expected: int) -> InputError:
    return InputError(
        f"{found} values where {expected} are expected",
        file=str(path),
        field=name,
        remedy="all arrays have one value a request",
    )
