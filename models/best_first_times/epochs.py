r"""A case, its states, and the few moments at which a stage need begin: what is enumerated.

**All schedules** are those of the exact MIP (``WITHOUT_PAUSES``): a stage of whole prompts, a round
in which every prefilled request decodes, or a wait; each in any order and any number. What is
minimised is a sum of the end, of last tokens and of first tokens with coefficients from 0, that is,
the integral over time of :math:`U`: the coefficients of what has not come yet. So a state needs not
know when it was reached, but for arrivals.

A *position* counts the rounds done. *Events* are the positions at which the state searched from
begins, a request finishes, a stage has just been, the first one behind a request that was waiting
arrived, the last one before that, and, where a round yields first tokens that count, the first one
behind a stage.

**Waits.** A wait that does not end with the arrival of a request of the next stage can be left
out, and all that follows comes earlier. Where requests run and another round would end before that
arrival, it can be moved there from behind the stage: the stage begins as before, and behind it
those that run need a round less, those of the stage as many as before; every round behind has no
more clients than it had, and keeps its number. So the worker waits only when nothing runs or in the
last position before the arrival.

**Stages at events.** Let a stage S begin at a position q that is no event, e the last event before
it, or the first position behind it where all of S have arrived; move S to e. Between the two no
request finishes and no other is prefilled, so clients and memory suffice. Later stages keep their
positions. With a and b the time of a round and of a client in it and k = q - e:

* behind q nothing comes earlier, and what is not of S comes later by at most b k for each request
  of S, whose rounds are done earlier: by no more than that the objective grows, for each request s
  of S, as b k (U - v_s); v_s are the coefficients of s. Before q nothing counts.
* Each s of S has its first and its last token at least a k earlier: between its old and its new
  position lie k rounds, and requests of S are served in both orders alike.

So nothing is lost if :math:`a v_s \ge b (U - v_s)` for each s that may be in S. Where that does not
hold in a state, every round ends in an event. Each move lowers the sum of the positions of stages,
so it ends.

**Full stages.** With one level, no memory, no arrivals and nothing that comes at the end of a
stage: let a stage leave a client free and a request waiting. Take the next one, y, of that client,
or, if it has none, the last of any other that has not been prefilled, and put it into the stage. It
comes k rounds earlier, and delays what is not done by b k at most and by the time of its prompt, t.
Nothing is lost if :math:`a v_y \ge (t + b) (U - v_y)`, or k = 0: then two stages have become one.

**Two stages in a row** with one level and nothing that comes at the end of a stage are no better
than one, unless requests arrive in between.

**What is left out for another state.** A state leads to no better an end than one with the same
requests waiting, whose running ones, matched each with one of the same role, have no more rounds
left, and which costs no more, having waited until the same time. It can do as the other does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.models.exact_search.aims import Terms
    from orsched.models.exact_search.stage_plan import Problem


class Kind(NamedTuple):
    """Requests that an exchange leaves the same, with what each needs; times in units. ``finish``,
    ``first``: coefficients of its last and of its first token."""

    rounds: int
    prompt: int
    arrival: int
    blocks: int
    finish: int
    first: int

    @property
    def weight(self) -> int:
        """What a unit of time costs while it waits."""
        return self.finish + self.first


class Role(NamedTuple):
    """What running requests have in common, beside the rounds that they have left: the coefficients
    ``finish`` of the last token and ``first`` of the first one if that is still to come, else 0;
    and ``blocks`` of memory."""

    finish: int
    first: int
    blocks: int


@dataclass(frozen=True)
class Case:
    """A problem and its objective, with equal requests together; times in units of the problem.
    ``kinds``: the fewest rounds first; ``rows``: the requests of each; ``makespan``: coefficient of
    the end; ``in_round``: whether a round yields the first token, not the prefill; all else as in
    ``Problem``."""

    kinds: tuple[Kind, ...]
    rows: tuple[tuple[int, ...], ...]
    clients: int
    round_fixed: int
    round_client: int
    prompt_token: int
    levels: tuple[tuple[int, int], ...]
    memory: int | None
    makespan: int
    in_round: bool

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many requests of each kind there are."""
        return tuple(len(each) for each in self.rows)

    @cached_property
    def first_stages(self) -> int:
        """How many sets of requests, but for exchanges, are no more than there are clients."""
        ways = [1] + [0] * self.clients
        for count in self.counts:
            ways = [sum(ways[max(0, k - count) : k + 1]) for k in range(len(ways))]
        return sum(ways) - 1

    @cached_property
    def stage(self) -> int:
        """The least fixed time of a stage."""
        return min(time for _, time in self.levels)

    @cached_property
    def is_one_level(self) -> bool:
        """Whether all prompts fit into one stage of the same fixed time, whatever is in it."""
        tokens = sum(k.prompt * count for k, count in zip(self.kinds, self.counts, strict=True))
        return len(self.levels) == 1 and self.levels[0][0] >= tokens

    @cached_property
    def has_ends_of_stages(self) -> bool:
        """Whether something counts that comes at the end of a stage."""
        at_prefill = not self.in_round and any(each.first for each in self.kinds)
        return at_prefill or any(each.rounds == 0 for each in self.kinds)

    def stage_time(self, tokens: int) -> int | None:
        """Return how long a stage takes with so many tokens; None where they are too many."""
        for cap, time in self.levels:
            if tokens <= cap:
                return time + self.prompt_token * tokens
        return None


def read_case(problem: Problem, terms: Terms, in_round: bool) -> Case:
    """Return the case of a problem with the times of tokens inside, and of a sum of times."""
    found: dict[Kind, list[int]] = {}
    for row, needed in enumerate(problem.needed):
        kind = Kind(
            needed,
            problem.prompts[row],
            problem.arrivals[row],
            problem.blocks[row],
            terms.finish[row],
            terms.first[row],
        )
        found.setdefault(kind, []).append(row)
    kinds = sorted(found)
    return Case(
        tuple(kinds),
        tuple(tuple(found[kind]) for kind in kinds),
        problem.clients,
        problem.round_fixed,
        problem.round_client,
        problem.prompt_token,
        problem.levels,
        problem.memory_blocks,
        terms.makespan,
        in_round,
    )


Counts = tuple[int, ...]


class State(NamedTuple):
    """What decides about the rest. ``waiting``: how many of each kind are not prefilled;
    ``running``: rounds left times the number of roles, plus the role, ascending; ``clock``: the
    time, no later than the last arrival of those that wait."""

    waiting: Counts
    running: tuple[int, ...]
    clock: int


class Move(NamedTuple):
    """A stage (how many of each kind, or None), rounds, or a stage and rounds behind it; ``state``:
    where that leads to; ``cost``: by how much the sum of times grows."""

    state: State
    cost: int
    stage: Counts | None
    rounds: int


class Epochs:
    """The moves of a case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        roles = {Role(k.finish, k.first if case.in_round else 0, k.blocks) for k in case.kinds}
        roles |= {role._replace(first=0) for role in roles}
        self.roles = tuple(sorted(roles))
        number = {role: n for n, role in enumerate(self.roles)}
        self.many = len(self.roles)
        self.later = tuple(number[role._replace(first=0)] for role in self.roles)
        self.due = tuple(role.finish + role.first for role in self.roles)
        self.pending = tuple(role.first > 0 for role in self.roles)
        self.any_pending = any(self.pending)
        self.role_of = tuple(
            number[Role(k.finish, k.first if case.in_round else 0, k.blocks)] for k in case.kinds
        )
        self.weights = tuple(kind.weight for kind in case.kinds)
        self.arrivals = tuple(kind.arrival for kind in case.kinds)
        self.timed = any(self.arrivals)
        self.merges = case.is_one_level and not case.has_ends_of_stages and not self.timed
        self.may_fill = self.merges and case.memory is None

    @property
    def start(self) -> State:
        """All wait, nothing runs."""
        return State(self.case.counts, (), 0)

    def rate(self, waiting: Counts, running: tuple[int, ...]) -> int:
        """Return U: the coefficients of what has not come yet."""
        due, many = self.due, self.many
        total = sum(w * c for w, c in zip(self.weights, waiting, strict=True))
        total += sum(due[entry % many] for entry in running)
        return total + self.case.makespan

    def moves(self, state: State) -> Iterator[Move]:
        """Yield what need be tried next, where a request waits."""
        rate = self.rate(state.waiting, state.running)
        if len(state.running) < self.case.clients:
            for stage, then in self._stages(state, rate):
                yield self._with_stage(state, stage, then, rate)
        if state.running:
            yield self._rounds(state, rate)

    def close(self, state: State) -> int:
        """Return what it costs until all that run are done, where no request waits."""
        cost, running = 0, state.running
        while running:
            move = self._rounds(State(state.waiting, running, 0), self.rate(state.waiting, running))
            cost += move.cost
            running = move.state.running
        return cost

    # -- rounds -------------------------------------------------------------------------------

    def _rounds(self, state: State, rate: int) -> Move:
        """Return the rounds until the next event."""
        case, running = self.case, state.running
        one = case.round_fixed + case.round_client * len(running)
        count = self._until_event(state, one, rate)
        left = self._after(running, count)
        clock = self._clock(state.waiting, state.clock + count * one)
        return Move(State(state.waiting, left, clock), count * one * rate, None, count)

    def _after(self, running: tuple[int, ...], count: int) -> tuple[int, ...]:
        many, less = self.many, count * self.many
        if not self.any_pending:
            return tuple(entry - less for entry in running if entry - less >= many)
        later = self.later
        kept = (entry - less for entry in running if entry - less >= many)
        return tuple(sorted(entry - entry % many + later[entry % many] for entry in kept))

    def _until_event(self, state: State, one: int, rate: int) -> int:
        """Return the rounds until a request finishes, or another event."""
        case, running = self.case, state.running
        finish = running[0] // self.many
        if self.any_pending and any(self.pending[entry % self.many] for entry in running):
            return 1
        if len(running) == case.clients or not any(state.waiting):
            return finish
        if case.round_client:
            least = min(w for w, c in zip(self.weights, state.waiting, strict=True) if c)
            if (case.round_fixed + case.round_client) * least < case.round_client * rate:
                return 1
        if one:
            to_come = self._to_come(state)
            if to_come:
                before = (to_come[0] - state.clock) // one
                return min(finish, max(1, before))
        return finish

    # -- stages -------------------------------------------------------------------------------

    def _stages(self, state: State, rate: int) -> Iterator[tuple[Counts, int]]:
        """Yield stages and when each begins."""
        clock, waiting = state.clock, state.waiting
        at_once = waiting
        if self.timed:
            at_once = tuple(
                c if a <= clock else 0 for c, a in zip(waiting, self.arrivals, strict=True)
            )
        for stage in self._fitting(state, at_once, rate):
            yield stage, clock
        if not self.timed:
            return
        case, running = self.case, state.running
        one = case.round_fixed + case.round_client * len(running)
        for moment in self._to_come(state):
            if running and moment - clock >= one:
                break
            there = tuple(
                c if a <= moment else 0 for c, a in zip(waiting, self.arrivals, strict=True)
            )
            for stage in self._fitting(state, there, rate):
                if any(s and a == moment for s, a in zip(stage, self.arrivals, strict=True)):
                    yield stage, moment

    def _to_come(self, state: State) -> list[int]:
        if not self.timed:
            return []
        pairs = zip(state.waiting, self.arrivals, strict=True)
        return sorted({a for c, a in pairs if c and a > state.clock})

    def _fitting(self, state: State, there: Counts, rate: int) -> Iterator[Counts]:
        """Yield the sets of those there that fit into clients and memory; full ones if need be."""
        case = self.case
        free, number = case.clients - len(state.running), sum(there)
        least = 1
        if self.may_fill and self._fills(there, rate):
            least = min(free, number)
        memory = case.memory
        if memory is not None:
            memory -= sum(self.roles[entry % self.many].blocks for entry in state.running)
        yield from self._choices(there, least, min(free, number), memory)

    def _fills(self, there: Counts, rate: int) -> bool:
        """Return whether a stage need not leave a client free while one of these waits."""
        case = self.case
        for kind, count in zip(case.kinds, there, strict=True):
            if count:
                others = rate - kind.weight
                delay = case.prompt_token * kind.prompt + case.round_client
                if case.round_fixed * kind.weight < delay * others:
                    return False
        return True

    def _choices(
        self, there: Counts, least: int, most: int, memory: int | None
    ) -> Iterator[Counts]:
        """Yield how many of each kind to take, from ``least`` to ``most`` in all."""
        case, chosen = self.case, [0] * len(there)
        cap = case.levels[-1][0]
        behind = [0] * (len(there) + 1)
        for i in range(len(there) - 1, -1, -1):
            behind[i] = behind[i + 1] + there[i]

        def choose(i: int, taken: int, tokens: int, blocks: int) -> Iterator[Counts]:
            if taken + behind[i] < least:
                return
            if i == len(there) or taken == most:
                if taken:
                    yield tuple(chosen)
                return
            kind = case.kinds[i]
            for count in range(min(there[i], most - taken), -1, -1):
                then, held = tokens + count * kind.prompt, blocks + count * kind.blocks
                if then <= cap and (memory is None or held <= memory):
                    chosen[i] = count
                    yield from choose(i + 1, taken + count, then, held)
            chosen[i] = 0

        return choose(0, 0, 0, 0)

    def _with_stage(self, state: State, stage: Counts, begins: int, rate: int) -> Move:
        """Return a stage that begins at a time, and, where another cannot follow, rounds."""
        case = self.case
        tokens = sum(k.prompt * c for k, c in zip(case.kinds, stage, strict=True) if c)
        took = case.stage_time(tokens)
        assert took is not None
        entries = list(state.running)
        for kind, role, count in zip(case.kinds, self.role_of, stage, strict=True):
            if count and kind.rounds:
                entries += [kind.rounds * self.many + role] * count
        entries.sort()
        waiting = tuple(a - b for a, b in zip(state.waiting, stage, strict=True))
        then = begins + took
        after = State(waiting, tuple(entries), self._clock(waiting, then))
        cost = (then - state.clock) * rate
        if not self.merges or not any(waiting):
            return Move(after, cost, stage, 0)
        move = self._rounds(after, self.rate(waiting, after.running))
        return Move(move.state, cost + move.cost, stage, move.rounds)

    def _clock(self, waiting: Counts, time: int) -> int:
        if not self.timed:
            return 0
        last = max((a for a, c in zip(self.arrivals, waiting, strict=True) if c), default=0)
        return min(time, last)
