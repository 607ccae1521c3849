"""Worker processes of a study on this machine."""

from __future__ import annotations

import contextlib
import json
import selectors
from typing import TYPE_CHECKING, Any

from orsched.common.subprocess_call import Child

if TYPE_CHECKING:
    from orsched.common.subprocess_call import Pipe

Answer = tuple[int, dict[str, Any] | None, str]
"""Slot, record, "" of a finished cell; or slot, None, how its process ended."""


class LocalPool:
    """Processes in slots 0, 1, ...; each runs one cell at a time."""

    where = "local"

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, Child] = {}

    def submit(self, slot: int, task: dict[str, Any]) -> None:
        """Give a cell to a slot, whose process is started when there is none."""
        if slot not in self._children:
            child = self._children[slot] = Child("orsched.planning.study.local:run_cells")
            self._selector.register(child.pipe, selectors.EVENT_READ, slot)
        with contextlib.suppress(OSError):  # a process that is gone is noticed by its pipe
            self._children[slot].pipe.send(task)

    def wait(self, timeout_s: float) -> list[Answer]:
        """Return what has happened within some seconds."""
        answers: list[Answer] = []
        for key, _ in self._selector.select(timeout_s):
            try:
                record = self._children[key.data].receive()
            except EOFError:
                answers.append((key.data, None, self._bury(key.data)))
            else:
                if record is not None:
                    answers.append((key.data, json.loads(record), ""))
        return answers

    def kill(self, slot: int) -> None:
        """End the process of a slot now."""
        self._bury(slot)

    def _bury(self, slot: int) -> str:
        child = self._children.pop(slot)
        self._selector.unregister(child.pipe)
        return child.close()

    def close(self) -> None:
        """End all processes, in the middle of a cell if need be."""
        for slot in list(self._children):
            self.kill(slot)
        self._selector.close()


def run_cells(pipe: Pipe) -> None:
    """Run in a worker process: run cells, one after the other, until the parent ends."""
    from orsched.planning.study.cell import execute

    while True:
        pipe.send(json.dumps(execute(pipe.receive())))
