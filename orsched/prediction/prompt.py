"""A prompt as predictors see it: the last message, and what was said before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


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
                f"a {type(prompt).__name__} is no prompt",
                row=row,
                field="prompts",
                remedy="give texts or orsched.prediction.Prompt",
            )
    return found
