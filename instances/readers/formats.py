"""The formats of traces: each is a description of its columns, which one reader reads."""

from __future__ import annotations

from array import array
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common import registry
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import NS_PER_MS
from orsched.data.requests import NONE, Prefixes
from orsched.files import cells
from orsched.files.tables import Values, read_table, whole_lists
from orsched.instances.readers import headings
from orsched.instances.readers.bench_files import BENCHES, READERS
from orsched.instances.readers.own_columns import FORMAT as OWN
from orsched.instances.readers.own_columns import read_own
from orsched.instances.readers.traces import Columns, assemble

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from orsched.files.tables import Parser, Table
    from orsched.instances.readers.traces import Trace

BLOCKS = "hash_ids"
"""The field of a prompt's blocks, each of which stands for the tokens in it."""

_FIRST_TURN = -1
"""``parent_chat_id`` of the first turn of a chat."""


class Format(NamedTuple):
    """A format, by the names of its columns; further ones are left alone.

    Attributes:
        kind: what its files are: csv, jsonl or json.
        fields: the columns by which it is recognised.
        title: what it is.
        prompt, output: columns of token counts; ``lengths`` is the parser of the second.
        arrival: column of arrival times; None: all requests arrive at 0.
        times: parser of that column.
        may_lack_times: whether there are files without arrival times, which get a note.
        id: column of the requests' names, and ``names`` its parser; None: they have none.
        further: optional further columns that are read.
        finish: is given the table and what was found in it; it checks the further columns, or adds
            what they say.
        block_tokens: tokens of a block, in formats that have them.
        reader: reads the format in place of the description.
    """

    kind: str
    fields: tuple[str, ...]
    title: str
    prompt: str = ""
    output: str = ""
    arrival: str | None = None
    times: Parser = cells.seconds
    may_lack_times: bool = False
    id: str | None = None
    names: Parser = cells.names
    further: Mapping[str, Parser] = {}
    finish: Callable[..., None] | None = None
    block_tokens: int | None = None
    reader: Callable[..., Trace] | None = None
    lengths: Parser = cells.whole_numbers


def read_format(
    name: str,
    path: str | PathLike[str],
    *,
    drop_empty: bool = False,
    block_tokens: int | None = None,
) -> Trace:
    """Read a trace by the description of its format. Raises ``InputError`` as all readers.

    Blocks of a prompt become prefixes: either every request has ``prompt / block_tokens`` of them,
    rounded up, or no request has any.
    """
    form = FORMATS[name]
    required: dict[str, Parser] = {} if form.id is None else {form.id: form.names}
    optional = dict(form.further)
    if form.arrival is not None:
        (optional if form.may_lack_times else required)[form.arrival] = form.times
    required |= {form.prompt: cells.whole_numbers, form.output: form.lengths}
    table = read_table(path, required, optional, quoted=False)
    columns = table.columns
    found = Columns(
        str(path),
        name,
        table.lines,
        columns[form.prompt],
        columns[form.output],
        form.prompt,
        form.output,
        arrival_ns=columns.get(form.arrival or ""),
        arrival_field=form.arrival or "",
        ids=columns.get(form.id or ""),
        id_field=form.id or "",
    )
    options = {}
    if block_tokens is not None:
        if form.block_tokens is None:
            raise InputError(
                "the format has no blocks", field="block_tokens", remedy="leave it out"
            )
        options = {"size": whole_number(block_tokens, "block_tokens", minimum=1)}
    if form.finish is not None and len(table):
        try:
            form.finish(table, found, **options)
        except InputError as error:
            raise error.located(file=str(path)) from None
    return assemble(found, drop_empty)


def _refuse(
    table: Table, wrong: Any, field: str, problem: Callable[[int], str], remedy: str
) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(problem(row), row=int(table.lines[row]), field=field, remedy=remedy)


def _check_totals(table: Table, found: Columns) -> None:
    """The total, where there is one, must be the sum of request and response."""
    prompts, outputs = found.prompt_tokens, found.output_tokens
    total = table.columns.get("Total tokens", prompts + outputs)
    _refuse(
        table,
        total != prompts + outputs,
        "Total tokens",
        lambda row: f"{total[row]} is not {prompts[row]} + {outputs[row]}",
        "the total is request plus response; correct the row",
    )


def _check_batches(table: Table, _: Columns) -> None:
    """A row with a batch size other than 1 stands for several requests and is refused."""
    batch = table.columns.get("batch_size", np.ones(len(table), np.int64))
    _refuse(
        table,
        batch != 1,
        "batch_size",
        lambda row: f"a batch of {batch[row]} is not one request",
        "write each request as a row of its own with batch_size 1",
    )


def _blocks(
    table: Table, found: Columns, size: int, *, open_block: bool = False
) -> tuple[Any, Any] | None:
    """Return offsets and content of all prompts' blocks; None where no prompt has any.

    With ``open_block`` a last block that is not full may be left out.
    """
    lists = table.columns[BLOCKS]
    given = np.array([each is not None for each in lists])
    _refuse(
        table,
        given != given[0],
        BLOCKS,
        lambda _: "some requests have blocks and others none",
        f"give {BLOCKS} for every request or for none",
    )
    if not given[0]:
        return None
    counts, prompts = np.array([len(each) for each in lists]), found.prompt_tokens
    _refuse(
        table,
        (counts != -(-prompts // size)) & ~(open_block & (counts == prompts // size)),
        BLOCKS,
        lambda row: f"{counts[row]} blocks of {size} tokens for a prompt of {prompts[row]}",
        f"check {BLOCKS}; blocks of another size are read in Python: "
        "orsched.instances.readers.read(path, block_tokens=16)",
    )
    return np.concatenate([[0], np.cumsum(counts)]), np.concatenate(lists)


def _add_prefixes(table: Table, found: Columns, size: int = 512) -> None:
    """Blocks that are named by their content and all before them are prefixes as they are."""
    blocks = _blocks(table, found, size)
    try:
        found.prefixes = None if blocks is None else Prefixes(*blocks, size)
    except InputError as error:
        row = None if error.row is None else int(table.lines[error.row])
        raise InputError(error.problem, row=row, field=BLOCKS, remedy=error.remedy) from None


def _add_parents(table: Table, found: Columns, size: int = 512) -> None:
    """Add prefixes and, by them, parents: see ``FORMATS``; a turn follows its parent's end."""
    _add_prefixes(table, found, size)
    if found.prefixes is None:
        raise InputError(
            "turns are found by the blocks of prompts, which no request has",
            field=BLOCKS,
            remedy="take the format mooncake",
        )
    prompts, arrivals = found.prompt_tokens, found.arrival_ns
    ends, full = prompts + found.output_tokens, prompts // size
    parent, talk = np.full((2, len(table)), NONE)
    owner: dict[int, int] = {}  # the conversation that had a block first
    leaf: dict[int, int] = {}  # its latest turn, by the last full block, which it owns
    for row in np.argsort(arrivals, kind="stable").tolist():
        chain = found.prefixes.of(row)[: full[row]].tolist()
        fitting = [
            each for each in (leaf[block] for block in chain if block in leaf)
            if arrivals[each] < arrivals[row] and ends[each] <= prompts[row]
        ]  # fmt: skip
        talk[row] = row
        if fitting:
            parent[row] = last = max(fitting, key=lambda each: (arrivals[each], each))
            talk[row] = talk[last]
            del leaf[chain[full[last] - 1]]
        for block in chain:
            owner.setdefault(block, talk[row])
        if chain and found.output_tokens[row] and owner[chain[-1]] == talk[row]:
            leaf[chain[-1]] = row
    later = parent != NONE
    found.parent = parent
    found.delay_ns = np.where(later, arrivals - arrivals[parent], NONE)
    found.notes.append(
        f"{later.sum()} requests follow another by their blocks: each arrives after its parent's "
        "end plus the time between their arrivals, in which the parent's latency is counted too"
    )


def _add_chats(table: Table, found: Columns, size: int = 16) -> None:
    """Number blocks that are named by their content alone again, and note turns that follow others.

    Equal numbers mean an equal block behind equal blocks.
    """
    blocks = _blocks(table, found, size, open_block=True)
    if blocks is not None:
        numbers: dict[tuple[int, int], int] = {}
        chained = array("q")
        for chain in table.columns[BLOCKS]:
            before = -1
            for block in chain.tolist():
                before = numbers.setdefault((before, block), len(numbers))
                chained.append(before)
        found.prefixes = Prefixes(blocks[0], np.array(chained, np.int64), size)
    if len(set(found.ids or ())) < len(table):
        found.ids = None
    later = sum(table.columns["parent_chat_id"])
    if later:
        found.notes.append(f"{later} requests follow another of their chat, at the times given")


def _add_turns(table: Table, found: Columns) -> None:
    """Make a request of each trajectory: its turns' answers, and what was put in between them.

    What the model yields in all turns is the output. The tokens of observations (answers of tools)
    that another turn follows count in the prompt: all are prefilled once, here before the first
    turn. How long tools took the trace does not say.
    """
    columns = table.columns
    seen = columns.get("obs_lens", [None] * len(table))
    sums = [[], []]  # type: list[list[int]]
    for outputs, between in zip(columns["out_lens"], seen, strict=True):
        turns = [] if outputs is None else outputs.tolist()
        known = [] if between is None else between.tolist()
        for total, tokens in zip(sums, (turns, known[: max(0, len(turns) - 1)]), strict=True):
            total.append(min(sum(tokens), 2**62))
    found.output_tokens, between = np.array(sums[0]), np.array(sums[1])
    found.prompt_tokens = np.where(found.prompt_tokens > 0, found.prompt_tokens + between, 0)
    found.group = columns["group"]
    streams = columns["stream"].tolist()
    ids = [f"{g}/{s}" for g, s in zip(found.group.tolist(), streams, strict=True)]
    found.ids = ids if len(set(ids)) == len(ids) else None
    several = int((between > 0).sum())
    if several:
        found.notes.append(
            f"{several} trajectories have observations between turns: {between.sum()} tokens, "
            "counted in the prompts"
        )


def _numbers_as_names(column: Any) -> list[str]:
    return list(map(str, cells.whole_numbers(column).tolist()))


def _follow_another(parents: Any) -> list[bool]:
    return [parent not in (None, _FIRST_TURN) for parent in parents]


_MILLISECONDS = partial(cells.seconds, unit_ns=NS_PER_MS)
_NANOSECONDS = partial(cells.seconds, unit_ns=1)
_LISTS = Values(whole_lists)
_MOONCAKE = Format(
    "jsonl",
    ("timestamp", "input_length", "output_length"),
    "Mooncake trace",
    "input_length",
    "output_length",
    "timestamp",
    _MILLISECONDS,
    further={BLOCKS: _LISTS},
    finish=_add_prefixes,
    block_tokens=512,
)

FORMATS = {
    "azure": Format(
        "csv",
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        "Azure LLM inference trace, 2023 and 2024",
        "ContextTokens",
        "GeneratedTokens",
        "TIMESTAMP",
        cells.timestamps,
    ),
    "burstgpt": Format(
        "csv",
        ("Timestamp", "Request tokens", "Response tokens"),
        "BurstGPT",
        "Request tokens",
        "Response tokens",
        "Timestamp",
        further={"Total tokens": cells.whole_numbers},
        finish=_check_totals,
    ),
    "splitwise": Format(
        "csv",
        ("request_id", "arrival_timestamp", "prompt_size", "token_size"),
        "Splitwise-sim trace",
        "prompt_size",
        "token_size",
        "arrival_timestamp",
        id="request_id",
        further={"batch_size": cells.whole_numbers},
        finish=_check_batches,
    ),
    "vidur": Format(
        "csv",
        ("num_prefill_tokens", "num_decode_tokens"),
        "Vidur trace",
        "num_prefill_tokens",
        "num_decode_tokens",
        "arrived_at",
        may_lack_times=True,
    ),
    "measured": Format(
        "csv",
        ("id", "arrival_s", "prompt_tokens", "output_tokens"),
        "measured vLLM run",
        "prompt_tokens",
        "output_tokens",
        "arrival_s",
        id="id",
    ),
    "pairs": Format(
        "csv",
        ("id", "prompt_tokens", "answer_tokens"),
        "length pairs without arrival times (GSM8K, ShareGPT, arXiv)",
        "prompt_tokens",
        "answer_tokens",
        id="id",
    ),
    "llmservingsim": Format(
        "jsonl",
        ("input_toks", "output_toks", "arrival_time_ns"),
        "LLMServingSim trace",
        "input_toks",
        "output_toks",
        "arrival_time_ns",
        _NANOSECONDS,
    ),
    "llmservingsim-run": Format(
        "jsonl",
        ("input_toks", "output_toks", "arrival_time"),
        "requests of a run that LLMServingSim recorded",
        "input_toks",
        "output_toks",
        "arrival_time",
    ),
    "records": Format(
        "jsonl",
        ("arrival_time_ms", "input_length", "output_length"),
        "per-request records of DynoSim or orsched",
        "input_length",
        "output_length",
        "arrival_time_ms",
        _MILLISECONDS,
    ),
    "bailian": Format(
        "jsonl",
        ("chat_id", "timestamp", "input_length", "output_length"),
        "Qwen-Bailian usage trace",
        "input_length",
        "output_length",
        "timestamp",
        id="chat_id",
        names=_numbers_as_names,
        further={BLOCKS: _LISTS, "parent_chat_id": Values(_follow_another)},
        finish=_add_chats,
        block_tokens=16,
    ),
    "mooncake": _MOONCAKE,
    "mooncake-turns": _MOONCAKE._replace(
        title="Mooncake trace, whose turns follow each other", finish=_add_parents
    ),
    "rollouts": Format(
        "jsonl",
        ("group", "stream", "prompt_len", "out_lens"),
        "trajectories of rollouts by turns, as tpu-inference replays them",
        "prompt_len",
        "out_lens",
        lengths=_LISTS,
        further={
            "group": cells.whole_numbers,
            "stream": cells.whole_numbers,
            "obs_lens": _LISTS,
        },
        finish=_add_turns,
    ),
    "servegen-offline": Format(
        "jsonl",
        ("request_id", "input_length", "output_length", "duration"),
        "ServeGen's trace of a batch task, d to f",
        "input_length",
        "output_length",
    ),
    **{
        name: Format("json", bench.fields, bench.title, reader=READERS[name])
        for name, bench in BENCHES.items()
    },
    OWN: Format(
        "csv, jsonl or xlsx",
        headings.REQUIRED,
        "requests of one's own, under names that people use",
        reader=read_own,
    ),
}
"""The built-in formats; the entry points ``orsched.readers`` add further ones.

Times of Azure are dates with seven decimals (2023) or an offset and ``T`` (2024). Whole seconds of
BurstGPT and steps of about 3 s of Mooncake give many requests one time: see ``spread_arrivals``.
Failed requests of BurstGPT have 0 tokens: ``drop_empty`` leaves them out. Further times of measured
runs and of LLMServingSim's are of a clock with another zero point and no part of the requests.
``output_length`` of records is what was generated, not ``requested_output_length``. Bailian's turns
of a chat arrive when the trace says, not when the turn before is answered.

``mooncake-turns`` is recognised as ``mooncake``: name it. A turn's parent is the latest request
that arrives before it, has no other child, and whose full blocks begin the turn's; the prompt has
room for the parent's prompt and answer. The parent's last full block was first in its own
conversation, so that a system prompt, which all requests share, makes no turns.
"""


def format_names() -> list[str]:
    """Return the names of all formats, the built-in ones first."""
    return list(FORMATS) + [n for n in registry.names("readers") if n not in FORMATS]
