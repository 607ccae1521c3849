"""The loss of a worker: its cause, as a word and as a sentence."""

from __future__ import annotations

from typing import Literal

Reason = Literal["died", "hung", "out_of_memory", "failed"]


class WorkerLostError(Exception):
    """A worker can take no more steps before it is restarted.

    Attributes:
        reason: ``died``: its process ended without a word; ``hung``: a step took far too long;
            ``out_of_memory``; ``failed``: anything else that it reported.
        message: what is known of it.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason: Reason = reason
        self.message = message
