"""What blocks of prompts and answers hold: identifiers along each request's tokens.

The prompt of a turn begins with its parent's prompt and answer, so that its blocks are the
parent's: the blocks of an answer are shared then, like those of prompts. A prompt that is too short
to hold prompt and answer of its parent, which dropped reasoning tokens, say, shares the prompt
alone; one that is shorter than this shares nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.data.requests import NONE, conversations

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.requests import Requests


class Chains(NamedTuple):
    """Identifiers of full blocks, of request r ``ids[offsets[r]:offsets[r] + counts[r]]``: from its
    first token on and, where a turn continues it, over its answer. No other request shares more."""

    ids: IntColumn
    offsets: IntColumn
    counts: IntColumn


def chains_of(requests: Requests, block_tokens: int) -> Chains:
    """Return the chains of requests in blocks of the size of their prefixes, or any without these.

    Raises ``InputError`` where a prompt's identifiers are not those of its parent.
    """
    kept = vars(requests).setdefault("_chains", {})  # requests never change
    if block_tokens not in kept:
        made = _of_prefixes if requests.parent is None else _of_turns
        kept[block_tokens] = made(requests, block_tokens)
    found: Chains = kept[block_tokens]
    return found


def _of_prefixes(requests: Requests, size: int) -> Chains:
    prefixes = requests.prefixes
    if prefixes is None:
        none = np.zeros(len(requests) + 1, np.int64)
        return Chains(none[:0], none, none[1:])
    counts = np.minimum(prefixes.counts, requests.prompt_tokens // size)
    return Chains(prefixes.ids, prefixes.offsets, counts)


def _of_turns(requests: Requests, size: int) -> Chains:
    assert requests.parent is not None
    ids, offsets, counts = _of_prefixes(requests, size)
    begins = zip(offsets.tolist(), counts.tolist(), strict=False)
    # What the ids of a prompt, and of turns that continue it, say of its blocks.
    named = [ids[first : first + count].tolist() for first, count in begins]
    parent: list[int] = requests.parent.tolist()
    shared = _shared_tokens(requests)
    full = ((requests.prompt_tokens + requests.output_tokens) // size).tolist()
    order = np.argsort(conversations(requests.parent)[1], kind="stable").tolist()
    for row in reversed(order):
        if parent[row] != NONE:
            _agree(row, named[row][: shared[row] // size], named[parent[row]])
    continued, fresh = {each for each in parent if each != NONE}, int(ids.max(initial=-1)) + 1
    chains: list[list[int]] = [[] for _ in named]
    for row in order:
        begin = [] if parent[row] == NONE else chains[parent[row]][: shared[row] // size]
        chains[row] = begin + named[row][len(begin) :]
        if row in continued:
            new = max(full[row] - len(chains[row]), 0)
            chains[row] += range(fresh, fresh + new)
            fresh += new
    offsets = np.cumsum([0, *map(len, chains)], dtype=np.int64)
    ids = np.fromiter((key for chain in chains for key in chain), np.int64, int(offsets[-1]))
    return Chains(ids, offsets, np.diff(offsets))


def _agree(row: int, said: list[int], known: list[int]) -> None:
    """Let a parent's blocks have the identifiers that a turn says they have."""
    if said[: len(known)] != known[: len(said)]:
        raise InputError(
            "its prompt does not begin with that of its parent, or not with the same answer",
            row=row,
            field="prefix_ids",
            remedy="name another parent, or correct the ids",
        )
    known += said[len(known) :]


def _shared_tokens(requests: Requests) -> list[int]:
    """Return how many tokens of each prompt are its parent's."""
    prompt, parent = requests.prompt_tokens, requests.parent
    before = np.where(parent == NONE, 0, prompt[parent])
    whole = np.where(parent == NONE, 0, before + requests.output_tokens[parent])
    shared: list[int] = np.select([prompt >= whole, prompt >= before], [whole, before]).tolist()
    return shared
