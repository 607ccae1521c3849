"""``tune``: which setting serves these requests best, and how far any could get."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from time import monotonic
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, PolicyError, TimeLimitError, known_names
from orsched.common.units import NS_PER_S
from orsched.files.text import require_known
from orsched.instances.arrivals import read_arrivals
from orsched.planning.capacity.answer import deadline_of
from orsched.planning.capacity.proof import Proof, weights_of
from orsched.planning.capacity.question import ASKED, Given, read_question
from orsched.planning.capacity.search import Evaluation, OutOfTimeError
from orsched.planning.study.drive import Store
from orsched.planning.study.pools import read_processes
from orsched.planning.tuning.race import Race, Trial
from orsched.planning.tuning.space import Setting, Space
from orsched.solving.method_choice import read_spec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.calibration.intervals import Interval
    from orsched.data.instance import Instance

OBJECTIVES = ("attainment", "goodput", "rate")
_FIXED = (
    "parameters", "information", "split", "seed", "criterion", "failures", "autoscale", "schedule",
)  # fmt: skip
_FEWEST_RUNS, _LEAST = 24, Fraction(1, 10**6)
_STEP = 32  # rates are 2 ** (1 / 32) apart: 2 %


@dataclass(frozen=True)
class Tuning:
    """What ``tune`` found.

    Attributes:
        objective, best: ``attainment``, ``goodput`` or ``rate``; the best setting on the trace.
        default, gain: the engine as shipped, if it ran; the best's paired difference to it (95 %).
        rivals: the settings that cannot be told from the best at 95 % for all together.
        trials, axes: all settings that ran on the whole, the best first; the values of each knob.
        bound, certificate: what no setting exceeds or None, for ``rate`` a rate that none keeps;
            ``proof_violations`` verifies it.
        rate: for ``rate``: ``kept_per_s``, and ``lost_per_s``, the next that is not kept.
        runs, budget, grid: whole traces that were run and allowed; settings of the full grid.
        ran, failed: simulations of this call; settings that failed, each with the reason.
        termination, notes: ``finished`` or ``time_limit``; remarks.
    """

    objective: str
    best: Trial
    default: Trial | None
    gain: Interval | None
    rivals: tuple[Trial, ...]
    trials: tuple[Trial, ...]
    axes: dict[str, tuple[Any, ...]]
    bound: float | None
    certificate: dict[str, Any] | None
    rate: dict[str, float | None] | None
    runs: float
    budget: int
    grid: int
    ran: int
    failed: dict[str, str]
    termination: str
    notes: tuple[str, ...] = ()


def tune(
    instance: Instance,
    policies: str | Sequence[str] = "vllm",
    *,
    search: Mapping[str, Sequence[Any]] | None = None,
    maximise: str = "attainment",
    runs: int | None = None,
    seed: int = 0,
    **asked: Any,
) -> Tuning:
    """Return the setting of an engine that keeps limits best, its rivals, and a proven bound.

    The page *Choose flags* explains knobs, search and answer. Every schedule is checked. Equal
    arguments give equal results on any number of processes.

    Args:
        instance: the requests, on a worker.
        policies: specifications of methods, one or several: ``vllm``, ``gittins@predicted``.
        search: values by knob: ``clients``, ``workers`` (numbers, or splits such as ``1P1D:free``)
            and parameters of the policies; default: the usual ones.
        maximise: ``attainment``, ``goodput`` (within limits, per second and GPU), or ``rate``, the
            highest at which the attainment is that of the argument.
        runs: whole traces to simulate at most (default: a tenth of the grid, at least 24).
        seed: of the first trace, of windows and of starts.
        asked: limits, ``attainment``, traces, ``machines`` (priced in GPUs), processes and
            ``folder``: the attributes of ``orsched.planning.capacity.Given``.

    Raises ``InputError`` for a wrong argument, ``PolicyError`` where every setting failed,
    ``TimeLimitError`` where none was done in time.

    >>> case = orsched.Instance(orsched.Requests([50] * 40, [30] * 40), orsched.Worker(clients=4))
    >>> found = orsched.tune(case, search={"clients": [2, 4]}, arrivals="poisson:rate=4",
    ...     replications=1, slo_ttft=2, runs=4, jobs=1)
    >>> found.best.value <= found.bound
    True
    """
    require_known(asked, "", [name for name in ASKED if name not in _FIXED])
    if maximise not in OBJECTIVES:
        remedy = known_names(maximise, OBJECTIVES)
        raise InputError(f"unknown objective {maximise!r}", field="maximise", remedy=remedy)
    specs = [policies] if isinstance(policies, str) else list(policies)
    given = _given(instance, specs, {"seed": seed, **asked})
    space = Space(read_question(given), specs, search or {})
    question = space.question
    grid = sum(1 for _ in space.settings())
    usual = max(_FEWEST_RUNS, -(-grid // 10)) * len(question.seeds)
    budget = usual if runs is None else whole_number(runs, "runs", minimum=1)
    deadline = deadline_of(monotonic(), given.time_limit)
    processes = read_processes(given.jobs, given.cluster, given.ray_address)
    say = given.callback
    with ExitStack() as stack:
        kept = given.folder or stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(Store(kept))
        evaluation = stack.enter_context(
            Evaluation(
                question, store, processes, deadline,
                lambda _, ran, of: say(f"simulating settings: {ran} of {of} runs"),
            )
        )  # fmt: skip
        tuner = _Tuner(space, evaluation, maximise, budget, seed)
        ended = tuner.run()
    say("proving")
    return tuner.answer(grid, ended)


def _given(instance: Instance, policies: Sequence[str], asked: Mapping[str, Any]) -> Given:
    if not policies:
        raise InputError("no policy is given", field="policies", remedy="e.g. vllm")
    spec = read_spec(policies[0], "policies")
    return Given(instance, spec.name, spec.parameters, spec.information, **asked)


class _Tuner:
    """Races at one rate of arrivals, or at several until the highest that is kept is found."""

    def __init__(
        self, space: Space, evaluation: Evaluation, maximise: str, budget: int, seed: int
    ) -> None:
        self.space, self.evaluation, self.maximise = space, evaluation, maximise
        self.budget, self.seed, self.question = budget, seed, space.question
        self.races: dict[int, Race] = {}
        self.kept: int | None = None
        self.lost: int | None = None
        self.race = self._race_at(0)

    def _arrivals(self, step: int) -> str | None:
        if self.maximise != "rate":
            return self.question.arrivals
        return at_scale(self.question.arrivals, 2 ** (step / _STEP), self.question.instance)

    def _race_at(self, step: int) -> Race:
        """Return the race at a rate, in steps from the given one."""
        if step not in self.races:
            goodput, arrivals = self.maximise == "goodput", self._arrivals(step)
            self.races[step] = Race(self.space, self.evaluation, goodput, self.budget, arrivals)
        return self.races[step]

    def run(self) -> str:
        """Race until the budget or the time is spent; return how it ended."""
        try:
            if self.maximise == "rate":
                self._run_rate()
            else:
                self.race.run(self.seed)
        except OutOfTimeError:
            if not self.race.finished():
                raise TimeLimitError("the time limit ended before a setting was done") from None
            return "time_limit"
        return "finished"

    def _run_rate(self) -> None:
        """Race at the given rate, then where the best no longer keeps its limits."""
        step = 0
        for _ in range(2):
            race = self._race_at(step)
            race.runs = race.spent + Fraction(2 * self.budget, 5)
            race.run(self.seed)
            race.runs = Fraction(self.budget)
            if not race.finished():
                return
            kept, lost = self._edge_of(race.finished()[0], step)
            if self.kept is None or (kept is not None and kept > self.kept):
                self.kept, self.lost = kept, lost
                self.race = race if kept is None else self._race_at(kept)
            if lost is None or lost == step:
                break
            step = lost
        tried = [setting for race in self.races.values() for setting in race.finished()]
        self.race.try_on(tried, self.race.whole)

    def _keeps(self, setting: Setting, step: int) -> bool:
        race = self._race_at(step)
        done = race.try_on([setting], race.whole)
        return bool(done) and race.value(setting, race.whole)[0] >= self.question.attainment

    def _edge_of(self, setting: Setting, step: int) -> tuple[int | None, int | None]:
        """Return the highest rate that a setting keeps, and the next that it does not, in steps."""
        kept: int | None = None
        lost: int | None = None
        at, by = step, 4
        while kept is None or lost is None:
            if abs(at) > 8 * _STEP:
                return kept, lost
            if self._keeps(setting, at):
                kept, at = at, at + by
            else:
                lost, at = at, at - by
            by *= 2
        while lost - kept > 1:
            middle = (kept + lost) // 2
            kept, lost = (middle, lost) if self._keeps(setting, middle) else (kept, middle)
        return kept, lost

    def answer(self, grid: int, ended: str) -> Tuning:
        """Return what was found; raises ``PolicyError`` where every setting failed."""
        race, finished, races = self.race, self.race.finished(), self.races.values()
        failed = {str(r.seen[values]): why for r in races for values, why in r.failed.items()}
        if not finished:
            raise PolicyError(next(iter(failed.values()), "no setting ran: raise runs (--runs)"))
        default = next((s for s in finished if s == self.space.default), None)
        bound, certificate, note = self._proven()
        edge = {"kept_per_s": self.kept, "lost_per_s": self.lost}
        rates = {name: None if at is None else self._per_s(at) for name, at in edge.items()}
        return Tuning(
            self.maximise, race.trial(finished[0]),
            None if default is None else race.trial(default),
            None if default is None else race.paired(finished[0], default, race.whole),
            tuple(map(race.trial, race.rivals())), tuple(map(race.trial, finished)),
            self.space.axes, bound, certificate, rates if self.maximise == "rate" else None,
            float(sum(each.spent for each in races)), self.budget, grid,
            self.evaluation.ran, failed, ended, (note,) if note else (),
        )  # fmt: skip

    def _proven(self) -> tuple[float | None, dict[str, Any] | None, str]:
        """Return what no setting exceeds with its certificate, or why nothing is proven.

        For goodput: the most requests of the largest fleet, over the time until the last arrival
        and the price of the smallest. For ``rate``: a rate at which none keeps the attainment.
        """
        if self.maximise == "rate":
            return self._impossible()
        share, proof, least = self._most(self.race.arrivals)
        if share is None:
            return None, None, f"no bound is proven: {proof.unproven}"
        if self.maximise != "goodput":
            return float(share), proof.certificate, ""
        question = proof.question
        traces = [question.trace(seed) for seed in question.seeds]
        last = sum(int(trace.requests.arrival_ns.max()) for trace in traces)
        if not last:
            return None, None, "no bound is proven: all requests arrive at 0"
        counted = sum(len(question.limits(trace)) for trace in traces)
        return float(share) * counted * NS_PER_S / last / least, proof.certificate, ""

    def _impossible(self) -> tuple[float | None, dict[str, Any] | None, str]:
        """Return the lowest rate found, to 4 %, at which no setting keeps the attainment."""
        low, by, high, certificate = self.lost, 8, None, None
        while low is not None and (high is None or high - low > 2):
            at = low + by if high is None else (low + high) // 2
            if at > 8 * _STEP or self.evaluation.out_of_time():
                break
            share, proof, _ = self._most(self._arrivals(at))
            if share is None:
                return None, None, f"no bound is proven: {proof.unproven}"
            if share < self.question.attainment:
                high, certificate = at, proof.certificate
            else:
                low, by = at, 2 * by
        if high is None:
            return None, None, "no bound is proven: at each rate tried some setting may suffice"
        return self._per_s(high), certificate, ""

    def _most(self, arrivals: str | None) -> tuple[Fraction | None, Proof, float]:
        """Return the share that no setting exceeds, its proof, and the least price of a fleet."""
        kinds = self.space.kinds()
        question = replace(self.question, machines=kinds, attainment=_LEAST, arrivals=arrivals)
        workers, weights = [machine.worker for machine in kinds], weights_of(question)
        speed, least = 0, float("inf")
        for each in self.space.settings():
            both = [workers.index(replace(m.worker, role="both")) for m in each.question.machines]
            own = sum(n * weights[k] for n, k in zip(each.fleet, both, strict=True))
            speed, least = max(speed, own), min(least, each.price)
        proof = Proof(question)
        return proof.most_attained(speed, self.evaluation.out_of_time), proof, float(least)

    def _per_s(self, step: int) -> float:
        question = replace(self.question, arrivals=self._arrivals(step))
        arrival = question.trace(question.seeds[0]).requests.arrival_ns
        return (len(arrival) - 1) * NS_PER_S / max(1, int(arrival.max() - arrival.min()))


def at_scale(spec: str | None, scale: float, instance: Instance) -> str:
    """Return arrivals so many times as fast; ``InputError`` for laws without a rate."""
    law: Any = read_arrivals("replay" if spec is None else spec)
    for name in ("rate", "scale"):
        value = getattr(law, name, None)
        if value is not None and (law.law != "replay" or instance.requests.arrival_ns.any()):
            return str(replace(law, **{name: value * scale}).spec())
    remedy = "give arrivals with a rate, such as poisson:rate=3"
    raise InputError(f"{law.law} has no rate to change", field="arrivals", remedy=remedy)
