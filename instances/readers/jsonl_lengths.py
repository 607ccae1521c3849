"""JSONL files with two lengths a line, most with a time: LLMServingSim, ServeGen, records."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from orsched.common.units import NS_PER_MS, NS_PER_S
from orsched.instances.readers.assemble import Columns, assemble
from orsched.instances.readers.objects import Fields, read_objects

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace


def read_llmservingsim(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read an LLMServingSim trace: ``input_toks``, ``output_toks``, ``arrival_time_ns``.

    Token identifiers in it are not read. Raises ``InputError`` as all readers.
    """
    return _read(
        path, "llmservingsim", "input_toks", "output_toks", "arrival_time_ns", 1, drop_empty
    )


def read_llmservingsim_run(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read the requests of a run that LLMServingSim recorded: ``arrival_time`` is in seconds.

    Its other times are on the clock of the server's engine and are not read here; what they say
    of the run is for ``orsched.calibration.runs``. Raises ``InputError`` as all readers.
    """
    return _read(
        path,
        "llmservingsim-run",
        "input_toks",
        "output_toks",
        "arrival_time",
        NS_PER_S,
        drop_empty,
    )


def read_servegen_offline(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read ServeGen's trace of a batch task, d to f: all requests are there at once.

    Raises ``InputError`` as all readers.
    """
    return _read(
        path, "servegen-offline", "input_length", "output_length", None, NS_PER_S, drop_empty
    )


def read_records(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read per-request records of DynoSim or orsched: the requests that were served.

    Fields ``arrival_time_ms``, ``input_length`` and ``output_length`` (what was generated, not
    ``requested_output_length``). Raises ``InputError`` as all readers.
    """
    return _read(
        path,
        "records",
        "input_length",
        "output_length",
        "arrival_time_ms",
        NS_PER_MS,
        drop_empty,
    )


def _read(
    path: str | PathLike[str],
    format: str,
    prompt_field: str,
    output_field: str,
    arrival_field: str | None,
    unit_ns: int,
    drop_empty: bool,
) -> Trace:
    fields, lines = Fields(path), array("q")
    prompts, outputs = array("q"), array("q")
    times = array("q")
    for line, values in read_objects(path):
        lines.append(line)
        prompts.append(fields.whole(values, prompt_field, line))
        outputs.append(fields.whole(values, output_field, line))
        if arrival_field is not None:
            times.append(fields.time_ns(values, arrival_field, line, unit_ns))
    found = Columns(str(path), format, lines, prompts, outputs, prompt_field, output_field)
    if arrival_field is not None:
        found.arrival_ns, found.arrival_field = times, arrival_field
    return assemble(found, drop_empty)
