"""One policy on real workers, in real time.

Rules, views and hooks are those of the simulator; only durations come from the device. A single
device in this process executes a step while the policy decides on the next one: when a step begins,
the host waits for the one before it only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, OrschedError
from orsched.runner.devices.device import AlwaysThere, WorkerLostError, start_together
from orsched.runner.loop.live_loop import LiveLoop
from orsched.runner.loop.live_worker import AT_ONCE, EndOfSequence, live
from orsched.runner.loop.resume import Prompts

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Collection, Mapping, Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.step import Step
    from orsched.runner.devices.device import Device
    from orsched.simulator.policy import Policy, View

__all__ = ["AT_ONCE", "MOST_LOSSES", "Executed", "execute_policy"]

MOST_LOSSES = 3
"""Losses of a worker in a row, without a step done, after which a run still continues."""


class Executed(NamedTuple):
    """What a run yields.

    Attributes:
        schedule: the timeline with the times of the devices; no results and bound yet. ``run`` has
            the ``events``; of a run that was stopped also ``complete`` (False), and ``unfinished``:
            what the requests that are not done have yielded, by row.
        planned_ns: time of each step by the cost model.
        decision_ns: wall-clock time of each call of ``decide``.
        tokens: what each request yielded (empty on a device that yields none).
        instance: the instance of the schedule: the one given, or with the lengths that came out
            (of requests that are not done: the most that they may yield).
        events: losses and returns of workers: ``time_ns``, ``worker``, ``what``, and for a loss
            ``reason``, ``message`` and the ``requests`` that lost their caches.
        stopped: why the run ended before all requests were done; empty if it did not.
    """

    schedule: Schedule
    planned_ns: IntColumn
    decision_ns: array[int]
    tokens: list[list[int]]
    instance: Instance
    events: list[dict[str, Any]]
    stopped: str


class LiveOptions(TypedDict, total=False):
    """What else a run on devices may be told.

    Attributes:
        prompts: the tokens of each prompt, where they are known.
        most_losses: of one worker in a row, without a step done, after which the run continues.
        end_of_sequence: tokens that end a request. Lengths are seen as they happen only; rounds
            are begun one by one.
        most_tokens: of each request, with ``end_of_sequence``; None: the output limit.
    """

    prompts: Sequence[Sequence[int]] | None
    most_losses: int
    end_of_sequence: int | Collection[int] | None
    most_tokens: Sequence[int] | None


def execute_policy(
    instance: Instance,
    policy: Policy,
    devices: Device | Sequence[Device],
    seed: int = 0,
    vocabulary: int = 2,
    observer: Callable[[View, Step], None] | None = None,
    **options: Unpack[LiveOptions],
) -> Executed:
    """Let a policy drive devices until every request is done.

    Each request yields as many tokens as the instance says or, with ``end_of_sequence``, up to such
    a token or the output limit. Its prompt is drawn at random, of tokens below ``vocabulary``.

    The step in which a worker is lost is undone, and all requests on it lose their caches, but not
    their yielded tokens. Each is reported to the policy by ``on_preempt``; without this hook the
    requests are prefilled again on their clients as soon as the worker is back. Meanwhile the other
    workers continue. Ctrl-C, and a worker that is lost repeatedly, end the run with the work done
    so far.

    Args:
        instance: the problem; its cost models give the planned times.
        policy: a fresh policy object.
        devices: what executes, one device for each worker.
        seed, vocabulary: of the prompts.
        observer: called with the view and the step before each step is taken.
        options: see ``LiveOptions``.

    Raises:
        InputError: there is not one device for each worker; a prompt's length is wrong; the policy
            is clairvoyant, or a device yields no tokens, and lengths are to turn out.
        PolicyError: as ``simulate_policy``.
        OrschedError: a worker was lost before the run began.
    """
    require_known(options, LiveOptions)
    listed: list[Any] = list(devices) if isinstance(devices, (list, tuple)) else [devices]
    if len(listed) != len(instance.workers):
        raise InputError(
            f"{len(listed)} devices for {len(instance.workers)} workers",
            field="devices",
            remedy="give one device for each worker",
        )
    tokens, ends = options.get("end_of_sequence"), None
    if tokens is not None:
        ends = EndOfSequence(tokens, instance, policy, listed, options.get("most_tokens"))
    problem = instance if ends is None else ends.open(instance)
    problem.require_steady("a run on real workers")
    problem.require_feasible(policy.chunks)
    most_losses = whole_number(options.get("most_losses", MOST_LOSSES), "most_losses")
    prompts = Prompts(instance, seed, vocabulary, options.get("prompts"))
    ahead = ends is None and _looks_ahead(listed)
    loop = LiveLoop(problem, policy, listed, prompts, ahead, most_losses, ends, observer)
    try:
        start_together(listed)
    except WorkerLostError as lost:
        raise OrschedError(f"a worker was lost before the run began: {lost.message}") from None
    done = loop.run()
    if ends is not None:
        instance = ends.open(instance)
    return _executed(instance, loop, done.schedule.replace(instance_sha256=instance.sha256))


def require_known(given: Mapping[str, Any], options: type) -> None:
    """Raise ``TypeError`` for an argument that is none of some options, as Python does."""
    for name in given:
        if name not in options.__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")


def _looks_ahead(devices: Sequence[Any]) -> bool:
    """Whether the effects of a step may be told before it is done: it will be, and soon."""
    kind = type(devices[0])
    restart = getattr(kind, "restart", None)
    there = restart is None or restart is AlwaysThere.restart
    return len(devices) == 1 and (there or getattr(devices[0], "looks_ahead", False))


def _executed(instance: Instance, loop: LiveLoop, schedule: Schedule) -> Executed:
    workers, prompts = live(loop.workers), live(loop.workers)[0].prompts
    planned = np.concatenate([np.array(w.measured.planned, np.int64) for w in workers])
    times = [np.array(w.measured.times, np.int64).reshape(-1, 2) for w in workers]
    starts = np.concatenate(times)[:, 0]
    where = np.repeat(np.arange(len(workers)), [len(each) for each in times])
    outputs = instance.requests.output_tokens.tolist()  # invalid tokens of static batches follow
    tokens = [prompts.yielded(request)[:most] for request, most in enumerate(outputs)]
    run: dict[str, Any] = {}
    if loop.events_told:
        run["events"] = loop.events_told
    if loop.stopped:
        left = [r for r in range(len(instance)) if r in loop.run_state.yielded and tokens[r]]
        run |= {"complete": False, "unfinished": {str(r): tokens[r] for r in left}}
    return Executed(
        schedule.replace(run=run),
        planned[np.lexsort((where, starts))],
        loop.decision_ns,
        tokens,
        instance,
        loop.events_told,
        loop.stopped,
    )
