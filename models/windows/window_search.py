"""The search over numbers of stages and ends: a schedule is asked for less.

The makespan of a state is estimated: its rounds, and prices of its stages by their starts; the
moves keep these below a budget. Which requests fill the stages is chosen for each state with
V = 0, and only then the makespan is known. What falls short by a few client-rounds gets rounds
where they help most, and is a schedule as well.

The first state is that of a heuristic's schedule. Short pilot runs at a shorter makespan find how
much of its excess should go into stages (more window lengths) and how much into rounds (slack);
the best pilot is annealed on, with rounds added until it is a schedule. A reduction asks for a
little less: other stages, and the end so much earlier that there is a gain; the best state is
annealed on, cooler, since only a few dozen client-rounds are missing. Reductions and temperatures
that succeed are tried more often; what fails gets more moves.

Attempts run in threads (the compiled moves hold no lock) and end when another has done better.
Without a time limit they run in rounds of as many as there are threads and are joined in order,
so that a seed reproduces its schedule.
"""

from __future__ import annotations

import math
import random
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import product
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.stop import CpuSeconds
from orsched.models.windows.moment_program import can_set_bases
from orsched.models.windows.moment_search import MomentSearch, Target
from orsched.models.windows.path_program import PathRepair
from orsched.models.windows.state_changes import (
    REDUCTIONS,
    AdaptiveWeights,
    aligned_times,
    anchored_times,
    construct,
    even_times,
    lengthened,
    merged,
    state_of,
    stretched,
    with_end,
)
from orsched.models.windows.window_requests import SWAPS_A_REQUEST, RequestSwaps, plan_of
from orsched.models.windows.window_state import Cooling, Task, anneal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.compiled_kernels import Kernels
    from orsched.models.windows.stage_prices import Terms
    from orsched.models.windows.state_changes import Reduction
    from orsched.models.windows.window_requests import PlannedStage
    from orsched.models.windows.window_state import Windows
    from orsched.solving.methods import Run

HOT, COLD = 3.0, 0.15
HOT_PRICES = 2.5
"""First states begin this many times as hot as the price of a start changes from one to the next:
or the numbers of starts would never change."""
WARMTHS = (0.5, 1.0, 2.0)
MOVES_A_REQUEST = 300
LEAST_MOVES = 400_000
MOVES_A_PAIR = 100
"""Moves of a run: by requests and clients, not below the least, but few for a handful."""
MOST_EFFORT, MORE_EFFORT = 150.0, 1.15
LONGEST_PART, PILOT_TIME, FEWEST_PART = 6, 0.25, 100
"""Under a time limit no run takes more than one part in LONGEST_PART of what is left, a first
state less by a factor; but a run makes one part in FEWEST_PART of the moves that it should."""
PILOTS_PAY = 12  # pilots are run once there is time for this many runs
MANY_SWAPS = 4_000  # under a time limit compiled swaps of requests are tried so often a request
LOADING_S = 0.25
"""A search ends so much earlier while the moves are being compiled, which slows down the rest."""
FAST_RATE, PLAIN_RATE = 1e6, 2e4
"""Moves a second that are expected before any are counted."""
PILOT_SHARES = (0.15, 0.25, 0.35, 0.45, 0.55, 0.7, 0.85, 0.0, 1.0)
"""Shares of the excess that pilots spend on stages."""
LONG_AIMS, LONG_STAGES, MORE_STAGES, LONG_PART = (0.1, 0.12), 1, 5, 0.3
"""First states that get a good part of the time: their excess over the first incumbent's, budget
and number of stages above the least ones, and that part."""
LEAST_FOR_MOMENTS_S = 15.0
"""The search over moments takes one of two or more threads if there are so many seconds."""
NEAR_STAGES = 2  # stages are squeezed out where that many less would be a shorter schedule
MOST_TO_REPAIR = 80  # client-rounds missing that the program over paths may make up for
COOL, SHORTER = 0.7, 4
"""With a round more they go on from this temperature, for one part in so many of the moves."""
FIRST_AIM, FIRST_GAINS = 0.25, 10
"""Excess of the pilots as a share of the incumbent's; how many first gains make up all of it."""
FRESH_AIMS = (0.6, 0.95)  # the same shares for new first states later on
PILOT_PART = 8  # a pilot makes one part in this many of the moves of a run
MOST_WAITING = 4
FEW_REQUESTS = 30
SHAKE = 4
"""Moves a request that are all kept at first, where the same state would come out again: from a
state that has what is asked for, and with few requests."""
MOST_ROUNDS, TOLERANCE, FEW_ROUNDS = 12, 1, 4
"""Most rounds put in where a state falls short, by how many above the best estimate, and most where
whole paths fall short of fractional ones."""
SHIFTS = (0, -1, -2, 1, 2)
"""Rounds by which a reduction moves the end, where it can change the price of stages instead."""
LAST = 3  # how many of the last states that were best are kept
LEAST_GAIN = 20_000  # the makespan over this is the least gain that reductions ask for


class Attempt(NamedTuple):
    """One annealing: the makespan it aimed at, and whether that is a schedule's now."""

    aim_ns: int
    success: bool


class Search:
    """The search on one instance."""

    def __init__(
        self,
        instance: Instance,
        terms: Terms,
        seed: int,
        run: Run,
        threads: int,
        fast: Kernels | None,
        follow: Callable[[list[PlannedStage]], int | None],
    ) -> None:
        """Take ``follow``: the makespan of a plan, or None where it cannot be carried out."""
        self.follow = follow
        self.instance, self.terms, self.seed = instance, terms, seed
        self.run, self.threads, self.fast = run, threads, fast
        self.rounds = run.stop.seconds_left == math.inf
        self.lengths = instance.rounds_needed
        self.longest = max(int(self.lengths.max()), 1)  # 0: every answer is a prefill's token
        self.few = len(self.lengths) <= FEW_REQUESTS
        self.rng = random.Random(seed)
        self.waiting: list[Task] = []
        self.made, self.ended, self.exhausted, self.piloted = 0, False, False, False
        ready = fast is not None and fast.module is not None
        self.rate = FAST_RATE if ready else PLAIN_RATE
        self.effort = 1.0
        self.shifts = AdaptiveWeights({str(s): s for s in SHIFTS})
        self.best: Windows | None = None
        self.best_ns = self.first_ns = 0
        self.own = False
        self.repair: PathRepair | None = None
        if not self.rounds and terms.prices.by_tokens and terms.stage_ns:
            prompts, clients = instance.requests.prompt_tokens, instance.worker.clients
            self.repair = PathRepair(self.lengths, prompts, clients, terms.prices)
        self.moments: MomentSearch | None = None
        timed = run.stop.seconds_left >= LEAST_FOR_MOMENTS_S
        if self.repair is not None and threads > 1 and timed and can_set_bases():
            self.moments = MomentSearch(self.repair.program, self.repair.full, terms, seed)
        self.moving: Future[Task | None] | None = None
        self.last: deque[Windows] = deque(maxlen=LAST)
        self.reductions = AdaptiveWeights(REDUCTIONS)
        bends = np.abs(np.diff(terms.prices.by_starts, 2))[1:]
        self.hot = max(HOT, HOT_PRICES * float(bends.mean()) if len(bends) else 0.0)
        warmths = (*WARMTHS, self.hot / 2) if self.hot > HOT else WARMTHS
        self.warmths = AdaptiveWeights({str(hot): hot for hot in warmths})

    def attempts(self, schedule: Schedule) -> Iterator[Attempt]:
        """Yield attempts to get below a schedule until time is out or nothing is left to gain."""
        self.best_ns = self.first_ns = schedule.makespan_ns
        self.own = self.piloted
        self.best = state_of(self.instance, schedule, self.terms)
        self.gain = max(self.least_gain, (self.best_ns - self.terms.least) // FIRST_GAINS)
        with ThreadPoolExecutor(self.threads) as pool:
            try:
                while not self._over() and not self.exhausted:
                    if self._pilots_pay():
                        yield from self._pilot(pool)
                    for task in self._run(pool, self._tasks()):
                        yield self._learn(task)
            finally:
                self.ended = True

    @property
    def _seconds_left(self) -> float:
        """Seconds that each thread has."""
        left = self.run.stop.seconds_left
        return left / self.threads if isinstance(left, CpuSeconds) else left

    def _pilots_pay(self) -> bool:
        """Return whether pilots are left to run, and time for them."""
        moves = self.rate * self._seconds_left
        return not self.piloted and (self.rounds or moves > PILOTS_PAY * self._moves_of_a_run)

    def _pilot(self, pool: ThreadPoolExecutor) -> Iterator[Attempt]:
        """Run pilots; queue the best ones for longer annealing, one for each thread. Yield what the
        search over moments finds meanwhile."""
        self.piloted = True
        pilots = []
        for task in self._run(pool, self._pilots(self._aim(FIRST_AIM))):
            if task.moments:
                yield self._learn(task)
            else:
                pilots.append(task)
        best = sorted(pilots, key=Task.lacking)[: self.threads]
        self.waiting += [self._longer(pilot) for pilot in best]
        if self.repair is not None:
            self.waiting += filter(None, map(self._long_first, range(self.threads)))

    @property
    def least_gain(self) -> int:
        """Least gain that is asked for."""
        return max(1, self.best_ns // LEAST_GAIN)

    def _run(self, pool: ThreadPoolExecutor, tasks: Iterator[Task]) -> Iterator[Task]:
        """Yield tasks as they are done, and draw others, until there are no more. The search over
        moments has a thread of its own."""
        running: list[Future[Task | None]] = []
        done: list[Future[Task | None]]
        drained = False
        while not self._over():
            moving = self._moving(pool)
            while len(running) + len(moving) < self.threads and not drained:
                task = next(tasks, None)
                if task is None:
                    drained = True
                    break
                self.made += 1
                rng = np.random.default_rng([self.seed, self.made])
                running.append(pool.submit(self._anneal, task, rng))
            if not running and (drained or not moving):
                return
            if self.rounds:
                done, running = [*running], []
            else:
                wait([*running, *moving], return_when=FIRST_COMPLETED)
                done = [future for future in [*moving, *running] if future.done()]
                running = [future for future in running if not future.done()]
            for future in done:
                task = future.result()
                if future is self.moving:
                    self.moving = None
                if task is not None:
                    yield task

    def _moving(self, pool: ThreadPoolExecutor) -> list[Future[Task | None]]:
        """Return the call of the search over moments that is under way, if there are any."""
        if self.moments is None or (self.moving is None and self.moments.exhausted):
            return []
        if self.moving is None:
            self.moving = pool.submit(self._search_moments, self.moments)
        return [self.moving]

    def _search_moments(self, moments: MomentSearch) -> Task | None:
        """Return the next state that the search over moments finds, or None, in a thread."""
        left = partial(getattr, self.run.stop, "seconds_left")
        known = None
        if self.own and self.best is not None and self.repair is not None:
            times, stages = self.repair.moments(self.best)
            held = [self.repair.full * each for each in stages]
            known = Target(times[:-1], held, times[-1])
        found = moments(self.first_ns, lambda: self.best_ns, left, self._over, known)
        if found is None:
            return None
        return Task(found.state, self.best_ns, 0, 0.0, 0, moments=found.stages)

    def _over(self) -> bool:
        loading = self.fast is not None and self.fast.is_loading
        kept = LOADING_S if loading else 0.0
        return self.ended or self.run.stop.seconds_left <= kept

    def _anneal(self, task: Task, rng: np.random.Generator) -> Task:
        """Anneal a task, in a thread."""

        def give_up() -> bool:
            return self._over() or (not self.rounds and task.aim_ns >= self.best_ns)

        state = task.state
        done = state.missing == 0 and state.tables.spent[0] <= task.budget
        shake = SHAKE * len(self.lengths) if self.few or done else 0
        begin = perf_counter()
        how = Cooling(task.moves, task.hot, COLD, shake, task.budget)
        task.made = anneal(state, how, rng, give_up, self.fast)
        task.seconds = perf_counter() - begin
        return task

    @property
    def _moves_of_a_run(self) -> int:
        n = len(self.instance)
        moves = max(LEAST_MOVES, MOVES_A_REQUEST * (n + 4 * self.instance.worker.clients))
        return min(moves, MOVES_A_PAIR * n * n)

    def _moves(self, effort: float, part: float = 1.0) -> int:
        """Return the moves of a run: more with effort, as many as can be done in time."""
        least = self._moves_of_a_run
        moves = int(least * effort)
        if not self.rounds:
            in_time = part * self.rate * self._seconds_left / LONGEST_PART
            moves = min(moves, max(least // FEWEST_PART, int(in_time)))
        return moves

    def _aim(self, share: float) -> int:
        """Return a makespan above the lower bound by a share of the incumbent's excess."""
        return min(
            self.best_ns - 1, self.terms.least + int((self.best_ns - self.terms.least) * share)
        )

    def _pilots(self, aim_ns: int) -> Iterator[Task]:
        """Yield first states for a makespan."""
        tried = set()
        for share, aligned in product(PILOT_SHARES, (False, True)):
            task = self._fresh(aim_ns, share, aligned)
            if task is not None and task.kind not in tried:
                tried.add(task.kind)
                yield task

    def _longer(self, task: Task) -> Task:
        """Return a pilot to be annealed with more moves."""
        return Task(task.state.copy(), task.aim_ns, self._moves(PILOT_PART), self.hot, task.budget)

    def _long_first(self, number: int) -> Task | None:
        """Return a first state close to the bound, for a good part of the time."""
        terms, prices = self.terms, self.terms.prices
        share = LONG_AIMS[number % len(LONG_AIMS)]
        aim = terms.least + int((self.first_ns - terms.least) * share)
        budget = (terms.stages_ns + LONG_STAGES * terms.stage_ns) // prices.unit_ns
        end = (aim - terms.constant_ns - budget * prices.unit_ns) // terms.round_ns
        end = max(end, terms.rounds)
        stages = terms.stages_ns // terms.stage_ns + MORE_STAGES
        times = anchored_times(min(stages, len(self.lengths)), end, self.longest)
        state = self._constructed(times, end)
        moves = int(LONG_PART * self.rate * self._seconds_left)
        aim = terms.makespan(budget, end)
        return Task(state, aim, moves, self.hot, budget, long=True)

    def _relax_long(self, task: Task) -> None:
        """Queue the state of a long task with a round more, to be annealed on from colder."""
        state = lengthened(task.state, 1)
        aim = self.terms.makespan(max(task.budget, state.tables.spent[0]), state.end)
        if aim < self.best_ns:
            moves = max(self._moves(1), task.moves // (1 if task.tries else SHORTER))
            again = Task(state, aim, moves, COOL, task.budget, None, task.tries + 1, True)
            self.waiting.insert(0, again)

    def _relax(self, task: Task) -> None:
        """Queue a state that falls short for another run, with the rounds that it lacks. More of
        them with each try; dropped where that is no gain."""
        short = -(-task.state.missing // self.instance.worker.clients) * (1 + task.tries)
        state = with_end(task.state, task.state.end + short)
        budget = max(task.budget, state.tables.spent[0])
        aim = self.terms.makespan(budget, state.end) - self._optimism
        if aim < self.best_ns and len(self.waiting) < MOST_WAITING:
            again = Task(state, aim, self._moves(2), WARMTHS[-1], budget, task.arms, task.tries + 1)
            self.waiting.append(again)

    def _fresh(self, aim_ns: int, share: float, aligned: bool) -> Task | None:
        """Return a first state for a makespan, with a share of its excess in stages. Aligned: with
        stages where longest requests end that follow each other from the start."""
        terms = self.terms
        stages, time_ns = terms.stages_for(terms.stages_ns + int((aim_ns - terms.least) * share))
        end = (aim_ns - terms.constant_ns - time_ns) // terms.round_ns
        if end < terms.rounds:
            return None
        times = aligned_times(stages, end, self.longest) if aligned else even_times(stages, end)
        moves, budget = self._moves(self.effort, PILOT_TIME), terms.budget(aim_ns, end)
        return Task(self._constructed(times, end), aim_ns, moves, self.hot, budget)

    def _constructed(self, times: Sequence[int], end: int) -> Windows:
        prices, clients = self.terms.prices, self.instance.worker.clients
        return construct(self.lengths, clients, times, end, prices.by_starts, prices.late)

    def _tasks(self) -> Iterator[Task]:
        """Yield what waits, then the best state asked for less, in the ways that promise most.
        Until pilots pay, or there is nothing left to gain."""
        while not self._pilots_pay():
            task = self.waiting.pop(0) if self.waiting else self._next_reduction()
            if task is None:
                task = next(self._pilots(self.best_ns - 1), None)
            if task is None:
                self.exhausted = True
                return
            yield task

    def _next_reduction(self) -> Task | None:
        """Return a task of one of the reductions, or None where lower bounds exclude all tried."""
        for _ in range(30):
            name, reduction = self.reductions.draw(self.rng)
            warmth, hot = self.warmths.draw(self.rng)
            shift, rounds = self.shifts.draw(self.rng)
            task = self._reduction(reduction, hot, rounds)
            if task is not None:
                task.arms = (name, warmth, shift)
                return task
            self.gain = max(self.least_gain, self.gain // 2)
        return None

    def _reduction(self, reduction: Reduction | None, hot: float, rounds: int) -> Task | None:
        """Return a state that asks for less, or None where a lower bound excludes it."""
        if reduction is None or self.best is None:
            aim = self._aim(self.rng.uniform(*FRESH_AIMS))
            fresh = self._fresh(aim, self.rng.random(), self.rng.random() < 0.5)
            return None if fresh is None else self._longer(fresh)
        changed, terms = reduction(self.best, self.rng), self.terms
        end = self.best.end + rounds
        if changed is None or end < terms.rounds:
            return None
        aim = self.best_ns - self.gain
        budget = terms.budget(aim + self._optimism, end)
        if aim < terms.least or budget < 0:
            return None
        state = changed if end == changed.end else with_end(changed, end)
        return Task(state, aim, self._moves(self.effort), hot, budget)

    def _learn(self, task: Task) -> Attempt:
        """Keep what is a better schedule; let what is none wait for more rounds; weigh the arms."""
        if task.moments:
            longer = stretched(task.state, FEW_ROUNDS)
            return Attempt(task.aim_ns, self._keep(longer, self.carry_out(longer, task.moments)))
        if task.made and task.seconds > 0.02:
            self.rate = task.made / task.seconds
        state = self._repaired(task.state)
        makespan = self.carry_out(state)
        if task.long and self.repair is not None and task.state.missing <= MOST_TO_REPAIR:
            paths = self.repair(task.state, self._seconds_left / LONGEST_PART, self._over)
            other = None if paths is None else self._repaired(paths)
            shorter = self.carry_out(other)
            if shorter is not None and (makespan is None or shorter < makespan):
                state, makespan = other, shorter
        success = self._keep(state, makespan)
        if task.arms:
            reduction, warmth, shift = task.arms
            self.reductions.learn(reduction, success)
            self.warmths.learn(warmth, success)
            self.shifts.learn(shift, success)
        if task.made >= task.moves and task.state.missing:
            (self._relax_long if task.long else self._relax)(task)
        if not success and task.made >= task.moves:
            self.gain = max(self.least_gain, int(self.gain * 0.7))
            if self.gain <= 4 * self.least_gain:
                self.effort = min(MOST_EFFORT, self.effort * MORE_EFFORT)
        return Attempt(task.aim_ns, success)

    def _keep(self, state: Windows | None, makespan: int | None) -> bool:
        """Keep a state if its makespan is the shortest so far; return whether it is."""
        if state is None or makespan is None or makespan >= self.best_ns:
            return False
        self.best, self.best_ns, self.own = state, makespan, True
        self.last.append(state)
        self.effort = max(1.0, self.effort / MORE_EFFORT**2)
        return True

    @property
    def _optimism(self) -> int:
        """How far the estimate of the best state is from its makespan (prices are estimates)."""
        if self.best is None or not self.own:
            return 0
        return self.terms.estimate(self.best) - self.best_ns

    def _repaired(self, state: Windows) -> Windows | None:
        """Return a schedule's state: one with V = 0, or with more rounds if they pay."""
        aim = self.best_ns + self._optimism + TOLERANCE * self.terms.round_ns
        most = (aim - self.terms.estimate(state)) // self.terms.round_ns
        return None if most < 0 else stretched(state, min(most, MOST_ROUNDS))

    def carry_out(self, state: Windows | None, planned: Sequence[int] = ()) -> int | None:
        """Return the makespan of a state with V = 0, or None where it is no schedule. ``planned``:
        stages that each of its moments should need, if that is known."""
        if state is None:
            return None
        state = merged(state)
        prompts, prices = self.instance.requests.prompt_tokens, self.terms.prices
        rng = np.random.default_rng([self.seed, self.best_ns])
        requests = RequestSwaps(self.lengths, prompts, prices, rng, self.fast, self._over)
        ready = self.fast is not None and self.fast.module is not None
        many = ready and not self.rounds and len(prices.levels) > 1
        assigned = requests.assigned(state, MANY_SWAPS if many else SWAPS_A_REQUEST)
        if assigned is None:
            return None
        near = self.best_ns - self.terms.constant_ns - self.terms.round_ns * state.end
        near += NEAR_STAGES * self.terms.stage_ns
        if self.moments is not None and ready and (planned or assigned.time_ns < near):
            planned = planned if len(planned) == state.stages else ()
            assigned = requests.squeezed(assigned, state.spans(), planned)
        return self.follow(plan_of(state, assigned, partial(prices.divide, prompts=prompts)))
