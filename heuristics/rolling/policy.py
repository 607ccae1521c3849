"""The rolling policy: it follows the plan that is ready, and a derived gate when none is."""

from __future__ import annotations

from bisect import bisect_right
from concurrent.futures import CancelledError
from itertools import accumulate
from math import inf
from operator import itemgetter
from time import perf_counter_ns
from typing import TYPE_CHECKING

from orsched.errors import InputError
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.long_lengths import long_lengths
from orsched.heuristics.rolling.background import Planner
from orsched.heuristics.rolling.drift import Drift
from orsched.heuristics.rolling.following import Follower
from orsched.heuristics.rolling.snapshot import Running, Snapshot
from orsched.heuristics.rolling.waiting import Copy, WaitingRequests
from orsched.heuristics.shadow_price import ShadowPrice, within_memory
from orsched.policy import SHORT_WAIT_NS, Information
from orsched.step import FINISH, Step, decode_rounds, prefill_stage

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from orsched.heuristics.rolling.params import RollingParams
    from orsched.heuristics.rolling.snapshot import Plan
    from orsched.policy import View

_SECOND = 10**9
_UNLIMITED = 2**62
_NEARLY_ALL = 0.95
"""A plan is for all clients if memory holds requests for this share of them: what does not fit when
it should start is late."""
_SEARCHED = 0.85
"""Share of the time for a plan, where nothing waits for it, that the search may take."""
_UNSETTLED = 3
"""Stages of which drift is not told yet; the rest is told when there is time."""
_FALLBACK = GatedParams("shared", "longest", gate="shadow_price")


class RollingPolicy(GatedPolicy):
    """Longest first under the gate ``shadow_price``, or a plan of the window model while one holds.

    At intervals it takes a snapshot of what runs and what waits, for which a plan is made in the
    background. The plan is followed from ``planning_time`` after the snapshot on.

    Where distributions are predicted, order and plans are made for their 0.9 quantiles; the gate,
    and the proof that predictions are right, go by the predicted length, as they do without.

    Attributes:
        followed: plans that were followed.
        seconds_left: how long it may wait for plans yet; when that ends, no more are made.
        ended_ns: when, on the run's clock, the time for plans ended, or None.
        took_ns: wall-clock time that each plan took to make.
    """

    def __init__(
        self, params: RollingParams, information: Information, seed: int = 0, name: str = "rolling"
    ) -> None:
        if information is Information.NONE:
            raise InputError("rolling plans need predicted or clairvoyant lengths", field="method")
        super().__init__(_FALLBACK, information, name)
        self.rolling, self.seed = params, seed
        self.planner: Planner | None = None
        self.seconds_left: Callable[[], float] = lambda: inf
        self.took_ns: list[int] = []

    def start(self, view: View) -> None:
        """Set up the queue, and the planner with its process."""
        super().start(view)
        self.long = long_lengths(view)
        if self.long is not None:
            self.lengths = self.long
        assert self.lengths is not None
        self.gate = self.listener = self.price = ShadowPrice()
        self.price.start(view)
        stage_ns, round_ns = self.price.stage_ns, self.price.round_ns
        clients = view.worker.clients
        self.waiting = self.queues = WaitingRequests()
        self.copy = Copy()
        self.limit = view.output_limit_tokens
        self.first = int(view.first_token == "prefill")
        self.drift = Drift(self.lengths, self.limit, self.first)
        budget = stage_ns * clients / max(1, round_ns)
        self.plan = Follower(self.waiting, self.drift, clients, budget)
        self.future: Future[Plan] | None = None
        self.base = self.ready_ns = self.next_ns = 0
        self.made = self.followed = 0
        self.waits = not self.live if self.rolling.wait is None else self.rolling.wait
        self.search_s = inf if self.waits else self.rolling.planning_time * _SEARCHED
        self.put_off = False
        self.ended_ns: int | None = None
        if stage_ns and round_ns and self.planner is None:
            self.planner = Planner(self.rolling.background)
            self.took_ns = self.planner.took_ns

    def close(self) -> None:
        """End what runs in the background; safe to call twice."""
        if self.planner is not None:
            self.planner.close()

    def decide(self, view: View) -> Step | None:
        """Follow the plan, or the gate; take up a plan that is ready, have another one made."""
        self.drift.settle(but=_UNSETTLED)
        ready = view.now_ns >= self.ready_ns and view.rounds >= self.base
        busy = taking_up = self.future is not None and ready
        if taking_up:
            self._take_up(view)
        unsettled = self.drift.unsettled
        step = self._follow(view) if self.plan.stages else None
        if step is None:
            busy = True
            step = super().decide(view)
            if step is not None and step.prefill:
                self.drift.start(view.rounds, step.prefill)
        if step is None or step.prefill:
            return step
        busy = busy or (unsettled and not self.drift.unsettled)
        if taking_up:
            self.plan.check()
        if self._considered_snapshot(view, busy):
            step = decode_rounds(1)
        elif not busy:
            self._catch_up()
        left = self.base - view.rounds
        if self.future is not None and 0 < left < step.rounds:
            return step._replace(rounds=left)
        return step

    def _considered_snapshot(self, view: View, busy: bool) -> bool:
        """Have a plan made if it is time; return whether it is put off by a round.

        It is, once, in a decision that has had enough to do.
        """
        if self.planner is None or self.future is not None or view.now_ns < self.next_ns:
            return False
        if busy and not self.put_off:
            self.put_off = True
            return True
        self._have_plan_made(view)
        return False

    def _catch_up(self) -> None:
        """Do one thing that was put off, in a decision that has time for it."""
        if self.drift.unsettled:
            self.drift.settle()
        elif self.price.unsettled:
            self.price.settle(1)
        else:
            self.plan.check()

    def _follow(self, view: View) -> Step | None:
        """Return the next step of the plan; None where it says nothing."""
        idle, now = len(self.idle), view.rounds
        rounds = self.plan.rounds_left(now, idle)
        if rounds and view.running:
            return decode_rounds(rounds, FINISH)
        if not idle:
            return decode_rounds(1)
        moment = now if rounds == 0 else self.plan.stages[-1].round
        chosen = self.plan.choose(moment, idle, self._likely_to_fit(idle))
        stage, tokens = self._fitting(view, chosen)
        if not stage:
            return decode_rounds(1) if view.running else None
        places = self.idle[: len(stage)]
        del self.idle[: len(stage)]
        self.waiting.take(stage)
        self.queued_tokens -= tokens
        self.price.stage_taken(view)
        self.price.started(view, stage)
        whole = self.plan.whole
        known = whole.rounds if whole is not None and len(stage) == len(whole.rounds) else ()
        self.drift.start(now, stage, known)
        self.plan.reset(now)
        return prefill_stage(stage, places)

    def _likely_to_fit(self, idle: int) -> int:
        """Return how many requests to try for a stage: half more than fit by the mean prompt."""
        cap, waiting = self.prefill_limit, self.waiting.queued
        return idle if cap is None else 1 + 3 * cap * waiting // max(1, 2 * self.queued_tokens)

    def _fitting(self, view: View, chosen: list[int]) -> tuple[list[int], int]:
        """Return those that fit into cap and memory, and their tokens; the others are late."""
        whole, room = self.plan.whole, view.blocks_free
        cap = _UNLIMITED if self.prefill_limit is None else self.prefill_limit
        if whole is not None and room is None and whole.tokens <= cap:
            return chosen, whole.tokens
        column = view.prompt_tokens
        prompts = itemgetter(*chosen)(column) if len(chosen) > 1 else [column[r] for r in chosen]
        tokens = sum(prompts)
        blocks = [0] * len(chosen) if room is None else list(map(view.blocks_of, chosen))
        room = 0 if room is None else room
        if tokens <= cap and sum(blocks) <= room:
            return chosen, tokens
        first = bisect_right(list(accumulate(prompts)), cap)
        first = min(first, bisect_right(list(accumulate(blocks)), room))
        stage, late = chosen[:first], []
        left = cap - sum(prompts[:first])
        room -= sum(blocks[:first])
        for at in range(first, len(chosen)):
            if prompts[at] > left or blocks[at] > room:
                late.append(chosen[at])
            else:
                left -= prompts[at]
                room -= blocks[at]
                stage.append(chosen[at])
        self.plan.postpone(late)
        return stage, cap - left

    def _take_up(self, view: View) -> None:
        """Follow the plan that was made, if it is there; a simulation waits for it."""
        future, self.future = self.future, None
        assert future is not None
        if not future.done() and not self.waits:
            future.cancel()
            return
        if not self.price.proven(view, self.rolling.tolerance):
            self.waiting.retire(future)
            self.plan.drop()
            return
        try:
            plan = future.result(0) if future.done() else self._awaited(future)
        except CancelledError:
            return
        except TimeoutError:  # the gate decides the rest
            self.close()
            self.planner, self.ended_ns = None, view.now_ns
            self.plan.drop()
            return
        if plan.stages:
            self.plan.adopt(plan, view.rounds)
            self.followed += 1

    def _awaited(self, future: Future[Plan]) -> Plan:
        """Wait for a plan."""
        before, left = perf_counter_ns(), self.seconds_left()
        try:
            return future.result(None if left == inf else max(0.0, left))
        finally:
            waited = perf_counter_ns() - before
            if waited >= SHORT_WAIT_NS:
                self.waited_ns += waited

    def _have_plan_made(self, view: View) -> None:
        """Take a snapshot, if enough wait.

        While arrivals are expected, a plan for fewer requests than clients would let stages wait
        for an end that is not one.
        """
        assert self.planner is not None
        enough = view.worker.clients if self.price.expected_arrivals(view) > 0 else 2
        params = self.rolling
        if self.waiting.queued < enough or not self.price.proven(view, params.tolerance):
            return
        self.put_off = False
        planning_ns = round(params.planning_time * _SECOND)
        active = len(view.running)
        one_round = max(1, view.worker.cost.round_ns(active, active, 1))
        self.base = view.rounds + -(-planning_ns // one_round)
        self.ready_ns = view.now_ns + planning_ns
        self.next_ns = view.now_ns + round(params.interval * _SECOND)
        self.made += 1
        self.future = self.planner.submit(
            self._snapshot(view),
            params.iterations,
            self.seed * 1_000_003 + self.made,
            self.search_s,
        )

    def _snapshot(self, view: View) -> Snapshot:
        """Copy what changes; the rest is worked out in the background."""
        assert self.lengths is not None
        clients = view.worker.clients
        _, held = within_memory(view, len(self.idle))
        if held < clients * _NEARLY_ALL:
            clients = held
        self.copy.hand_over(self.waiting.snapshot())
        return Snapshot(
            view.rounds, self.base, Running(*self.price.running()), len(self.idle), clients,
            self.copy, self.plan.owed(), self.lengths, view.prompt_tokens, self.limit, self.first,
            self.price.stage_ns, self.price.round_ns, view.worker.prefill_limit,
            self.rolling.horizon,
        )  # fmt: skip
