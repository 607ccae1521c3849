"""``run``: a schedule or a policy on real workers, and the trace of it."""

from __future__ import annotations

import gc
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from orsched.calibration.runs import gaps_ns
from orsched.checker import check
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.common.versions import environment
from orsched.data.instance import say_unused
from orsched.data.schedule import Schedule
from orsched.metrics.flat_figures import ratio
from orsched.metrics.summary import distribution, summarise
from orsched.metrics.timeline import Timeline
from orsched.models.bounds.bounds import Bound, bound_for
from orsched.runner.capacity import model_shape
from orsched.runner.devices.device import WorkerLostError
from orsched.runner.loop.live import execute_policy, require_known
from orsched.runner.loop.live_loop import finishing
from orsched.runner.policy_source import MethodOptions, policy_source, rest_of, source_of_rest
from orsched.runner.speed import Reference
from orsched.runner.worker_pool import RunSettings, require_fit, worker_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from orsched.checker import Violation
    from orsched.data.instance import Instance
    from orsched.data.step import Step
    from orsched.runner.loop.live import Executed
    from orsched.runner.policy_source import PolicySource, Resumed, Source
    from orsched.runner.speed import Speed
    from orsched.runner.worker_pool import WorkerPool
    from orsched.simulator.policy import View


class Clocked(NamedTuple):
    """Seconds spent on planning, on loading the workers, and on the run."""

    plan: float
    load: float
    run: float


_OF_RUNS = ("events", "complete", "unfinished")


def measured_trace(
    instance: Instance,
    timeline: Schedule,
    block: dict[str, Any],
    resolved: PolicySource,
    workers: WorkerPool,
) -> Schedule:
    """Return a run as a trace with a ``run`` block; one that was stopped reports no numbers."""
    block |= {name: timeline.run[name] for name in _OF_RUNS if name in timeline.run}
    block["environment"] = environment(("torch", "transformers"))
    trace = timeline.replace(run=block)
    block |= use_of_devices(instance, trace)
    if workers.watch is not None:
        block |= workers.watch.summary(instance, trace)
    if trace.is_partial:
        return trace
    trace = trace.replace(bound=_bound(instance, resolved.whole or resolved.plan, trace))
    return trace.replace(results=summarise(instance, trace))


def use_of_devices(instance: Instance, trace: Schedule) -> dict[str, Any]:
    """Return how busy the devices were, and the gaps between their steps.

    ``busy_share`` is the time in steps over workers times makespan. A gap is the time from the end
    of a worker's step, or from the arrival of all that the next step prefills if that is later, to
    the start of the next: waiting for requests does not count, waiting for a decision does.
    """
    line = Timeline(instance, trace)
    gaps = gaps_ns(instance, line)
    busy, whole = int(line.time_before[-1]), len(instance.workers) * trace.makespan_ns
    spread, total = distribution(gaps), int(gaps.sum())
    return {
        "busy_share": ratio(busy, whole),
        "gap_share": ratio(total, whole),
        "gap_ns": None if spread is None else {"count": len(gaps), "total": total, **spread},
    }


def _bound(instance: Instance, plan: Schedule, trace: Schedule) -> dict[str, Any] | None:
    """Return the plan's bound; None where a run beats it: the device is faster than the model."""
    if plan.bound is None or plan.instance_sha256 != instance.sha256:
        return None
    found = bound_for(instance, trace, Bound(**plan.bound, reference={}))
    if found is None or found.value_ns > trace.makespan_ns:
        return None
    return found.to_dict()


def with_open_lengths(
    instance: Instance, source: object, settings: RunSettings, resume: Schedule | None
) -> Instance:
    """Return an instance in which each request may yield up to the output limit."""
    for wrong, problem in (
        (isinstance(source, Schedule), "a schedule says how many tokens each request yields"),
        (resume is not None, "a run that is resumed has the lengths of its instance"),
        (settings.worker == "virtual", "a virtual worker yields no tokens"),
    ):
        if wrong:
            raise InputError(problem, field="end_of_sequence", remedy="leave it out")
    most = np.full(len(instance), instance.output_limit_tokens, np.int64)
    return instance.replace(requests=instance.requests.replace(output_tokens=most))


def require_tokens(tokens: Collection[int], vocabulary: int) -> None:
    """Raise ``InputError`` for a token that the model never yields."""
    for token in tokens:
        whole_number(token, "end_of_sequence", maximum=vocabulary - 1)


def require_live(resolved: PolicySource) -> None:
    """Raise ``InputError`` unless a policy decides as it goes."""
    if resolved.follows:
        raise InputError(
            f"{resolved.plan.method} plans beforehand with lengths that are not known",
            field="end_of_sequence",
            remedy="take a policy with information none or predicted",
        )


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
    source: Source,
    settings: RunSettings | None = None,
    *,
    say: Callable[[str], None] | None = None,
    resume: Schedule | None = None,
    end_of_sequence: Collection[int] = (),
    **options: Unpack[MethodOptions],
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
        say: called with a description of each stage of the work.
        resume: the trace of a stopped run of this instance; the rest of it is run, and both parts
            form one trace. With a schedule as ``source``: of a run of that schedule, whose rest
            follows ``plan_of_rest``.
        end_of_sequence: tokens that end a request; none: it yields as many as the instance says.
            With them lengths are known in the run only, up to the output limit, and the trace
            belongs to an instance of its own, which is returned.
        options: ``seed`` of the method, of the prompts and of random weights; ``information``,
            ``parameters``, ``iterations``, ``time_limit``, ``gap`` and ``callback`` of the method,
            as in ``solve``.

    Raises:
        InputError: an argument is wrong, the requests do not fit onto the worker, or a method that
            plans beforehand is to find out lengths.
        MissingDependencyError: torch is missing, and the worker is not ``virtual``.
        PolicyError: the policy asked for an impossible step.
    """
    require_known(options, MethodOptions)
    seed = whole_number(options.get("seed", 0), "seed")
    settings, ends = settings or RunSettings(), tuple(end_of_sequence)
    job = _Job(instance, settings, ends, say or (lambda _: None))
    job.prepare(source, resume, seed, options)
    return job.execute()


class _Job:
    """A run from the first look at its arguments to its result."""

    def __init__(
        self,
        instance: Instance,
        settings: RunSettings,
        ends: Collection[int],
        tell: Callable[[str], None],
    ) -> None:
        self.instance, self.settings, self.ends, self.tell = instance, settings, ends, tell
        self.begin = perf_counter()
        self.rest: Resumed | None = None

    def prepare(
        self, source: Source, resume: Schedule | None, seed: int, options: MethodOptions
    ) -> None:
        """Refuse what cannot be run, and plan."""
        say_unused(self.instance)
        self.tell("looking at the worker")
        if self.ends:
            self.instance = with_open_lengths(self.instance, source, self.settings, resume)
            if self.settings.worker == "torch":  # before anything is loaded
                require_tokens(self.ends, model_shape(self.settings.model).vocabulary)
        instance, settings = self.instance, self.settings
        require_fit(instance, settings)
        if resume is not None:
            self.rest = rest_of(instance, resume, source, settings)
        rest = self.rest
        self.seed = seed if rest is None else rest.seed
        self.problem = instance if rest is None else rest.instance
        self.tell("planning")
        if rest is not None and isinstance(source, Schedule):
            self.resolved = source_of_rest(instance, source, rest.rest)
        else:
            self.resolved = policy_source(self.problem, source, **options | {"seed": self.seed})
        self.planned = perf_counter()
        if self.ends:
            require_live(self.resolved)

    def execute(self) -> RunResult:
        """Run it, and check what came of it."""
        rest, resolved = self.rest, self.resolved
        self.tell("loading the workers")
        plan, follows = resolved.plan, resolved.follows
        workers = worker_pool(self.problem, self.settings, plan, follows, self.seed)
        loaded = perf_counter()
        with ExitStack() as end:
            done = self._drive(workers, end)
            instance = done.instance if self.ends else self.instance
            times = self.planned - self.begin, loaded - self.planned, perf_counter() - loaded
            self.tell("checking")
            timeline = done.schedule.replace(seed=plan.seed, parameters=resolved.parameters)
            if rest is not None:
                timeline = rest.merged(timeline)
            block = self._block(done, workers, Clocked(*times))
            trace = measured_trace(instance, timeline, block, resolved, workers)
            whole = rest is None and not trace.is_partial and not self.ends
            found = check(instance, trace, times="measured")
            shown = plan if whole else None
            return RunResult(instance, trace, shown, done.tokens, found, done.stopped)

    def _drive(self, workers: WorkerPool, end: ExitStack) -> Executed:
        """Let the policy drive the workers, which end with the run; ``end`` is for what follows."""
        watching = nullcontext() if workers.watch is None else workers.watch
        prompts = None if self.rest is None else self.rest.prompts(workers.vocabulary)
        usual = self.settings.calibrated
        with closing(workers), watching, _undisturbed(), _drift(workers, usual) as reference:
            observer = _observer(self.tell, len(self.resolved.plan.steps), reference)
            require_tokens(self.ends, workers.vocabulary)
            done = execute_policy(
                self.problem,
                self.resolved.policy,
                workers.devices,
                self.seed,
                workers.vocabulary,
                observer,
                prompts=prompts,
                end_of_sequence=self.ends or None,
            )
            end.enter_context(finishing(done.stopped))
            return done

    def _block(self, done: Executed, workers: WorkerPool, spent: Clocked) -> dict[str, Any]:
        """Return what the trace's ``run`` says of the run itself."""
        names = dict.fromkeys(device.name for device in workers.devices)
        clocks = dict.fromkeys(device.clock for device in workers.devices)
        decisions = distribution(done.decision_ns)
        if decisions is not None:
            decisions = {"count": len(done.decision_ns), **decisions}
        return {
            "device": ", ".join(names),
            "clock": ", ".join(clocks),
            **workers.about,
            "seed": self.seed,
            "decision_ns": decisions,
            "runtime_s": spent._asdict(),
            "plan": self.resolved.noted(),
        }


def _observer(
    say: Callable[[str], None], planned: int, reference: Reference | None
) -> Callable[[View, Step], None]:
    """Return what tells how far the run is, before each step, and looks at the machine's speed."""
    steps = 0

    def observe(view: View, step: Step) -> None:
        nonlocal steps
        steps += 1
        seconds = view.now_ns / NS_PER_S
        say(f"running: {seconds:.1f} s, step {steps:,} ({planned:,} are planned)")
        if reference is not None:
            reference.due_in_run()

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


@contextmanager
def _drift(workers: WorkerPool, usual: Speed | None) -> Iterator[Reference | None]:
    """Look at the machine's speed before and after a run, and note how it is off the usual one."""
    if usual is None:
        yield None
        return
    device = workers.devices[0]
    reference = Reference(device, device.slots - 1, usual)
    reference.look()
    yield reference
    with suppress(WorkerLostError):  # it is not known then
        reference.look()
        workers.about["speed"] = usual.beside(reference.speed())
