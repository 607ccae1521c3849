"""Worker processes on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
from typing import Any

from orsched.subprocess_call import interpreter

_CHUNK = 1 << 16

Answer = tuple[int, dict[str, Any] | None, str]
"""Slot, record, "" of a finished cell; or slot, None, how its process ended."""


class LocalPool:
    """Processes in slots 0, 1, ...; each runs one cell at a time.

    A process is a fresh interpreter that never imports the caller's ``__main__``, so scripts need
    no guard. Ctrl-C reaches the parent alone.
    """

    where = "local"

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, _Process] = {}

    def submit(self, slot: int, task: dict[str, Any]) -> None:
        """Give a cell to a slot, whose process is started when there is none."""
        if slot not in self._processes:
            process = _Process()
            self._processes[slot] = process
            self._selector.register(process.reading, selectors.EVENT_READ, slot)
        self._processes[slot].send(task)

    def wait(self, timeout_s: float) -> list[Answer]:
        """Return what has happened within some seconds."""
        answers: list[Answer] = []
        for key, _ in self._selector.select(timeout_s):
            process = self._processes[key.data]
            data = os.read(process.reading, _CHUNK)
            process.buffer += data
            if not data:
                answers.append((key.data, None, self._bury(key.data)))
            elif process.buffer.endswith(b"\n"):  # one cell at a time: one line at a time
                answers.append((key.data, json.loads(process.buffer), ""))
                process.buffer.clear()
        return answers

    def kill(self, slot: int) -> None:
        """End the process of a slot now."""
        self._bury(slot, kill=True)

    def _bury(self, slot: int, *, kill: bool = False) -> str:
        process = self._processes.pop(slot)
        self._selector.unregister(process.reading)
        return process.end(kill=kill)

    def close(self) -> None:
        """End all processes, in the middle of a cell if need be."""
        for slot in list(self._processes):
            self.kill(slot)
        self._selector.close()


class _Process:
    """A worker process with the pipe on which it answers."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        self.buffer = bytearray()
        try:
            self.process = subprocess.Popen(
                interpreter("orsched.study.serve:serve", writing),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self.reading)
            raise
        finally:
            os.close(writing)

    def send(self, task: dict[str, Any]) -> None:
        """Pass a cell on; a process that is gone is noticed when its pipe ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(task).encode() + b"\n")
            self.process.stdin.flush()

    def end(self, *, kill: bool) -> str:
        """Wait for the end of the process and say how it came."""
        if kill:
            self.process.kill()
        code = self.process.wait()
        os.close(self.reading)
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
