"""Stage times moved by the prices of the path program: a search over moments and their capacities.
At the number of stages and rounds asked for, moments are moved until the linear program over paths
misses nothing; then one round or stage less is asked for. Four moves: a moment is shifted, as the
windows that there are gain by it; a stage goes to another moment, or to any other time, where the
dual prices promise the most; moments that are whole longest requests apart are shifted together.
Each is kept by a threshold as in annealing, drawn first: the program stops where it is exceeded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.models.windows.moment_program import Change, MomentPrices, MomentProgram
from orsched.models.windows.state_changes import anchored_times
from orsched.models.windows.window_state import Windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.models.windows.path_program import PathProgram
    from orsched.models.windows.stage_prices import Terms

HOT, COLD = 8.0, 0.5
"""Temperatures, in client-rounds."""
KINDS = {"shift": 0.62, "stage": 0.1, "time": 0.22, "chain": 0.06}  # shares of the moves
NOTHING = 1e-3  # as much may be missing from rounding alone
FIRST_AIM, FIRST_STAGES = 0.13, 4
"""Excess of the first target over the heuristic's, and its stages above the least number."""
RESTART_STAGES = (2, 8)  # stages above the least number of later first states
MOMENTS = (0.45, 0.7)  # moments of first states over their stages, least and most
AGAIN = 0.5
"""How often the best moments are searched again, and not new ones, where a target is not reached.
"""
PATIENCE, LEAST_PATIENCE_S = 5, 4.0
"""A target gets one part in so many of the seconds that are left, and at least these."""
FEWEST_EMPTY = 3  # with fewer slots to open the program is built again
CHOICES = 3  # so many stages are tried as the one to leave out
WHOLE_S, WHOLE_PAYS = 5.0, 4.0
"""Most seconds for whole paths, and so many times what they took go to the next target before."""


@dataclass
class Target:
    """Moments at a number of stages and rounds. ``times``, ``capacity``: of the moments."""

    times: list[int]
    capacity: list[int]
    end: int  # R


class Found(NamedTuple):
    """A state with whole paths, and the stages that each of its moments should need."""

    state: Windows
    stages: list[int]


class MomentSearch:
    """The search on one instance under stages of one capacity; it goes on with each call."""

    def __init__(self, program: PathProgram, full: int, terms: Terms, seed: int) -> None:
        """Take the capacity of a stage in the program's tokens."""
        self.program, self.full, self.terms = program, full, terms
        self.rng = np.random.default_rng([seed, full])
        self.now: MomentProgram | None = None
        self.pending: Target | None = None
        self.best: Target | None = None
        self.reached = self.exhausted = False
        self._whole_s = 0.5
        self._began = self._found = self._patience = 0.0
        self._prices: MomentPrices | None = None

    def __call__(
        self,
        first_ns: int,
        best_ns: Callable[[], int],
        seconds_left: Callable[[], float],
        over: Callable[[], bool],
        known: Target | None = None,
    ) -> Found | None:
        """Search until there is a state with whole paths, or it is over; return it. V need not be
        0. ``first_ns``: makespan of the heuristic's schedule; ``best_ns``: of the best one so far.
        ``known``: moments at which the search begins, if any are."""
        if self.now is None and known is not None:
            self.best = known
            less = self._less(known)
            self._begin(less[0] if less else known, seconds_left())
        elif self.now is None:
            aim = self.terms.least + int(FIRST_AIM * (first_ns - self.terms.least))
            self._begin(self._fresh(aim, FIRST_STAGES), seconds_left())
        while not over() and not self.exhausted:
            assert self.now is not None
            if self._has_to_be_whole(seconds_left()):
                return self._whole(seconds_left())
            if self.now.value <= NOTHING:
                self._descend(seconds_left())
            elif perf_counter() - self._began > self._patience:
                self._give_way(best_ns(), seconds_left())
            else:
                self._move()
        return None

    def _estimate(self, target: Target) -> int:
        """Return the makespan of a target."""
        terms, stages = self.terms, sum(target.capacity) // self.full
        return terms.constant_ns + terms.stage_ns * stages + terms.round_ns * target.end

    def _begin(self, target: Target, seconds: float) -> None:
        """Go to a target; where it has no paths at all, end."""
        self._take(MomentProgram(self.program, target.times, target.capacity, target.end), seconds)

    def _take(self, moments: MomentProgram, seconds: float) -> None:
        self.now, self._prices = moments, None
        self._began, self._patience = perf_counter(), max(LEAST_PATIENCE_S, seconds / PATIENCE)
        self.exhausted = not moments.value < math.inf

    def _target(self) -> Target:
        """Return the moments now."""
        assert self.now is not None
        moments = self.now.moments()
        return Target([t for t, _ in moments], [held for _, held in moments], self.now.end)

    def _fresh(self, aim_ns: int, more: int) -> Target:
        """Return moments at whole longest requests from both ends and even times, for a makespan.
        ``more``: stages above the least number of them."""
        terms, program = self.terms, self.program
        stages = terms.stages_ns // terms.stage_ns + more
        end = (aim_ns - terms.constant_ns - stages * terms.stage_ns) // terms.round_ns
        end = max(end, terms.rounds)
        longest = max(int(program.lengths.max()), 1)
        count = max(2, int(stages * self.rng.uniform(*MOMENTS)))
        times = sorted({*anchored_times(count, end, longest)})
        first = -(-program.clients * program.few_tokens // self.full)
        held = [1] * len(times)
        whole = [k for k, time in enumerate(times) if time % longest == 0] or [0]
        for more_stages in range(max(0, stages - len(times))):
            at = 0 if more_stages < first - 1 else whole[more_stages % len(whole)]
            held[at] += 1
        return Target(times, [each * self.full for each in held], end)

    def _descend(self, seconds: float) -> None:
        """Note that nothing is missing here, and go on with a round or a stage less."""
        here = self._target()
        self.pending, self._found, self.reached = here, perf_counter(), True
        if self.best is None or self._estimate(here) <= self._estimate(self.best):
            self.best = here
        found: list[tuple[float, MomentProgram]] = []
        for target in self._less(here):
            made = MomentProgram(self.program, target.times, target.capacity, target.end)
            gain = self._estimate(here) - self._estimate(target)
            found.append((made.value / gain, made))
        if not found:
            self.exhausted = True
            return
        self._take(min(found, key=lambda each: each[0])[1], seconds)

    def _less(self, target: Target) -> list[Target]:
        """Return targets with a round less, or a stage, as far as bounds allow that."""
        found, terms = [], self.terms
        times, held, end = target.times, target.capacity, target.end
        longest = max(int(self.program.lengths.max()), 1)
        if end > terms.rounds:
            at = int(self.rng.integers(1, len(times)))
            anchored = [t - (t > 0 and (end - t) % longest == 0) for t in times]
            later = [t - (k >= at and t - 1 > times[at - 1]) for k, t in enumerate(times)]
            for each in (times, anchored, later):
                if max(each) < end - 1:
                    found.append(Target(list(each), held, end - 1))
        if sum(held) - self.full >= max(
            terms.stages_ns // terms.stage_ns * self.full,
            len(self.program.lengths) * self.program.tokens,
        ):
            for _ in range(CHOICES):
                at = int(self.rng.integers(1, len(times)))
                left = [each - self.full * (k == at) for k, each in enumerate(held)]
                keep = [k for k, each in enumerate(left) if each]
                found.append(Target([times[k] for k in keep], [left[k] for k in keep], end))
        return found

    def _give_way(self, best_ns: int, seconds: float) -> None:
        """Ask for a round more where no target has been reached yet; else start over, or go on."""
        target = self._target()
        easier = Target(target.times, target.capacity, target.end + 1)
        if not self.reached and self._estimate(easier) < best_ns:
            self._begin(easier, seconds)
            return
        aim = best_ns - self.terms.round_ns
        if self.best is not None:
            aim = min(aim, self._estimate(self.best) - self.terms.stage_ns)
        self.reached = self.best is not None and bool(self.rng.random() < AGAIN)
        if self.best is not None and self.reached:
            again = self._less(self.best)
            self._begin(again[int(self.rng.integers(len(again)))] if again else target, seconds)
        else:
            self._begin(self._fresh(aim, int(self.rng.integers(*RESTART_STAGES))), seconds)

    def _has_to_be_whole(self, seconds: float) -> bool:
        """Return whether it is time for whole paths at the last target that was reached."""
        waited = perf_counter() - self._found
        return self.pending is not None and (
            waited > WHOLE_PAYS * self._whole_s or seconds < 3 * self._whole_s + WHOLE_S
        )

    def _whole(self, seconds: float) -> Found | None:
        """Return the state of the pending target with whole paths."""
        target, begin = self.pending, perf_counter()
        assert target is not None
        self.pending = None
        times, most = [*target.times, target.end], min(WHOLE_S, seconds / 2)
        found = self.program.whole(times, target.capacity, most)
        self._whole_s = perf_counter() - begin
        self._began += self._whole_s
        if found is None:
            return None
        prices = self.terms.prices
        lengths = self.program.lengths
        state = Windows(lengths, times[:-1], times[-1], found[1], prices.by_starts, prices.late)
        return Found(state, [held // self.full for held in target.capacity])

    def _of(self) -> MomentProgram:
        assert self.now is not None
        return self.now

    def _priced(self) -> MomentPrices:
        """Return the prices of the solution at hand."""
        if self._prices is None:
            self._prices = self._of().prices()
        return self._prices

    def _move(self) -> None:
        """Try one move."""
        part = min(1.0, (perf_counter() - self._began) / max(1e-9, self._patience))
        heat = HOT * (COLD / HOT) ** part
        kind = str(self.rng.choice(list(KINDS), p=list(KINDS.values())))
        moves = {"shift": self._shift, "stage": self._stage, "time": self._time}
        changes = self._chain() if kind == "chain" else moves[kind](heat)
        limit = self._of().value - heat * math.log(1 - self.rng.random())
        if changes and self._bound(changes) <= limit and self._of().attempt(changes, limit):
            self._prices = None
            if len(self._of().empty(FEWEST_EMPTY)) < FEWEST_EMPTY:
                here = self._target()
                self.now = MomentProgram(self.program, here.times, here.capacity, here.end)

    def _bound(self, changes: list[Change]) -> float:
        """Return a lower bound on V after changes: by the prices, and no solution is needed."""
        now, prices = self._of(), self._priced()
        bound = now.value
        for slot, time, capacity in changes:
            before = now.capacity[slot]
            if before == 0:
                bound -= float(prices.opening[time]) * capacity
            else:
                bound += prices.room[slot] * (before - capacity)
        return bound

    def _moved(self, slots: list[int], by: int) -> list[Change]:
        """Return the changes that shift moments, none where they do not fit."""
        now = self._of()
        empty = now.empty(len(slots))
        times = [now.times[slot] + by for slot in slots]
        if not slots or len(empty) < len(slots) or not (min(times) > 0 and max(times) < now.end):
            return []
        opened = [
            Change(to, time, now.capacity[slot])
            for to, slot, time in zip(empty, slots, times, strict=True)
        ]
        return [*opened, *(Change(slot, now.times[slot], 0) for slot in slots)]

    def _shift(self, heat: float) -> list[Change]:
        """Shift a moment, by what its windows gain."""
        now, shifting = self._of(), self._priced().shifting
        choices = [each for each in shifting if now.times[each[0]] > 0]
        gains = np.array([shifting[each] for each in choices])
        if not len(gains):
            return []
        weights = np.exp(np.maximum(-50, (gains - gains.max()) / (4 * heat))) + 0.02
        slot, by = choices[self.rng.choice(len(choices), p=weights / weights.sum())]
        return self._moved([slot], by)

    def _cheap(self) -> int | None:
        """Return a slot whose capacity is worth little; at time 0 one stage stays."""
        now, room = self._of(), self._priced().room
        slots = [s for s in room if now.times[s] > 0 or now.capacity[s] > self.full]
        if not slots:
            return None
        slots.sort(key=lambda slot: (room[slot] + 1e-6) * (0.5 + self.rng.random()))
        return slots[int(self.rng.random() ** 2 * len(slots))]

    def _stage(self, heat: float) -> list[Change]:
        """Move a stage to another moment, where capacity is worth more."""
        now, room, slot = self._of(), self._priced().room, self._cheap()
        other = max(room, key=lambda each: room[each] * self.rng.random())
        return [] if slot is None or slot == other else self._handed(now, slot, other)

    def _handed(self, now: MomentProgram, slot: int, other: int) -> list[Change]:
        less, more = now.capacity[slot] - self.full, now.capacity[other] + self.full
        return [Change(slot, now.times[slot], less), Change(other, now.times[other], more)]

    def _time(self, heat: float) -> list[Change]:
        """Move a stage to another time, by what it promises there."""
        now, slot, weights = self._of(), self._cheap(), self._priced().opening ** 2
        if slot is None or not weights.any():
            return []
        time = int(self.rng.choice(len(weights), p=weights / weights.sum()))
        here = [each for each in now.used if now.times[each] == time]
        if here:
            return [] if here[0] == slot else self._handed(now, slot, here[0])
        less = Change(slot, now.times[slot], now.capacity[slot] - self.full)
        return [Change(now.empty(1)[0], time, self.full), less] if now.empty(1) else []

    def _chain(self) -> list[Change]:
        """Shift moments whole longest requests apart, all of them or the later ones."""
        now, longest = self._of(), max(int(self.program.lengths.max()), 1)
        slot, later = int(self.rng.choice(now.used)), self.rng.random() < 0.5
        times = now.times
        chosen = [
            each
            for each in now.used
            if times[each] > 0
            and (times[each] - times[slot]) % longest == 0
            and (not later or times[each] >= times[slot])
        ]
        return self._moved(chosen, int(self.rng.choice((-2, -1, 1, 2))))
