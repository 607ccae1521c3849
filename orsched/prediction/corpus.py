"""A corpus from a seed: prompts whose replies' lengths depend on the text by a stated law."""

from __future__ import annotations

import json
from math import exp, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.files.atomic import write_text
from orsched.instances.streams import stream
from orsched.prediction.data import LabelledPrompts, Prompt

if TYPE_CHECKING:
    import os

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
