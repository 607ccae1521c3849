"""The compact model: stages are places on an axis of rounds, requests intervals of a fixed length.

Clients are interchangeable and a request decodes in every round from its prefill on. So a plan is
a place for each stage, counted in rounds, and a stage for each request, which then is on a client
for as many rounds as it needs. It fits where at no place more than J intervals lie: the windows of
``WindowsMip`` without their n K^2 / 2 columns. Each arrival bounds the end by all that is done from
its request's stage on.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from orsched.models.exact_search.stage_plan import Plan, plan_times
from orsched.models.full_mip.linear_solvers import cp_model, search_cpsat

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.models.exact_search.stage_plan import Problem


class IntervalModel:
    """The model of a problem with at most ``stages`` stages, in CP-SAT.

    ``before[i][k]``: request i is prefilled before stage k; ``at[k]``: rounds before stage k, and
    ``level[k][l]``: it is prefilled at level l; ``start[i]``: rounds before request i's first one;
    ``end``: all rounds. ``least``: a known bound on the objective.
    """

    name = "intervals"

    def __init__(self, problem: Problem, stages: int, least: int | None = None) -> None:
        self.problem, self.stages = problem, stages
        self.cp = cp = cp_model().CpModel()
        self.most = most = sum(problem.needed)
        n, bins, levels = range(len(problem)), range(stages), range(len(problem.levels))
        self.at = [cp.new_int_var(0, most if k else 0, f"at_{k}") for k in bins]
        self.end = cp.new_int_var(problem.most_rounds, most, "end")
        self.start = [cp.new_int_var(0, most, f"start_{i}") for i in n]
        sides = [(int(k == stages), int(k > 0)) for k in range(stages + 1)]
        self.before = [[cp.new_int_var(*side, f"b_{i}") for side in sides] for i in n]
        self.level = [[cp.new_bool_var(f"y_{k}_{number}") for number in levels] for k in bins]
        self.makespan = cp.new_int_var(least or 0, problem.horizon(stages), "makespan")
        for rows in (self._requests, self._stages, self._clients, self._symmetry):
            rows()
        tokens = problem.prompt_token * sum(problem.prompts) + problem.round_client * most
        work = sum(self._time_of(k) for k in bins) + problem.round_fixed * self.end + tokens
        cp.add(self.makespan >= work)
        (self._arrivals if any(problem.arrivals) else self._places)()
        cp.minimize(self.makespan)

    def _in(self, i: int, k: int) -> Any:
        """Return whether request i is prefilled in stage k, as a sum."""
        return self.before[i][k + 1] - self.before[i][k]

    def _requests(self) -> None:
        """Add that a request starts at its stage and ends by the end."""
        cp = self.cp
        for i, due in enumerate(self.problem.needed):
            cp.add(self.start[i] + due <= self.end)
            for k in range(self.stages):
                earlier, now = self.before[i][k], self.before[i][k + 1]
                cp.add(earlier <= now)
                cp.add(self.start[i] >= self.at[k]).only_enforce_if(~earlier)
                cp.add(self.start[i] <= self.at[k]).only_enforce_if(now)

    def _stages(self) -> None:
        """Add levels and their prompts; used stages come first and are in order."""
        cp, problem, n = self.cp, self.problem, range(len(self.problem))
        bins = max(-(-len(problem) // problem.clients),
                   -(-sum(problem.prompts) // problem.levels[-1][0]))  # fmt: skip
        cp.add(sum(sum(each) for each in self.level) >= bins)
        cp.add(problem.clients * self.end >= self.most)
        for k in range(self.stages):
            cp.add_at_most_one(self.level[k])
            cp.add(self.at[k] == self.end).only_enforce_if([~column for column in self.level[k]])
            used = sum(self.level[k])
            caps = zip(self.level[k], problem.levels, strict=True)
            room = sum(size * column for column, (size, _) in caps)
            cp.add(sum(problem.prompts[i] * self._in(i, k) for i in n) <= room)
            cp.add(sum(self._in(i, k) for i in n) >= used)
            cp.add(sum(self._in(i, k) for i in n) <= problem.clients * used)
            if k:
                cp.add(self.at[k] >= self.at[k - 1])
                cp.add(used <= sum(self.level[k - 1]))

    def _clients(self) -> None:
        """Add that clients and memory hold what lies at any place. A request without rounds holds
        its own in its stage alone, so that stages are counted one by one where there are some."""
        cp, problem = self.cp, self.problem
        lasting = [i for i, due in enumerate(problem.needed) if due]
        short = [i for i, due in enumerate(problem.needed) if not due]
        spans = [cp.new_fixed_size_interval_var(self.start[i], problem.needed[i], f"on_{i}")
                 for i in lasting]  # fmt: skip
        limits = [([1] * len(problem), problem.clients)]
        if problem.memory_blocks is not None:
            limits.append((list(problem.blocks), problem.memory_blocks))
        for held, most in limits:
            cp.add_cumulative(spans, [held[i] for i in lasting], most)
        for k in range(self.stages if short else 0):
            on = {i: cp.new_bool_var(f"on_{i}_{k}") for i in lasting}
            for i, here in on.items():
                ended = self.start[i] + problem.needed[i] <= self.at[k]
                cp.add(ended).only_enforce_if(self.before[i][k + 1], ~here)
            for held, most in limits:
                inside = sum(held[i] * here for i, here in on.items())
                cp.add(inside + sum(held[i] * self._in(i, k) for i in short) <= most)

    def _symmetry(self) -> None:
        """Add that equal requests are prefilled in the order of their rows."""
        problem = self.problem
        last: dict[Any, int] = {}
        columns = (problem.prompts, problem.needed, problem.blocks, problem.arrivals)
        for i, kind in enumerate(zip(*columns, strict=True)):
            if kind in last:
                for k in range(self.stages):
                    self.cp.add(self.before[i][k] <= self.before[last[kind]][k])
            last[kind] = i

    def _places(self) -> None:
        """Add, without arrivals, that a stage is where a request ends, or where the one before it
        is. If no request ends at its place, all that are on clients a round earlier are still on
        them there, and fit beside the stage: it can move a round to the front, and nothing ends
        later. Two stages at one place are merged where no cap and no request without rounds parts
        them."""
        cp, problem = self.cp, self.problem
        merged = len(problem.levels) == 1 and sum(problem.prompts) <= problem.levels[0][0]
        merged = merged and all(problem.needed)
        for k in range(1, self.stages):
            ends = [cp.new_bool_var(f"ends_{i}_{k}") for i in range(len(problem))]
            for i, here in enumerate(ends):
                cp.add_implication(here, self.before[i][k])
                cp.add(self.at[k] == self.start[i] + problem.needed[i]).only_enforce_if(here)
            if not merged:
                ends.append(cp.new_bool_var(f"same_{k}"))
                cp.add(self.at[k] == self.at[k - 1]).only_enforce_if(ends[-1])
            for used in self.level[k]:
                cp.add_bool_or(ends).only_enforce_if(used)
                if merged:
                    cp.add(self.at[k] > self.at[k - 1]).only_enforce_if(used)

    def _arrivals(self) -> None:
        """Add that the end comes no earlier than each arrival and all that is done from the stage
        of the request on: the longest way to the end begins at some arrival."""
        cp, problem, n = self.cp, self.problem, range(len(self.problem))
        for k in range(self.stages):
            left = sum(self._time_of(m) for m in range(k, self.stages))
            left += problem.round_fixed * (self.end - self.at[k])
            if problem.prompt_token:
                later = (problem.prompts[i] * (1 - self.before[i][k]) for i in n)
                left += problem.prompt_token * sum(later)
            if problem.round_client:
                done = sum(self._done(i, k) for i in n) if k else 0
                left += problem.round_client * (self.most - done)
            for i in n:
                if problem.arrivals[i]:
                    late = self.makespan >= problem.arrivals[i] + left
                    cp.add(late).only_enforce_if(self.before[i][k + 1])

    def _done(self, i: int, k: int) -> Any:
        """Return a variable of at most the rounds that request i has had before stage k."""
        due = self.problem.needed[i]
        done = self.cp.new_int_var(0, due, f"done_{i}_{k}")
        self.cp.add(done <= due * self.before[i][k])
        self.cp.add(done <= self.at[k] - self.start[i]).only_enforce_if(self.before[i][k])
        return done

    def _time_of(self, k: int) -> Any:
        """Return the time of the prefill in stage k, without that of its tokens."""
        times = zip(self.level[k], self.problem.levels, strict=True)
        return sum(time * column for column, (_, time) in times)

    def begin_at(self, plan: Plan) -> None:
        """Begin the search at a plan, and look for nothing that ends later."""
        *_, start, length = plan_times(self.problem, plan)[-1]
        self.cp.add(self.makespan <= start + length)
        rounds = [*plan.rounds, *[0] * (self.stages - len(plan.rounds))]
        at = [sum(rounds[:k]) for k in range(self.stages)]
        add = self.cp.add_hint
        for k, place in enumerate(at):
            add(self.at[k], place)
        add(self.end, sum(rounds))
        for i, stage in enumerate(plan.stage):
            add(self.start[i], at[stage])
            for k in range(self.stages + 1):
                add(self.before[i][k], int(stage < k))

    def plan_of(self, value: Callable[[Any], int]) -> Plan:
        """Return the plan in a solution."""
        stage = tuple(sum(1 - value(b) for b in row[1:]) for row in self.before)
        used = max(stage, default=0) + 1
        places = [*(value(column) for column in self.at[:used]), value(self.end)]
        rounds = tuple(later - now for now, later in pairwise(places))
        return Plan(stage, None, rounds)

    def solve(
        self, end: float | None, seed: int, send: Callable[[tuple[str, Any]], None]
    ) -> dict[str, Any]:
        """Solve on one thread; messages and figures as those of ``solve_here``."""
        return search_cpsat(
            self.cp,
            end,
            seed,
            lambda value, objective: send(("solution", (objective, self.plan_of(value), True))),
            lambda bound: send(("bound", bound)),
            linearization_level=0,  # relaxations of intervals say little, and take most of the time
        )
