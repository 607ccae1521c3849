"""Prompts as predictors see them, and labelled ones: what predictors are fitted on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import int_column, whole_number
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request asks for.

    Attributes:
        text: the message that is to be answered.
        asked: the user's earlier messages of the conversation, oldest first.
        answered: the replies to them, oldest first.
        system: the system's message, "" for none.
    """

    text: str
    asked: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    system: str = ""

    def characters(self) -> int:
        """Return the length of all that the model reads, in characters."""
        earlier = sum(map(len, self.asked)) + sum(map(len, self.answered))
        return len(self.text) + earlier + len(self.system)

    def opening(self) -> str:
        """Return the first message of the conversation: what tells conversations apart."""
        return self.asked[0] if self.asked else self.text


def as_prompts(prompts: Sequence[Prompt | str] | Prompt | str) -> Sequence[Prompt]:
    """Return prompts, of which a text alone is one; raises ``InputError`` for anything else."""
    if isinstance(prompts, (str, Prompt)):
        prompts = (prompts,)
    try:
        found = [Prompt(p) if isinstance(p, str) else p for p in prompts]
    except TypeError:
        found, prompts = [], [prompts]  # type: ignore[list-item]
    for row, prompt in enumerate(found or prompts):
        if not isinstance(prompt, Prompt):
            raise InputError(
                f"a {type(prompt).__name__} is not a prompt",
                row=row,
                field="prompts",
                remedy="give texts or orsched.prediction.Prompt",
            )
    return found


PARTS = (("train", 0.6), ("calibrate", 0.8), ("test", 1.0))
"""The parts of a data set, and up to which share of the conversations each goes."""


@dataclass(frozen=True, eq=False)
class LabelledPrompts:
    """Prompts and how long their replies were; several replies of one prompt are several rows.

    Attributes:
        prompts: one a row.
        output_tokens: length of each reply, at least 1.
        conversations: what tells conversations apart, one text a row; None: their first messages.
        source: where they are from, for tables.
    """

    prompts: Sequence[Prompt]
    output_tokens: IntColumn
    conversations: Sequence[str] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        prompts = as_prompts(self.prompts)
        tokens = int_column(self.output_tokens, "output_tokens", minimum=1)
        for field, column in (("output_tokens", tokens), ("conversations", self.conversations)):
            if column is not None and len(column) != len(prompts):
                raise InputError(
                    f"{len(column)} values for {len(prompts)} prompts",
                    field=field,
                    remedy="one a prompt",
                )
        object.__setattr__(self, "prompts", prompts)
        object.__setattr__(self, "output_tokens", tokens)

    def __len__(self) -> int:
        return len(self.prompts)

    def rows(self, kept: IntColumn) -> LabelledPrompts:
        """Return some rows, in the order of their numbers."""
        names = self.conversations
        return LabelledPrompts(
            [self.prompts[i] for i in kept.tolist()],
            self.output_tokens[kept],
            None if names is None else [names[i] for i in kept.tolist()],
            self.source,
        )

    def part(self, name: str, seed: int) -> LabelledPrompts:
        """Return a part: ``train`` (60 %), ``calibrate`` (20 %) or ``test`` (20 %).

        A conversation falls into the same part in every file and order, by its hash under the
        seed: rows of one conversation are never on two sides, nor those of one prompt where
        conversations have no names.
        """
        known = [part for part, _ in PARTS]
        if name not in known:
            raise InputError(f"{name!r} is unknown", field="part", remedy=f"one of: {known}")
        place = known.index(name)
        low = PARTS[place - 1][1] if place else 0.0
        shares = self.shares(seed)
        return self.rows(np.nonzero((shares >= low) & (shares < PARTS[place][1]))[0])

    def shares(self, seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return a number in [0, 1) for each row, the same for all of a conversation."""
        number = whole_number(seed, "seed", remedy="give a whole number of at least 0")
        texts = self.conversations
        names = [p.opening() for p in self.prompts] if texts is None else texts
        found = np.empty(len(self))
        for row, text in enumerate(names):
            digest = hashlib.sha256(f"{number}\n{text}".encode(errors="replace")).digest()
            found[row] = int.from_bytes(digest[:6], "big") / 2**48
        return found


def by_prompt(data: LabelledPrompts) -> tuple[list[Prompt], IntColumn, IntColumn]:
    """Return each prompt once, the lengths of all replies, and how many replies each prompt has.

    Rows with the same prompt are samples of its length where they are of one conversation; without
    names they always are, since conversations are told apart by their first messages. Prompts are
    in the order in which they occur first, lengths in that of the prompts and of the rows of each.
    """
    names = data.conversations
    rows: dict[tuple[str, Prompt], list[int]] = {}
    for row, prompt in enumerate(data.prompts):
        rows.setdefault(("" if names is None else names[row], prompt), []).append(row)
    order = np.array([row for each in rows.values() for row in each], np.int64)
    counts = np.array([len(each) for each in rows.values()], np.int64)
    return [prompt for _, prompt in rows], data.output_tokens[order], counts


def joined(parts: Sequence[LabelledPrompts]) -> LabelledPrompts:
    """Return several data sets as one."""
    if len(parts) == 1:
        return parts[0]
    # Names as they are: a conversation is in the same part whether a file is read alone or not.
    names = [
        name
        for part in parts
        for name in (part.conversations or [p.opening() for p in part.prompts])
    ]
    return LabelledPrompts(
        [prompt for part in parts for prompt in part.prompts],
        np.concatenate([part.output_tokens for part in parts]),
        names,
        ", ".join(part.source for part in parts),
    )
