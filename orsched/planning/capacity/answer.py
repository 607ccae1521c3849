"""``capacity``: how many workers do these requests need, how many cannot do."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, TimeLimitError
from orsched.common.own_code import is_own
from orsched.data.instance import refusal_note
from orsched.files.text import require_known
from orsched.planning.capacity.proof import Proof
from orsched.planning.capacity.question import (
    ASKED,
    MOST_WORKERS,
    Given,
    price_of,
    read_question,
)
from orsched.planning.capacity.schedule import least_schedule, read_windows
from orsched.planning.capacity.search import (
    FINISHED,
    INTERRUPTED,
    TIME_LIMIT,
    Capacity,
    Evaluation,
    OutOfTimeError,
    cheapest_fleet,
    fewest_workers,
)
from orsched.planning.capacity.simulation import with_fleet
from orsched.planning.study.drive import Store
from orsched.planning.study.pools import read_processes
from orsched.solving.method_choice import choose, method_info, require_fit

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.planning.capacity.question import Fleet, Question
    from orsched.planning.capacity.simulation import Estimate, Replicas, Windows
    from orsched.planning.study.pools import Processes


_LONGEST_S = 1e7


def capacity(
    instance: Instance,
    policy: str = "vllm",
    *,
    max_workers: int = MOST_WORKERS,
    exhaustive: bool = False,
    **asked: Any,
) -> Capacity:
    """Return the fewest workers, or the cheapest mix, that keep latency limits, and a proof.

    First, fleets that no policy could make suffice are excluded by proof. The others are simulated
    in parallel processes, with the same traces for all (common random numbers), every schedule is
    checked, and the fewest that suffice are found by bisection; the number below the answer has
    been simulated, or is excluded. Ctrl-C and the time limit give the best answer so far.

    Args:
        instance: the requests, on a worker.
        policy: a method's name or ``module:Class``.
        max_workers: the largest fleet that is tried.
        exhaustive: try all fleets in order of size or price, without bisection.
        asked: limits, ``attainment``, traces, machines, their ``split``, failures, processes and
            ``folder``: the attributes of ``orsched.planning.capacity.Given``.

    Raises:
        InputError: an argument is wrong, or no fleet up to ``max_workers`` suffices.
        InfeasibleError: no number of workers can keep the limits; names the first request that
            cannot, and why.
        PolicyError: the policy failed in a simulation.
        TimeLimitError: no fleet was found in time.

    >>> case = orsched.Instance(orsched.Requests([50] * 40, [30] * 40), orsched.Worker(clients=4))
    >>> found = orsched.capacity(case, "fcfs", slo_ttft=2, arrivals="poisson:rate=4", jobs=1)
    >>> found.lower_bound_workers <= found.workers
    True
    """
    begin = monotonic()
    require_known(asked, "", ASKED)
    given = Given(instance, policy, **asked)
    question = read_question(given)
    most = whole_number(max_workers, "max_workers", minimum=1, maximum=MOST_WORKERS)
    processes = read_processes(given.jobs, given.cluster, given.ray_address)
    deadline = deadline_of(begin, given.time_limit)
    windows = None if given.schedule is None else read_windows(given.schedule, question)
    effort = _Effort(begin, deadline, most, exhaustive, given.folder, processes, windows)
    return _answered(question, effort, given.callback)


class _Effort(NamedTuple):
    """How far and where a search goes: moments of ``monotonic``, workers of the largest fleet."""

    begin: float
    deadline: float | None
    most: int
    exhaustive: bool
    folder: str | os.PathLike[str] | None
    processes: Processes
    windows: Windows | None

    def proof_ends(self) -> bool:
        """Whether the third of the time that proofs get has passed."""
        if self.deadline is None:
            return False
        return monotonic() >= self.begin + (self.deadline - self.begin) / 3


def _answered(question: Question, effort: _Effort, say: Callable[[str], None]) -> Capacity:
    refused = _refused(question)
    _require_fit(question)
    proofs = {name: Proof(goal) for name, goal in question.goals.items()}
    proofs = proofs or {"attainment": Proof(question)}
    for each in proofs.values():
        each.run(effort.proof_ends, say)
    proof = max(proofs.values(), key=lambda each: each.lower_price())
    with ExitStack() as stack:
        kept = effort.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="orsched-"))
        store = stack.enter_context(Store(kept))
        evaluation = stack.enter_context(
            Evaluation(question, store, effort.processes, effort.deadline, _said(say))
        )
        found = _searched(evaluation, proof, effort)
    if found.best is None:
        raise _nothing(found.ended, evaluation, effort.most, refused)
    answer = _answer(proof, evaluation, found, found.best)
    lower = {name: each.lower_workers for name, each in proofs.items()}
    notes = (*refused, *answer.notes)
    return replace(answer, notes=notes, lower_bounds=lower, schedule=found.schedule)


class _Searched(NamedTuple):
    """What a search found before it ended, as ``Capacity`` has it."""

    best: Estimate | None
    ended: str
    shown: bool
    schedule: Replicas | None


def _searched(evaluation: Evaluation, proof: Proof, effort: _Effort) -> _Searched:
    """Return the smallest fleet that suffices, or the best so far once time or patience ends."""
    ended, best, shown, schedule = FINISHED, None, False, None
    most, exhaustive = effort.most, effort.exhaustive
    try:
        if len(evaluation.question.machines) == 1:
            best = fewest_workers(evaluation, proof.lower_workers, most, exhaustive)
        else:
            best = cheapest_fleet(evaluation, proof.is_too_small, most, exhaustive)
        shown = True
        if best is not None and effort.windows is not None:
            schedule = least_schedule(evaluation, best, effort.windows)
    except (OutOfTimeError, KeyboardInterrupt) as error:
        ended = INTERRUPTED if isinstance(error, KeyboardInterrupt) else TIME_LIMIT
        best = best or _best_so_far(evaluation)
        if best is None and ended == INTERRUPTED:
            raise KeyboardInterrupt from None
    return _Searched(best, ended, shown, schedule)


def deadline_of(begin: float, time_limit: float | None) -> float | None:
    """Return the moment at which a time limit ends; ``InputError`` if it is wrong."""
    if time_limit is None:
        return None
    number = isinstance(time_limit, (int, float)) and not isinstance(time_limit, bool)
    if not number or not time_limit > 0:
        raise InputError(
            f"{time_limit!r} is not a time limit", field="time_limit", remedy="seconds above 0"
        )
    return begin + min(time_limit, _LONGEST_S)


def _refused(question: Question) -> list[str]:
    """Return the remark on requests that fit onto no machine; ``InfeasibleError`` where all do."""
    return refusal_note(question.on_machines().admitted())


def _require_fit(question: Question) -> None:
    """Refuse a policy that does not serve fleets of such workers."""
    policy = question.policy
    if is_own(policy["name"]):  # its code runs in the processes of the simulations
        return
    chosen = choose(policy["name"], policy["information"], policy["parameters"], "policy")
    if getattr(chosen.method, "needs_roles", False) != question.has_roles:
        other = "workers that do both" if question.has_roles else "workers of different roles"
        raise InputError(
            f"{chosen.method.name} is for {other}",
            field="policy",
            remedy="take --split and disaggregated together, or neither",
        )
    if method_info(policy["name"]).workers == "one":
        raise InputError(
            f"{chosen.method.name} serves one worker, and capacity tries fleets of several",
            field="policy",
            remedy="choose one that serves several, such as vllm, gittins or fcfs",
        )
    one = ([1, machine.name, machine.worker.to_dict()] for machine in question.machines)
    served = with_fleet(question.on_machines().admitted(), one, question.scene.get("link"))
    for workers in [served.workers] if question.has_roles else [(w,) for w in served.workers]:
        require_fit(served.replace(workers=workers), chosen)


def _said(say: Callable[[str], None]) -> Callable[[Sequence[Fleet], int, int], None]:
    def note(fleets: Sequence[Fleet], ran: int, runs: int) -> None:
        sizes = ", ".join("+".join(map(str, fleet)) for fleet in fleets)
        say(f"simulating {sizes} workers: {ran} of {runs} runs")

    return note


def _best_so_far(evaluation: Evaluation) -> Estimate | None:
    machines = evaluation.question.machines
    found = [each for each in evaluation.known.values() if each.suffices]
    return min(found, key=lambda each: price_of(machines, each.fleet), default=None)


def _nothing(ended: str, evaluation: Evaluation, most: int, refused: list[str]) -> Exception:
    tried = sorted(evaluation.known.values(), key=lambda each: each.workers)
    last = "" if not tried else (
        f"; {tried[-1].workers} workers keep an attainment of {tried[-1].attainment:.4f}"
    )  # fmt: skip
    last = "; ".join((last, *refused))
    if ended == TIME_LIMIT:
        return TimeLimitError(f"the time limit ended before a fleet sufficed{last}")
    remedy = "raise it, loosen the limits, or choose another policy"
    if refused:
        remedy = "give workers more memory or lower the attainment, where the refused are too many"
    return InputError(
        f"no fleet of at most {most} workers suffices with this policy{last}",
        field="max_workers",
        remedy=remedy,
    )


def _answer(proof: Proof, evaluation: Evaluation, found: _Searched, best: Estimate) -> Capacity:
    question = evaluation.question
    machines, several = question.machines, len(question.machines) > 1
    notes = []
    if proof.unproven:
        notes.append(f"no lower bound above 1 is proven: {proof.unproven}")
    elif question.is_random:
        notes.append("the lower bound is of the traces that were drawn, on average")
    curve = sorted(evaluation.known.values(), key=lambda e: (price_of(machines, e.fleet), e.fleet))
    smaller = [e for e in curve if e.workers < best.workers and e.suffices]
    if smaller and not several:
        notes.append("attainment does not grow with the workers everywhere: see the curve")
    return Capacity(
        best.workers, proof.lower_workers, best, tuple(curve),
        tuple(machine.name for machine in machines),
        float(price_of(machines, best.fleet)) if several else None,
        float(proof.lower_price()) if several else None,
        float(question.attainment), question.confidence, question.criterion,
        best.bulk_tokens_per_s,
        evaluation.simulations, evaluation.ran, proof.certificate,
        found.ended, found.shown, tuple(notes),
    )  # fmt: skip
