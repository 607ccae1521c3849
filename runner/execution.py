"""``run``: a schedule or a policy on real workers, and the trace of it."""

from __future__ import annotations

import gc
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from orsched.checker import check
from orsched.common.columns import whole_number
from orsched.common.units import NS_PER_S
from orsched.data.instance import say_unused
from orsched.data.schedule import Schedule
from orsched.runner.loop.interrupts import finishing
from orsched.runner.loop.live import execute_policy
from orsched.runner.open_lengths import require_live, require_tokens, with_open_lengths
from orsched.runner.policy_source import policy_source, source_of_rest
from orsched.runner.resuming import rest_of
from orsched.runner.tracing import Clocked, measured_trace
from orsched.runner.worker_pool import RunSettings, require_fit, worker_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from orsched.checker import Violation
    from orsched.data.instance import Instance
    from orsched.data.step import Step
    from orsched.runner.loop.live import Executed
    from orsched.runner.policy_source import PolicySource
    from orsched.runner.worker_pool import WorkerPool
    from orsched.simulator.policy import Policy, View
    from orsched.solving.methods import Method, Progress


@dataclass(frozen=True)
class RunResult:
    """What ``run`` returns.

    Attributes:
        instance: the instance that was run, with the lengths that came out.
        trace: a schedule with measured times, up to where the run was stopped.
        plan: the planned schedule, with the times of the cost model; None for runs that were
            stopped or resumed, or with lengths known in the run only.
        tokens: tokens that each request yielded in this run (empty on a virtual worker).
        violations: what the checker found in the trace; nothing, unless there is a bug.
        stopped: why the run ended before all requests were done; empty if it did not.
    """

    instance: Instance
    trace: Schedule
    plan: Schedule | None
    tokens: list[list[int]] = field(repr=False)
    violations: list[Violation]
    stopped: str = ""


def run(
    instance: Instance,
    source: Schedule | str | Method | Policy | type[Policy],
    settings: RunSettings | None = None,
    *,
    seed: int = 0,
    information: str | None = None,
    parameters: dict[str, Any] | None = None,
    iterations: int | None = None,
    time_limit: float | None = None,
    gap: float | None = None,
    callback: Callable[[Progress], None] | None = None,
    say: Callable[[str], None] | None = None,
    resume: Schedule | None = None,
    end_of_sequence: Collection[int] = (),
) -> RunResult:
    """Execute a schedule, or let a policy decide live, on real workers.

    Every request yields as many tokens as the instance says, from a prompt drawn at random; a
    policy sees of these lengths what its information grants. Before time 0 the workers take warm-up
    steps, which do not count. After Ctrl-C the trace holds the work done until then.

    Args:
        instance: the problem.
        source: a schedule for it, or what ``solve`` takes as a method: a name, ``module:Class``, a
            method or a policy object. Methods that are policies decide live; for the others a
            schedule is made first and followed.
        settings: what executes; default: the model ``tiny`` on torch.
        seed: of the method, of the prompts and of random weights.
        information, parameters, iterations, time_limit, gap, callback: of the method, as in
            ``solve``.
        say: called with a description of each stage of the work.
        resume: the trace of a stopped run of this instance; the rest of it is run, and both parts
            form one trace. With a schedule as ``source``: of a run of that schedule, whose rest
            follows ``plan_of_rest``.
        end_of_sequence: tokens that end a request; none: it yields as many as the instance says.
            With them lengths are known in the run only, up to the output limit, and the trace
            belongs to an instance of its own, which is returned.

    Raises:
        InputError: an argument is wrong, the requests do not fit onto the worker, or a method that
            plans beforehand is to find out lengths.
        MissingDependencyError: torch is missing, and the worker is not ``virtual``.
        PolicyError: the policy asked for an impossible step.
    """
    seed, settings = whole_number(seed, "seed"), settings or RunSettings()
    begin, tell = perf_counter(), say or _nobody
    say_unused(instance)
    tell("looking at the worker")
    if end_of_sequence:
        instance = with_open_lengths(instance, source, settings, resume)
        require_tokens(end_of_sequence, settings)
    require_fit(instance, settings)
    rest = None if resume is None else rest_of(instance, resume, source, settings)
    seed = seed if rest is None else rest.seed
    problem = instance if rest is None else rest.instance
    tell("planning")
    if rest is not None and isinstance(source, Schedule):
        resolved = source_of_rest(instance, source, rest.rest)
    else:
        resolved = policy_source(
            problem, source, seed, information, parameters, callback, iterations, time_limit, gap
        )
    planned = perf_counter()
    if end_of_sequence:
        require_live(resolved)
    tell("loading the workers")
    workers = worker_pool(problem, resolved, settings, seed)
    loaded = perf_counter()
    prompts = None if rest is None else rest.prompts(workers.vocabulary)
    with ExitStack() as end:
        done = _execute(problem, resolved, workers, seed, prompts, end_of_sequence, tell, end)
        if end_of_sequence:
            instance = done.instance
        spent = Clocked(planned - begin, loaded - planned, perf_counter() - loaded)
        tell("checking")
        timeline = done.schedule.replace(seed=resolved.plan.seed, parameters=resolved.parameters)
        if rest is not None:
            timeline = rest.merged(timeline)
        trace = measured_trace(instance, timeline, done, resolved, workers, seed, spent)
        whole = rest is None and not trace.is_partial and not end_of_sequence
        found = check(instance, trace, times="measured")
        plan = resolved.plan if whole else None
        return RunResult(instance, trace, plan, done.tokens, found, done.stopped)


def _execute(
    instance: Instance,
    resolved: PolicySource,
    workers: WorkerPool,
    seed: int,
    prompts: list[list[int]] | None,
    end_of_sequence: Collection[int],
    tell: Callable[[str], None],
    end: ExitStack,
) -> Executed:
    """Let the policy drive the workers, which end with the run; ``end`` covers what comes after."""
    watching = nullcontext() if workers.watch is None else workers.watch
    with closing(workers), watching, _undisturbed():
        done = execute_policy(
            instance,
            resolved.policy,
            workers.devices,
            seed,
            workers.vocabulary,
            _observer(tell, len(resolved.plan.steps)),
            prompts=prompts,
            end_of_sequence=end_of_sequence or None,
        )
        end.enter_context(finishing(done.stopped))
        return done


def _nobody(_: str) -> None:
    """Ignore the message."""


def _observer(say: Callable[[str], None], planned: int) -> Callable[[View, Step], None]:
    """Return what tells how far the run is, before each step."""
    steps = 0

    def observe(view: View, step: Step) -> None:
        nonlocal steps
        steps += 1
        seconds = view.now_ns / NS_PER_S
        say(f"running: {seconds:.1f} s, step {steps:,} ({planned:,} are planned)")

    return observe


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the garbage collector from walking through all of torch in the middle of a run."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
