"""States of the best-first search, their successors, bounds on what is left, and the search.

All requests are there at once, and a step's time splits by counts, so the makespan is a constant
plus the stages' times plus the time of a round times the rounds. There is no
reason to wait.

**Stages only at finishes.** Take a schedule with a stage at a moment, counted in rounds, at which
no request finishes, and the first such stage after a finish (or the start) f. Between f and the
stage no client and no memory is taken or given back, so the stage can be carried out at f, after
those that are there: it holds the same requests and takes the same time. Its requests end earlier,
all others when they did; each moment then has no more clients and blocks taken than before, and
the rounds do not grow in number. The sum of the stages' moments falls, so this ends: some optimal
schedule has stages at finishes and at the start only. Caps, levels and memory change nothing of
this. Arrivals do: a stage cannot be moved before them, and such instances are refused.

**Full stages.** A state is *plain* if a stage takes a fixed time whatever is in it and any J
requests fit into a stage and into memory. Then a stage takes as many requests as there are free
clients or waiting requests: what a client that is left free serves next (or, if that is nothing,
any request that starts later) can join the stage, ends earlier and costs no stage more.

Requests that differ in nothing that matters are one kind, and active requests are their remaining
rounds (and blocks): a state is the number that waits of each kind, and a sorted tuple.
"""

from __future__ import annotations

from functools import cached_property
from heapq import heappush, heapreplace
from typing import TYPE_CHECKING, NamedTuple

from orsched.models.exact_search.best_first import OpenStates, plan_of_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.models.exact_search.stage_plan import Plan, Problem

Counts = tuple[int, ...]  # how many of each kind

_FREE = 2**60
_Key = tuple[Counts, tuple[int, ...], bool]


class Kind(NamedTuple):
    """What matters of a request: rounds, prompt tokens, memory blocks (0 where they do not)."""

    rounds: int
    prompt: int
    blocks: int


class Waiting(NamedTuple):
    """What a lower bound needs of the waiting requests. ``rounds``, ``block_rounds``: sums of their
    rounds, and of blocks times rounds; ``chains``: pairs (m, r) of the m longest and the least
    rounds r among them; ``joins``: sums of the least rounds lost where 0, 1, 2, ... of them share a
    stage and the next stage with a longer one."""

    number: int  # how many there are
    rounds: int
    block_rounds: int
    stages: int  # a lower bound on the time of their stages
    chains: tuple[tuple[int, int], ...]
    joins: tuple[int, ...]


class States:
    """The state space of a problem without arrivals; times in the problem's units. An active
    request is coded as remaining rounds times ``base`` plus blocks."""

    def __init__(self, problem: Problem) -> None:
        self.clients, self.levels = problem.clients, problem.levels
        self.round = problem.round_fixed
        self.memory = problem.memory_blocks
        most = sum(sorted(problem.blocks)[-problem.clients :])
        if self.memory is None or most <= self.memory:
            self.memory = None
        fits = sum(sorted(problem.prompts)[-problem.clients :]) <= self.levels[0][0]
        self.is_plain = fits and self.memory is None and min(problem.needed, default=1) > 0
        self.base = 1 if self.memory is None else max(problem.blocks) + 1
        rows: dict[Kind, list[int]] = {}
        for i, (rounds, prompt) in enumerate(zip(problem.needed, problem.prompts, strict=True)):
            blocks = 0 if self.memory is None else problem.blocks[i]
            rows.setdefault(Kind(rounds, 0 if fits else prompt, blocks), []).append(i)
        self.kinds = sorted(rows, reverse=True)
        self.rows = [rows[kind] for kind in self.kinds]
        self.start: Counts = tuple(len(each) for each in self.rows)
        self._known: dict[Counts, Waiting] = {}

    @cached_property
    def first_stages(self) -> int:
        """How many first stages there are at most, which limits what can be searched."""
        ways = [1] + [0] * self.clients
        for count in self.start:
            ways = [
                sum(ways[size - some] for some in range(min(count, size) + 1))
                for size in range(self.clients + 1)
            ]
        return sum(ways) if not self.is_plain else ways[min(self.clients, sum(self.start))]

    def stage_time(self, stage: Counts) -> int:
        """Return the time of a stage, in units."""
        tokens = sum(count * kind.prompt for count, kind in zip(stage, self.kinds, strict=True))
        return next(time for cap, time in self.levels if cap >= tokens)

    def stages(self, waiting: Counts, active: tuple[int, ...]) -> Iterator[Counts]:
        """Yield the stages that may follow: full ones in plain states, else all that fit."""
        free = min(self.clients - len(active), sum(waiting))
        if not free:
            return
        if free == 1 and self.is_plain:
            for i, count in enumerate(waiting):
                if count:
                    yield (0,) * i + (1,) + (0,) * (len(waiting) - i - 1)
            return
        blocks = _FREE
        if self.memory is not None:
            blocks = self.memory - sum(each % self.base for each in active)
        yield from self._chosen(waiting, 0, free, self.levels[-1][0], blocks, ())

    def _chosen(
        self, waiting: Counts, at: int, free: int, tokens: int, blocks: int, chosen: Counts
    ) -> Iterator[Counts]:
        """Yield the choices of kinds from ``at`` on that fit into what is left."""
        if at == len(waiting):
            if any(chosen) and not (free and self.is_plain):
                yield chosen
            return
        kind = self.kinds[at]
        for count in range(min(waiting[at], free), -1, -1):
            left, held = tokens - count * kind.prompt, blocks - count * kind.blocks
            if left >= 0 and held >= 0:
                yield from self._chosen(waiting, at + 1, free - count, left, held, (*chosen, count))

    def with_stage(self, active: tuple[int, ...], stage: Counts) -> tuple[int, ...]:
        """Return the active requests after a stage: those without rounds are done at once."""
        started = [
            kind.rounds * self.base + kind.blocks
            for count, kind in zip(stage, self.kinds, strict=True)
            if count and kind.rounds
            for _ in range(count)
        ]
        return tuple(sorted((*active, *started)))

    def until_finish(self, active: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return the rounds until the next finish, and who is active then."""
        rounds = active[0] // self.base
        gone, first = rounds * self.base, (rounds + 1) * self.base
        return rounds, tuple(each - gone for each in active if each >= first)

    def rounds_left(self, active: tuple[int, ...]) -> int:
        """Return the rounds until all active requests are done."""
        return active[-1] // self.base if active else 0

    def least(self, waiting: Counts, active: tuple[int, ...]) -> int:
        """Return a lower bound on the time from a state to the end. Rounds: the clients' work and
        the memory's, shared out evenly; and for the m longest of those waiting, m requests of the
        least rounds among them, each put where it ends first. Stages: their number and their
        tokens. In plain states the two are bounded together (``_jointly``)."""
        known = self._known.get(waiting)
        if known is None:
            known = self._known[waiting] = self._of(waiting)
        left = [each // self.base for each in active]
        work = sum(left) + known.rounds
        padded = [0] * (self.clients - len(left)) + left
        rounds = max(left[-1] if left else 0, -(-work // self.clients))
        for number, length in known.chains:
            rounds = max(rounds, _ends(padded, number, length))
        if self.memory is not None:
            held = sum((each // self.base) * (each % self.base) for each in active)
            rounds = max(rounds, -(-(held + known.block_rounds) // self.memory))
        if not self.is_plain or not known.number:
            return known.stages + self.round * rounds
        return self._jointly(known, padded, rounds, work)

    def _jointly(self, known: Waiting, left: list[int], rounds: int, work: int) -> int:
        """Return the least time over the numbers K of stages to come.

        The K stages cut what is left into K + 1 intervals, the first from now on (empty if the
        first stage is now). Each client's time divides into windows of whole intervals: of the
        requests that are active (a free client counts as one with nothing left) and of the w that
        wait, each until the client starts another or the end. The J (K + 1) intervals are shared
        by J + w windows of at least one, so at least 2 (J + w) - J (K + 1) have exactly one.

        Windows of one interval in the same interval are equally long: there, all but the longest
        request lose rounds. In the first interval those of m active requests, at best the m that
        end first (at least one, for who starts in the first stage needs a client). Of the others
        at most K are the longest of theirs; each further one loses at least the distance to the
        next longer request, if that is an equal one nothing, which can happen to c equal ones
        no more than c - ceil(c / J) times: ``joins`` sums the least distances.
        """
        number, clients, time = known.number, self.clients, self.levels[0][1]
        lost_first = [0]
        for i in range(1, clients):
            lost_first.append(lost_first[-1] + i * (left[i] - left[i - 1]))
        best = _FREE
        for stages in range(-(-number // clients), number + 1):
            single = 2 * number + clients - clients * stages
            lost = _FREE
            for first in range(1, clients + 1):
                others = single - first
                if others <= number:
                    joined = max(0, others - stages)
                    lost = min(lost, lost_first[first - 1] + known.joins[joined])
                    if not joined:
                        break
            if lost >= _FREE:
                continue
            needed = max(rounds, -(-(work + lost) // clients))
            best = min(best, time * stages + self.round * needed)
            if not lost:
                break
        return best

    def _of(self, waiting: Counts) -> Waiting:
        kinds = [(kind, count) for kind, count in zip(self.kinds, waiting, strict=True) if count]
        number = sum(waiting)
        tokens = sum(kind.prompt * count for kind, count in kinds)
        least = max(-(-number // self.clients), -(-tokens // self.levels[-1][0]))
        by_tokens = min(-(-tokens * time // cap) for cap, time in self.levels)
        chains, above = [], 0
        for kind, count in kinds:
            above += count
            chains.append((above, kind.rounds))
            if above > 2 * self.clients:
                break
        return Waiting(
            number,
            sum(kind.rounds * count for kind, count in kinds),
            sum(kind.rounds * kind.blocks * count for kind, count in kinds),
            max(least * self.levels[0][1], by_tokens),
            tuple(chains),
            self._joins(kinds, number) if self.is_plain else (),
        )

    def _joins(self, kinds: list[tuple[Kind, int]], number: int) -> tuple[int, ...]:
        distances, longer = [], None
        for kind, count in kinds:  # in a plain state kinds differ in rounds, the longest is first
            own = -(-count // self.clients)
            distances += [0] * (count - own)
            distances += [_FREE if longer is None else longer - kind.rounds] * own
            longer = kind.rounds
        sums = [0]
        for distance in sorted(distances):
            sums.append(min(_FREE, sums[-1] + distance))
        return tuple(sums[: number + 1])


def _ends(left: list[int], number: int, length: int) -> int:
    """Return when ``number`` equal requests end at best on clients free after ``left`` rounds. Each
    goes to the client that is free first; ``left`` is sorted, and so a heap."""
    heap, end = left[:], 0
    for _ in range(number):
        end = heap[0] + length
        heapreplace(heap, end)
    return end


class Node(NamedTuple):
    """A state with the way to it. ``waiting``, ``active``: the state; ``stage``, ``rounds``: what
    lies between the two: a stage (or None), then rounds."""

    waiting: Counts
    active: tuple[int, ...]
    waited: bool  # in plain states, whether clients were left free at the finish before
    spent: int  # time of the stages and rounds until here
    before: Node | None  # the node before, or None at the start
    stage: Counts | None
    rounds: int

    @property
    def key(self) -> _Key:
        """Equal for nodes of which only the cheapest is of use."""
        return self.waiting, self.active, self.waited


class BestFirst(OpenStates):
    """The open states and what is known of those met; times in units.

    **What is left out.** Of equal states all but the cheapest. And a plain state B if another, A,
    with the same requests waiting has been expanded that can do as B does and end no later: let s
    rounds pass at A, as many as B has cost more. If then no client is busy longer than its
    counterpart in B, A goes on as B would. For that A may have to wait, so it is said only of
    states that did not (``waited``), neither of A nor of B: two could otherwise each wait to be the
    other. Between states that did not wait lies a stage, so fewer requests wait after each; by
    induction on their number an expanded state leads to no worse an end than any that was left out
    for it."""

    bound_first = True

    def __init__(self, states: States, best: int, bound: int, most_states: int) -> None:
        super().__init__(best, bound, most_states)
        self.states = states
        self._spent: dict[_Key, int] = {}
        self._front: dict[Counts, list[tuple[int, tuple[int, ...]]]] = {}

    def beat(self, best: int) -> None:
        """Go on below the time of a better incumbent that was found elsewhere."""
        self.best, self.found = best, None

    def _start(self) -> Node:
        return Node(self.states.start, (), False, 0, None, None, 0)

    def _kept(self) -> int:
        return len(self._spent)

    def _following(self, node: Node) -> Iterator[Node]:
        """Yield what may follow a state: a stage, or rounds until the next finish."""
        states = self.states
        for stage in states.stages(node.waiting, node.active):
            waiting = tuple(a - b for a, b in zip(node.waiting, stage, strict=True))
            spent = node.spent + states.stage_time(stage)
            active, rounds = states.with_stage(node.active, stage), 0
            if states.is_plain and any(waiting):
                rounds, active = states.until_finish(active)
                spent += rounds * states.round
            yield Node(waiting, active, False, spent, node, stage, rounds)
        if node.active:
            rounds, active = states.until_finish(node.active)
            spent = node.spent + rounds * states.round
            yield Node(node.waiting, active, states.is_plain, spent, node, None, rounds)

    def _offer(self, node: Node, least: int) -> None:
        """Open a state, unless it is known, no better than the incumbent, or at its end."""
        known = self._spent.get(node.key)
        if known is not None and known <= node.spent:
            return
        states = self.states
        if not any(node.waiting):
            end = node.spent + states.round * states.rounds_left(node.active)
            if end < self.best:
                self.best, self.found = end, node
            return
        least = max(least, node.spent + states.least(node.waiting, node.active))
        if least >= self.best:
            return
        self._spent[node.key] = node.spent
        self._serial += 1
        heappush(self._heap, (least, sum(node.waiting), self._serial, node))

    def _is_beaten(self, node: Node) -> bool:
        """Return whether a state can be left out; one that cannot stands against those to come."""
        if self._spent[node.key] < node.spent:
            return True
        if node.waited or not self.states.is_plain:
            return False
        spent, one = node.spent, self.states.round
        left = (0,) * (self.states.clients - len(node.active)) + node.active
        front = self._front.setdefault(node.waiting, [])
        for before, other in front:
            if before <= spent:
                slack = (spent - before) // one if one else _FREE
                for a, b in zip(other, left, strict=True):
                    if a - slack > b:
                        break
                else:
                    return True
        front.append((spent, left))
        return False

    def plan(self) -> Plan | None:
        """Return the plan of the best end found, or None where none beats the first incumbent."""
        if self.found is None:
            return None
        steps = [(node.stage, node.rounds) for node in self.way()]
        return plan_of_steps(self.states.rows, steps, self.states.rounds_left(self.found.active))
