"""Prompts as predictors see them, labelled ones, and a corpus from a seed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.columns import int_column, whole_number
from orsched.common.errors import InputError, known_names
from orsched.files.document import write_text
from orsched.instances.streams import stream

if TYPE_CHECKING:
    import os
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


SIGMA = 0.35  # standard deviation of the logarithm of the length around the law

LONGEST = 4096
AGAIN = 0.4  # probability that a conversation goes on after a reply, of four turns at most

_TOPICS = (
    "tides", "the French Revolution", "compound interest", "bees", "volcanoes", "chess openings",
    "railways", "photosynthesis", "glaciers", "vaccines", "jazz", "black holes", "bread", "tea",
    "bridges", "sleep", "inflation", "coral reefs", "printing", "the Silk Road",
)  # fmt: skip
_WORDS = (
    "river", "stone", "market", "winter", "letter", "engine", "garden", "silver", "morning",
    "teacher", "window", "harbour", "paper", "forest", "number", "village", "doctor", "music",
    "weather", "bottle", "island", "student", "bridge", "candle",
)  # fmt: skip


class Task(NamedTuple):
    """A kind of request."""

    text: str  # with places for ``topic``, a number ``n`` and a text ``body`` of ``k`` words
    fixed: float  # tokens of the reply, in the middle
    each: float = 0.0  # further tokens for each of n
    share: float = 0.0  # further tokens for each word of the body
    most: int = 12  # n is drawn from 2 to that


DOMAINS: dict[str, tuple[Task, ...]] = {
    "chat": (
        Task("When did people first write about {topic}?", 18),
        Task("Is it true that {topic} can be understood by a child?", 30),
        Task("What is known about {topic}?", 90),
        Task("How do experts study {topic}, and why?", 220),
        Task("Explain {topic} to me in detail, step by step.", 480),
        Task("List {n} facts about {topic}.", 10, each=18),
        Task("Write a story of {n} paragraphs about {topic}.", 20, each=110, most=6),
        Task("Write about {topic} in {n}0 words.", 5, each=13, most=40),
        Task("Summarize the following text: {body}", 25, share=0.25),
        Task("Translate to German: {body}", 5, share=1.4),
        Task("Classify the sentiment of this review: {body}", 4),
    ),
    "code": (
        Task("Write a Python function that sorts {n} records by {topic}.", 140),
        Task("What does this function return?\n```python\ndef f(x):\n    {body}\n```", 70),
        Task("Fix the bug in this code:\n```python\n{body}\n```", 40, share=1.6),
        Task("Implement a class Store with {n} methods: {body}", 40, each=60),
        Task("Name the command that lists files. Give only the command.", 8),
        Task("Explain why the following program is slow:\n{body}", 260),
    ),
    "math": (
        Task("Compute {n} + {n}.", 12),
        Task("A shop sells {n} boxes a day. {body} How many boxes are left? Show all steps.", 60,
             share=1.1),
        Task("Solve the equation {n}x + 3 = 15 for x.", 85),
        Task("Prove that the sum of the first {n} odd numbers is a square.", 240),
        Task("Is {n} a prime number? Answer yes or no.", 3),
    ),
}  # fmt: skip
"""The kinds of requests of each domain, equally frequent."""


def make_corpus(domain: str = "chat", rows: int = 1000, seed: int = 0) -> LabelledPrompts:
    """Return labelled prompts of a domain.

    The length of a reply is log-normal around ``fixed + each * n + share * k`` tokens of its task
    with ``SIGMA``, cut to 1 to 4,096. A fifth of the requests end with " Be brief." and are
    answered with 0.4 times that. From the second turn on the middle is the geometric mean of that
    (to the power 0.7) and the reply before (to the power 0.3).

    Args:
        domain: one of ``DOMAINS``.
        rows: number of requests; conversations of one to four turns, one row a turn.
        seed: the same seed gives the same rows.

    Raises:
        InputError: unknown domain, or numbers that are none.
    """
    if domain not in DOMAINS:
        remedy = known_names(domain, list(DOMAINS), "one of: ")
        raise InputError(f"{domain!r} is unknown", field="domain", remedy=remedy)
    count = whole_number(rows, "rows", maximum=10_000_000)
    random = stream(f"predict/corpus/{domain}", seed)
    prompts: list[Prompt] = []
    lengths: list[int] = []
    names: list[str] = []
    talk = 0
    while len(prompts) < count:
        asked: tuple[str, ...] = ()
        answered: tuple[str, ...] = ()
        talk += 1
        for _ in range(4):
            text, middle = _request(DOMAINS[domain], random)
            if answered:
                middle = middle**0.7 * max(1, lengths[-1]) ** 0.3
            length = round(exp(log(middle) + SIGMA * random.standard_normal()))
            prompts.append(Prompt(text, asked, answered))
            lengths.append(min(max(length, 1), LONGEST))
            names.append(f"{domain}-{seed}-{talk}")
            if random.random() >= AGAIN:
                break
            asked, answered = (*asked, text), (*answered, _body(random, lengths[-1]))
    return LabelledPrompts(
        prompts[:count], np.array(lengths[:count], np.int64), names[:count], f"corpus:{domain}"
    )


def _request(tasks: tuple[Task, ...], random: np.random.Generator) -> tuple[str, float]:
    """Return the text of a request and the middle of its reply's length, in tokens."""
    task = tasks[random.integers(len(tasks))]
    n = int(random.integers(2, task.most + 1))
    k = int(exp(random.uniform(log(10), log(300)))) if "{body}" in task.text else 0
    topic = _TOPICS[random.integers(len(_TOPICS))]
    text = task.text.format(topic=topic, n=n, body=_body(random, k))
    middle = task.fixed + task.each * n + task.share * k
    if random.random() < 0.2:
        return text + " Be brief.", middle * 0.4
    return text, middle


def _body(random: np.random.Generator, words: int) -> str:
    """Return so many words."""
    return " ".join(_WORDS[i] for i in random.integers(len(_WORDS), size=words).tolist())


def write_labelled_prompts(data: LabelledPrompts, path: str | os.PathLike[str]) -> None:
    """Write labelled prompts as JSON lines, which ``read_labelled_prompts`` takes."""
    names = data.conversations

    def lines() -> list[str]:
        found = []
        for row, prompt in enumerate(data.prompts):
            turns = [{"role": "system", "content": prompt.system}] if prompt.system else []
            for asked, answered in zip(prompt.asked, prompt.answered, strict=True):
                turns += [{"role": "user", "content": asked}]
                turns += [{"role": "assistant", "content": answered}]
            turns.append({"role": "user", "content": prompt.text})
            values: dict[str, object] = {"conversation": turns}
            if names is not None:
                values["conversation_id"] = names[row]
            values["output_tokens"] = int(data.output_tokens[row])
            found.append(json.dumps(values, ensure_ascii=False) + "\n")
        return found

    write_text(path, lines())
