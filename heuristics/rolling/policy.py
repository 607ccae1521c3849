"""The rolling policy: it follows the plan that is ready, and a derived gate when none is."""

from __future__ import annotations

from concurrent.futures import CancelledError
from time import perf_counter_ns
from typing import TYPE_CHECKING

from orsched.errors import InputError
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.rolling.background import Planner
from orsched.heuristics.rolling.drift import Drift
from orsched.heuristics.rolling.following import Follower
from orsched.heuristics.rolling.snapshot import Snapshot
from orsched.heuristics.rolling.waiting import Copy, WaitingRequests
from orsched.heuristics.shadow_price import ShadowPrice, within_memory
from orsched.policy import Information
from orsched.step import FINISH, Step, decode_rounds, prefill_stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from orsched.heuristics.rolling.background import Plan
    from orsched.heuristics.rolling.params import RollingParams
    from orsched.policy import View

_SECOND = 10**9
_NEARLY_ALL = 0.95
"""A plan is for all clients if memory holds requests for this share of them: what does not fit when
it should start is late."""
_FALLBACK = GatedParams("shared", "longest", gate="shadow_price")


class RollingPolicy(GatedPolicy):
    """Longest first under the gate ``shadow_price``, or a plan of the window model while one holds.

    At intervals it takes a snapshot of what runs and what waits, for which a plan is made in the
    background. The plan is followed from ``planning_time`` after the snapshot on.

    Attributes:
        joined_ns: wall-clock time that decisions have waited for plans (none in live use).
        followed: plans that were followed.
    """

    def __init__(
        self, params: RollingParams, information: Information, seed: int = 0, name: str = "rolling"
    ) -> None:
        if information is Information.NONE:
            raise InputError("rolling plans need predicted or clairvoyant lengths", field="method")
        super().__init__(_FALLBACK, information, name)
        self.rolling, self.seed = params, seed
        self.planner: Planner | None = None

    def start(self, view: View) -> None:
        """Set up the queue, and the planner with its process."""
        super().start(view)
        assert isinstance(self.gate, ShadowPrice)
        assert self.lengths is not None
        stage_ns, round_ns = self.gate.stage_ns, self.gate.round_ns
        clients = view.worker.clients
        self.waiting = self.queues = WaitingRequests()
        self.copy = Copy()
        self.drift = Drift()
        budget = stage_ns * clients / max(1, round_ns)
        self.plan = Follower(self.waiting, self.drift, clients, budget)
        self.future: Future[Plan] | None = None
        self.base = self.ready_ns = self.next_ns = 0
        self.made = self.followed = self.joined_ns = 0
        self.limit = view.output_limit_tokens
        self.first = int(view.first_token == "prefill")
        if stage_ns and round_ns and self.planner is None:
            self.planner = Planner(self.rolling.background)

    def close(self) -> None:
        """End what runs in the background; safe to call twice."""
        if self.planner is not None:
            self.planner.close()

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Mark the client idle, and note whether it was in time."""
        super().on_finish(view, request, client)
        self.drift.finish(view.rounds, request)

    def decide(self, view: View) -> Step | None:
        """Follow the plan, or the gate; take up a plan that is ready, have another one made."""
        if self.future is not None and view.now_ns >= self.ready_ns and view.rounds >= self.base:
            self._take_up(view)
        step = self._follow(view) if self.plan.stages else None
        if step is None:
            step = super().decide(view)
            if step is not None and step.prefill:
                self._note_start(view, step.prefill)
        if step is None or step.prefill:
            return step
        self._consider_snapshot(view)
        left = self.base - view.rounds
        if self.future is not None and 0 < left < step.rounds:
            return step._replace(rounds=left)
        return step

    def _follow(self, view: View) -> Step | None:
        """Return the next step of the plan; None where it says nothing."""
        idle, now = len(self.idle), view.rounds
        rounds = self.plan.rounds_left(now, idle)
        if rounds and view.running:
            return decode_rounds(rounds, FINISH)
        if not idle:
            return decode_rounds(1)
        chosen = self.plan.choose(now if rounds == 0 else self.plan.stages[-1].round, idle)
        stage = self._fitting(view, chosen)
        if not stage:
            return decode_rounds(1) if view.running else None
        places = sorted(self.idle)[: len(stage)]
        self.waiting.take(stage)
        self.queued_tokens -= sum(map(view.prompt_tokens.__getitem__, stage))
        self.idle.difference_update(places)
        self.gate.stage_taken(view)
        if self.listener is not None:
            self.listener.started(view, stage)
        self._note_start(view, stage)
        self.plan.reset(now)
        return prefill_stage(stage, places)

    def _fitting(self, view: View, chosen: Sequence[int]) -> list[int]:
        """Return those that fit into cap and memory; the others are late."""
        tokens, blocks = view.worker.prefill_limit, view.blocks_free
        if tokens is None and blocks is None:
            return list(chosen)
        stage: list[int] = []
        for request in chosen:
            prompt = view.prompt_tokens[request]
            need = 0 if blocks is None else view.blocks_of(request)
            if (tokens is not None and prompt > tokens) or (blocks is not None and need > blocks):
                self.plan.postpone(request)
                continue
            tokens = None if tokens is None else tokens - prompt
            blocks = None if blocks is None else blocks - need
            stage.append(request)
        return stage

    def _note_start(self, view: View, stage: Sequence[int]) -> None:
        assert self.lengths is not None
        length, limit, first = self.lengths.__getitem__, self.limit, self.first
        rounds = [max(1, min(length(request), limit) - first) for request in stage]
        self.drift.start(view.rounds, stage, rounds)

    def _take_up(self, view: View) -> None:
        """Follow the plan that was made, if it is there; a simulation waits for it."""
        future, self.future = self.future, None
        assert future is not None
        if not future.done() and not self.rolling.wait:
            future.cancel()
            return
        assert isinstance(self.gate, ShadowPrice)
        if not self.gate.proven(view, self.rolling.tolerance):
            self.plan.drop()
            return
        before = perf_counter_ns()
        try:
            stages, planned, spare = future.result()
        except CancelledError:
            return
        self.joined_ns += perf_counter_ns() - before
        if stages:
            self.copy.retire(future, self.plan.stages, self.waiting.planned)
            self.plan.adopt(stages, planned, spare, view.rounds)
            self.followed += 1

    def _consider_snapshot(self, view: View) -> None:
        """Have a plan made if it is time, and if enough wait.

        While arrivals are expected, a plan for fewer requests than clients would let stages wait
        for an end that is not one.
        """
        if self.planner is None or self.future is not None or view.now_ns < self.next_ns:
            return
        assert isinstance(self.gate, ShadowPrice)
        enough = view.worker.clients if self.gate.expected_arrivals(view) > 0 else 2
        params = self.rolling
        if self.waiting.queued < enough or not self.gate.proven(view, params.tolerance):
            return
        planning_ns = round(params.planning_time * _SECOND)
        active = len(view.running)
        one_round = max(1, view.worker.cost.round_ns(active, active, 1))
        self.base = view.rounds + -(-planning_ns // one_round)
        self.ready_ns = view.now_ns + planning_ns
        self.next_ns = view.now_ns + round(params.interval * _SECOND)
        self.made += 1
        self.future = self.planner.submit(
            self._snapshot(view), params.iterations, self.seed * 1_000_003 + self.made
        )

    def _snapshot(self, view: View) -> Snapshot:
        """Copy what changes; the rest is worked out in the background."""
        assert isinstance(self.gate, ShadowPrice)
        assert self.lengths is not None
        clients = view.worker.clients
        _, held = within_memory(view, len(self.idle))
        if held < clients * _NEARLY_ALL:
            clients = held
        self.copy.hand_over(self.waiting.snapshot())
        return Snapshot(
            view.rounds, self.base, self.drift.end.copy(), self.drift.begin.copy(),
            len(self.idle), clients, self.copy, self.plan.owed(), self.lengths,
            view.prompt_tokens, self.limit, self.first, self.gate.stage_ns, self.gate.round_ns,
            view.worker.prefill_limit, self.rolling.horizon,
        )  # fmt: skip
