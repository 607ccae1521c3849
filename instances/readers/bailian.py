"""Qwen-Bailian usage traces: JSONL with chats, seconds, lengths and blocks of 16 tokens."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.units import NS_PER_S
from orsched.data.prefixes import Prefixes
from orsched.instances.readers.assemble import Columns, assemble
from orsched.instances.readers.hash_ids import hash_ids
from orsched.instances.readers.objects import Fields, read_objects

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace

BLOCK_TOKENS = 16
ROOT = -1
"""``parent_chat_id`` of the first turn of a chat."""


def read_bailian(
    path: str | PathLike[str], *, drop_empty: bool = False, block_tokens: int = BLOCK_TOKENS
) -> Trace:
    """Read a Qwen-Bailian trace (alibaba-edu/qwen-bailian-usagetraces-anon); times are seconds.

    Requests are named by ``chat_id``, unless two have the same. ``hash_ids`` name the content of
    each block of ``block_tokens`` tokens, the last of which may be partly filled or left out; they
    become prefixes, in which an identifier stands for its block and all before. Turns of a chat
    arrive when the trace says, not when the turn before is answered. Raises ``InputError`` as all
    readers.
    """
    size = whole_number(block_tokens, "block_tokens", minimum=1)
    fields, lines = Fields(path), array("q")
    prompts, outputs, times = array("q"), array("q"), array("q")
    names: list[str] = []
    chains = _Chains()
    hashed, later = False, 0
    for line, values in read_objects(path):
        prompts.append(fields.whole(values, "input_length", line))
        outputs.append(fields.whole(values, "output_length", line))
        times.append(fields.time_ns(values, "timestamp", line, NS_PER_S))
        names.append(str(fields.whole(values, "chat_id", line)))
        later += values.get("parent_chat_id", ROOT) != ROOT
        if not lines:
            hashed = "hash_ids" in values
        if hashed or "hash_ids" in values:
            chains.add(hash_ids(fields, values, line, size, hashed=hashed, open_block=True))
        lines.append(line)
    found = Columns(
        str(path),
        "bailian",
        lines,
        prompts,
        outputs,
        "input_length",
        "output_length",
        arrival_ns=times,
        arrival_field="timestamp",
        ids=names if len(set(names)) == len(names) else None,
        id_field="chat_id",
        prefixes=chains.prefixes(size) if hashed else None,
    )
    if later:
        found.notes.append(f"{later} requests follow another of their chat, at the times given")
    return assemble(found, drop_empty)


class _Chains:
    """Numbers blocks anew, so that equal numbers mean an equal block behind equal blocks."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._offsets, self._ids = array("q", [0]), array("q")

    def add(self, blocks: list[int]) -> None:
        before = ROOT
        for block in blocks:
            before = self._numbers.setdefault((before, block), len(self._numbers))
            self._ids.append(before)
        self._offsets.append(len(self._ids))

    def prefixes(self, size: int) -> Prefixes:
        return Prefixes(np.array(self._offsets), np.array(self._ids), size)
