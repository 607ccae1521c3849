"""Run work that may hang, or overrun its own time limit, and kill it at a deadline.

A solver can overrun its own time limit, hold the interpreter or run out of memory. In a child
process it streams what it finds, and the parent ends it when time is up: what was streamed by then
is kept.
"""

from __future__ import annotations

import contextlib
import pickle
import select
import threading
import traceback
from dataclasses import dataclass
from importlib import import_module
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from orsched.common.errors import OrschedError
from orsched.common.subprocess_call import Child, polled

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.common.subprocess_call import Pipe

Reason = Literal["finished", "deadline", "stopped", "interrupted", "died"]

_LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True)
class ChildOutcome:
    """How a child's work ended: ``value`` is what it returned, ``detail`` why it died.

    ``deadline``: ended by the parent in time; ``stopped``: ``on_message`` returned True;
    ``interrupted``: Ctrl-C in the parent; ``died``: the child ended without a word, for example for
    want of memory.
    """

    reason: Reason
    value: Any = None
    detail: str = ""


def run_in_child(
    target: Callable[[Any, Callable[[Any], None]], Any],
    payload: Any,
    deadline_s: float | None,
    on_message: Callable[[Any], object] | None = None,
) -> ChildOutcome:
    """Run ``target(payload, send)`` in a child process and return how it ended.

    The target is a function at the top level of an importable module; whatever it passes to
    ``send`` arrives at ``on_message`` in order, in this thread, also what was under way when the
    child ended; returning True ends the child, as ``deadline_s`` seconds from this call do.

    What the child raises is raised here: an ``OrschedError`` as it is, anything else as a
    ``RuntimeError`` with the child's traceback. Ctrl-C here ends the child and is *not* raised
    again: the reason says ``interrupted``.
    """
    end = inf if deadline_s is None else perf_counter() + deadline_s
    hear = on_message or (lambda _: None)
    try:
        child = Child("orsched.models.killable_call:answer_call")
    except KeyboardInterrupt:  # a child that was started ends with its pipe
        return ChildOutcome("interrupted")
    try:
        return _call(child, (f"{target.__module__}:{target.__qualname__}", payload), end, hear)
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            return _ended(child, hear, ChildOutcome("interrupted"))
        return ChildOutcome("interrupted")
    finally:
        child.close()


def _call(
    child: Child, job: tuple[str, Any], end: float, on_message: Callable[[Any], object]
) -> ChildOutcome:
    """Pass messages on until the child finishes, dies or must end."""
    try:
        child.pipe.send(job, end - perf_counter())
    except TimeoutError:
        return ChildOutcome("deadline")
    except OSError:
        return _died(child)
    while (left := end - perf_counter()) > 0:
        try:
            message = child.receive()
        except EOFError:
            return _died(child)
        if message is None:
            polled(child.pipe, select.POLLIN, min(left, _LONGEST_WAIT_S))
        elif (outcome := _outcome(message, on_message)) is not None:
            return outcome
    return _ended(child, on_message, ChildOutcome("deadline"))


def _ended(
    child: Child, on_message: Callable[[Any], object], outcome: ChildOutcome
) -> ChildOutcome:
    """End the child; what it had sent by then may be that it finished."""
    child.kill()
    with contextlib.suppress(EOFError):
        while (message := child.receive()) is not None:
            if (better := _outcome(message, on_message)) is not None:
                return better if outcome.reason == "deadline" else outcome
    return outcome


def _died(child: Child) -> ChildOutcome:
    return ChildOutcome("died", detail=f"the child process ended with {child.wait()}")


def _outcome(message: tuple[str, Any], on_message: Callable[[Any], object]) -> ChildOutcome | None:
    """Pass a message on; return what it means for the call, if it ends it."""
    kind, value = message
    if kind == "done":
        return ChildOutcome("finished", value)
    if kind == "raised":
        raise value if isinstance(value, OrschedError) else RuntimeError(value)
    return ChildOutcome("stopped") if on_message(value) is True else None


def answer_call(pipe: Pipe) -> None:
    """Run in the child: read target and payload, call it and answer."""
    name, payload = pipe.receive()
    lock = threading.Lock()  # solvers call back from threads of their own

    def answer(kind: str, value: Any) -> None:
        with lock:
            pipe.send((kind, value))

    module, _, attribute = name.partition(":")
    try:
        value = getattr(import_module(module), attribute)(payload, lambda v: answer("message", v))
        answer("done", value)
    except OrschedError as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # it cannot travel: its text does
            error = OrschedError(str(error))
        answer("raised", error)
    except Exception:
        answer("raised", f"in a child process:\n{traceback.format_exc()}")
