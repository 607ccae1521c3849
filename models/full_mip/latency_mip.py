"""The MIP of objectives that ask when each request is done: bins that end with a finish. A bin is a
prefill stage, or none, and the rounds behind it; a request that finishes does so with the last
round of a bin. So every bin begins with a prefill stage or behind a finish, 2 n - 1 bins suffice
for n requests, a request decodes in all rounds of its bins, and it is done when the last of them
ends. Variables by request i and bin k: s_ik, prefilled in k; f_ik, done at the end of k; on_ik, on
a client in k; w_ik, its rounds in k. The page *The full MIP* has the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from orsched.models.exact_search.stage_plan import Plan
from orsched.models.full_mip.linear_solvers import BINARY, CONTINUOUS, INTEGER, LinearModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.models.exact_search.aims import Terms
    from orsched.models.exact_search.stage_plan import Problem


class Bin(NamedTuple):
    """A prefill stage or none, and the rounds until the next finish or prefill."""

    level: int | None  # place of the stage's level, None without a stage
    rounds: int  # rounds behind it
    running: tuple[int, ...]  # the requests that decode in them
    times: tuple[int, int, int]  # when it begins, when its prefill ends and when it ends, in units


@dataclass(frozen=True)
class Refined:
    """The bins, and for each request those in which it is prefilled and done."""

    bins: tuple[Bin, ...]
    windows: tuple[tuple[int, int], ...]


def refined(problem: Problem, plan: Plan, equals: Sequence[tuple[int, int]] = ()) -> Refined:
    """Return the bins of a plan; of requests that are ``equals`` the first is prefilled first."""
    stage = _in_order(plan.stage, equals)
    left = dict[int, int]()
    bins: list[Bin] = []
    begun, done = [0] * len(stage), [0] * len(stage)
    now = 0
    for k, rounds in enumerate(plan.rounds):
        inside = [i for i, each in enumerate(stage) if each == k]
        now = max([now, *(problem.arrivals[i] for i in inside)])
        level, prefill = _prefill(problem, inside)
        for i in inside:
            begun[i] = done[i] = len(bins)
            if problem.needed[i]:
                left[i] = problem.needed[i]
        while True:
            part = min([rounds, *left.values()]) if left else 0
            if level is None and not part:
                break
            running = tuple(left)
            decode = part * (problem.round_fixed + problem.round_client * len(running))
            bins.append(Bin(level, part, running, (now, now + prefill, now + prefill + decode)))
            now += prefill + decode
            rounds -= part
            level, prefill = None, 0
            for i in running:
                left[i] -= part
                done[i] = len(bins) - 1
            left = {i: count for i, count in left.items() if count}
    return Refined(tuple(bins), tuple(zip(begun, done, strict=True)))


def _prefill(problem: Problem, inside: Sequence[int]) -> tuple[int | None, int]:
    """Return the level of a prefill stage and how long it takes; None without requests."""
    if not inside:
        return None, 0
    tokens = sum(problem.prompts[i] for i in inside)
    level = next(n for n, (cap, _) in enumerate(problem.levels) if cap >= tokens)
    return level, problem.levels[level][1] + problem.prompt_token * tokens


def _in_order(stage: Sequence[int], equals: Sequence[tuple[int, int]]) -> list[int]:
    """Return stages exchanged between equal requests so that earlier ones come first."""
    groups: dict[int, list[int]] = {}
    of: dict[int, int] = {}
    for i, j in equals:
        head = of.setdefault(i, i)
        of[j] = head
        groups.setdefault(head, [head]).append(j)
    found = list(stage)
    for rows in groups.values():
        for row, each in zip(rows, sorted(found[row] for row in rows), strict=True):
            found[row] = each
    return found


def bins_that_suffice(problem: Problem) -> int:
    """Return how many bins the model needs: each begins with a prefill stage or behind a finish."""
    decoding = sum(1 for needed in problem.needed if needed)
    return max(1, len(problem) + max(0, decoding - 1))


class LatencyMip:
    """The model of a problem (``read_problem(exact=True)``) with ``stages`` bins and an objective
    of times or limits. ``first_in_round``: whether a decode round yields the first token, not the
    prefill; ``symmetry_breaking``: used bins come first, and equal requests keep their order."""

    name = "latency-mip"

    def __init__(
        self,
        problem: Problem,
        stages: int,
        terms: Terms,
        first_in_round: bool,
        symmetry_breaking: bool = True,
    ) -> None:
        self.problem, self.stages, self.terms = problem, stages, terms
        self.first_in_round = first_in_round
        self.model = LinearModel()
        beside = problem.round_fixed + problem.round_client * len(problem)
        # At most as many stages as requests, and a round more, for first tokens.
        self.horizon = problem.horizon(len(problem)) + beside
        self._times()
        self._requests()
        self._windows()
        self._stages()
        self._tokens()
        if symmetry_breaking:
            self._order()
        self._objective()

    # -- variables ----------------------------------------------------------------------------

    def _times(self) -> None:
        add, every, most = self.model.add, range(self.stages), self.problem.most_rounds
        self.level = [
            [add(f"y_{k}_{number}", BINARY, 1) for number in range(len(self.problem.levels))]
            for k in every
        ]
        self.used = [add(f"u_{k}", BINARY, 1) for k in every]
        self.rounds = [add(f"r_{k}", INTEGER, most) for k in every]
        self.start = [add(f"ts_{k}", CONTINUOUS, self.horizon) for k in every]
        self.prefilled = [add(f"tp_{k}", CONTINUOUS, self.horizon) for k in every]
        self.ended = [add(f"te_{k}", CONTINUOUS, self.horizon) for k in every]

    def _requests(self) -> None:
        problem, add, bins = self.problem, self.model.add, range(self.stages)

        def family(letter: str, kind: str, most: Sequence[int]) -> list[list[int]]:
            highest = enumerate(most)
            return [[add(f"{letter}_{i}_{k}", kind, high) for k in bins] for i, high in highest]

        ones = [1] * len(problem)
        decoding = [int(needed > 0) for needed in problem.needed]
        self.s = family("s", BINARY, ones)
        self.f = family("f", BINARY, decoding)
        self.on = family("on", BINARY, decoding)
        self.w = family("w", CONTINUOUS, problem.needed)
        self.c = family("c", BINARY, ones) if self.first_in_round else []
        limits, n = self.terms.limits, range(len(problem))
        judged = [limits is not None and limits[i] is not None for i in n]
        self.miss = {i: add(f"miss_{i}", BINARY, 1) for i in n if judged[i]}
        wants_first = [bool(self.terms.first[i]) or judged[i] for i in n]
        self.due = {i: due for i, due in enumerate(self.terms.due or ()) if due is not None}
        wants_finish = [bool(self.terms.finish[i]) or judged[i] or i in self.due for i in n]
        self.first = {i: add(f"first_{i}", CONTINUOUS, self.horizon) for i in n if wants_first[i]}
        self.finish = {
            i: add(f"finish_{i}", CONTINUOUS, self.horizon) for i in n if wants_finish[i]
        }
        self.end = add("tmax", CONTINUOUS, self.horizon) if self.terms.makespan else None
        self._lateness()

    def _lateness(self) -> None:
        """Add the tardiness of each request that is due, or the largest lateness of all."""
        terms, add, row = self.terms, self.model.add, self.model.row
        most = self.horizon * terms.fine
        self.late = {
            i: add(f"late_{i}", CONTINUOUS, max(0, most - due))
            for i, due in self.due.items()
            if terms.late is not None
        }
        self.latest = None
        if self.due and terms.late is None:
            self.latest = add("latest", CONTINUOUS, most + terms.shift)
        for i, due in self.due.items():
            column = self.late[i] if self.latest is None else self.latest
            row(f"due_{i}", [(column, 1), (self.finish[i], -terms.fine)], least=terms.shift - due)

    # -- rows ---------------------------------------------------------------------------------

    def _windows(self) -> None:
        """Add that each request is prefilled once, then on a client, then done."""
        row = self.model.row
        for i, due in enumerate(self.problem.needed):
            row(f"s_{i}", [(column, 1) for column in self.s[i]], least=1, most=1)
            if not due:
                continue
            row(f"f_{i}", [(column, 1) for column in self.f[i]], least=1, most=1)
            row(f"w_{i}", [(column, 1) for column in self.w[i]], least=due, most=due)
            for k in range(self.stages):
                went = [(self.on[i][k - 1], -1), (self.f[i][k - 1], 1)] if k else []
                row(f"on_{i}_{k}", [(self.on[i][k], 1), (self.s[i][k], -1), *went], 0, 0)
                row(f"done_{i}_{k}", [(self.on[i][k], 1), (self.f[i][k], -1)], least=0)
                w, on, rounds = self.w[i][k], self.on[i][k], self.rounds[k]
                most = self.problem.most_rounds
                row(f"w0_{i}_{k}", [(on, due), (w, -1)], least=0)
                row(f"w1_{i}_{k}", [(rounds, 1), (w, -1)], least=0)
                row(f"w2_{i}_{k}", [(rounds, 1), (w, -1), (on, most)], most=most)

    def _stages(self) -> None:
        """Add clients, memory, prefill caps, and the times at which bins begin and end."""
        problem, row = self.problem, self.model.row
        n = range(len(problem))
        for k in range(self.stages):
            held = [self.on[i][k] if problem.needed[i] else self.s[i][k] for i in n]
            row(f"clients_{k}", [(column, 1) for column in held], most=problem.clients)
            if problem.memory_blocks is not None:
                blocks = [(column, problem.blocks[i]) for i, column in enumerate(held)]
                row(f"m_{k}", blocks, most=problem.memory_blocks)
            tokens = [(self.s[i][k], problem.prompts[i]) for i in n]
            levels = list(zip(self.level[k], problem.levels, strict=True))
            row(f"cap_{k}", [*tokens, *((y, -cap) for y, (cap, _) in levels)], most=0)
            row(f"one_{k}", [(y, 1) for y, _ in levels], most=1)
            some = [(self.s[i][k], 1) for i in n]
            row(f"some_{k}", [*some, *((y, -1) for y, _ in levels)], least=0)
            taken = [(column, problem.prompt_token * size) for column, size in tokens]
            times = [(y, time) for y, (_, time) in levels]
            begun = [(self.prefilled[k], -1), (self.start[k], 1)]
            row(f"tp_{k}", [*begun, *times, *taken], least=0, most=0)
            served = [(self.w[i][k], problem.round_client) for i in n]
            decoded = [(self.ended[k], -1), (self.prefilled[k], 1)]
            row(f"te_{k}", [*decoded, (self.rounds[k], problem.round_fixed), *served], 0, 0)
            if k:
                row(f"ts_{k}", [(self.start[k], 1), (self.ended[k - 1], -1)], least=0)
            for i in n:
                if problem.arrivals[i]:
                    late = (self.s[i][k], -problem.arrivals[i])
                    row(f"a_{i}_{k}", [(self.start[k], 1), late], least=0)

    def _tokens(self) -> None:
        """Add when first and last tokens come: bounds from below, of judged ones from above too."""
        row, horizon = self.model.row, self.horizon
        for k in range(self.stages):
            for i, column in self.first.items():
                said = self._at_first(i, k)
                when = self.c[i][k] if self.first_in_round else self.s[i][k]
                row(f"first_{i}_{k}", [(column, 1), *_less(said), (when, -horizon)], -horizon)
                if i in self.miss:
                    latest = [(column, 1), *_less(said), (when, horizon)]
                    row(f"latest_{i}_{k}", latest, most=horizon)
            for i, column in self.finish.items():
                decodes = self.problem.needed[i] > 0
                said = [(self.ended[k] if decodes else self.prefilled[k], 1)]
                when = self.f[i][k] if decodes else self.s[i][k]
                row(f"finish_{i}_{k}", [(column, 1), *_less(said), (when, -horizon)], -horizon)
            if self.end is not None:
                row(f"end_{k}", [(self.end, 1), (self.ended[k], -1)], least=0)
        if self.first_in_round:
            self._first_rounds()

    def _at_first(self, i: int, k: int) -> list[tuple[int, int]]:
        """Return the time of the first token of a request that has it in bin k, as terms."""
        if not self.first_in_round:
            return [(self.prefilled[k], 1)]
        problem = self.problem
        decoding = (on for on, due in zip(self.on, problem.needed, strict=True) if due)
        beside = [(on[k], problem.round_client) for on in decoding]
        fixed = (self.c[i][k], problem.round_fixed)  # c is 1 where the row says something
        return [(self.prefilled[k], 1), fixed, *beside]

    def _first_rounds(self) -> None:
        """Add in which bin each request has its first round."""
        row = self.model.row
        for i, due in enumerate(self.problem.needed):
            row(f"c_{i}", [(column, 1) for column in self.c[i]], least=1, most=1)
            for k in range(self.stages):
                row(f"c0_{i}_{k}", [(self.w[i][k], 1), (self.c[i][k], -1)], least=0)
                before = [(self.c[i][b], due) for b in range(k + 1)]
                row(f"c1_{i}_{k}", [(self.w[i][k], -1), *before], least=0)

    def _order(self) -> None:
        """Add that used bins come first, each with a prefill or behind a finish; equals in row."""
        row, problem = self.model.row, self.problem
        for k in range(self.stages):
            prefills = [(y, 1) for y in self.level[k]]
            row(f"u0_{k}", [(self.used[k], 1), *_less(prefills)], least=0)
            row(f"u1_{k}", [(self.used[k], problem.most_rounds), (self.rounds[k], -1)], least=0)
            row(f"u2_{k}", [*prefills, (self.rounds[k], 1), (self.used[k], -1)], least=0)
            if k:
                row(f"u3_{k}", [(self.used[k - 1], 1), (self.used[k], -1)], least=0)
                done = [(f[k - 1], 1) for f in self.f]
                row(f"u4_{k}", [*prefills, *done, (self.used[k], -1)], least=0)
        for i, j in self.equals():
            later = [(column, k) for k, column in enumerate(self.s[j])]
            row(f"same_{i}_{j}", [*later, *((c, -k) for k, c in enumerate(self.s[i]))], least=0)

    def equals(self) -> list[tuple[int, int]]:
        """Return pairs of requests that an exchange would leave everything the same."""
        problem, terms = self.problem, self.terms
        last: dict[object, int] = {}
        pairs: list[tuple[int, int]] = []
        for i in range(len(problem)):
            limit = None if terms.limits is None else terms.limits[i]
            late = None if terms.late is None else terms.late[i]
            kind = (
                problem.prompts[i], problem.needed[i], problem.blocks[i], problem.arrivals[i],
                terms.finish[i], terms.first[i], limit, self.due.get(i), late,
            )  # fmt: skip
            if kind in last:
                pairs.append((last[kind], i))
            last[kind] = i
        return pairs

    def _objective(self) -> None:
        terms, row = self.terms, self.model.row
        for i, column in self.miss.items():
            limit = None if terms.limits is None else terms.limits[i]
            assert limit is not None
            ttft, decode = limit
            if ttft >= 0:
                most = ttft + self.problem.arrivals[i]
                row(f"ttft_{i}", [(self.first[i], 1), (column, -self.horizon)], most=most)
            if decode >= 0:
                took = [(self.finish[i], 1), (self.first[i], -1)]
                row(f"tpot_{i}", [*took, (column, -self.horizon)], most=decode)
        aim = [(column, 1) for column in self.miss.values()]
        aim += [(column, terms.first[i]) for i, column in self.first.items()]
        aim += [(column, terms.finish[i]) for i, column in self.finish.items()]
        aim += [(column, (terms.late or ())[i]) for i, column in self.late.items()]
        if self.latest is not None:
            aim.append((self.latest, 1))
        if self.end is not None:
            aim.append((self.end, terms.makespan))
        self.model.minimise(aim)

    def at_least(self, units: int) -> None:
        """Add a bound on the objective that is known."""
        self.model.row("bound", self.model.objective, least=units)

    # -- plans --------------------------------------------------------------------------------

    def values_of(self, plan: Plan) -> list[int]:
        """Return the values of all variables that stand for a plan."""
        problem, values = self.problem, [0] * len(self.model.names)
        found = refined(problem, plan, self.equals())
        put = values.__setitem__
        for k, bin_ in enumerate(found.bins):
            put(self.used[k], 1)
            put(self.rounds[k], bin_.rounds)
            if bin_.level is not None:
                put(self.level[k][bin_.level], 1)
            for i in bin_.running:
                put(self.on[i][k], 1)
                put(self.w[i][k], bin_.rounds)
        for k in range(self.stages):
            times = found.bins[min(k, len(found.bins) - 1)] if found.bins else None
            begun, prefilled, ended = (0, 0, 0) if times is None else times.times
            put(self.start[k], begun if k < len(found.bins) else ended)
            put(self.prefilled[k], prefilled if k < len(found.bins) else ended)
            put(self.ended[k], ended)
        for i, (start, done) in enumerate(found.windows):
            put(self.s[i][start], 1)
            if problem.needed[i]:
                put(self.f[i][done], 1)
            self._put_tokens(values, found.bins, i, start, done)
        if self.end is not None:
            put(self.end, found.bins[-1].times[2] if found.bins else 0)
        return values

    def _put_tokens(
        self, values: list[int], bins: Sequence[Bin], i: int, start: int, done: int
    ) -> None:
        problem = self.problem
        first = bins[start].times[1]
        if self.first_in_round:
            begun = next(k for k in range(start, done + 1) if bins[k].rounds)
            values[self.c[i][begun]] = 1
            beside = problem.round_client * len(bins[begun].running)
            first = bins[begun].times[1] + problem.round_fixed + beside
        finish = bins[done].times[2] if problem.needed[i] else bins[start].times[1]
        if i in self.first:
            values[self.first[i]] = first
        if i in self.finish:
            values[self.finish[i]] = finish
        if i in self.due:
            late = self.terms.fine * finish - self.due[i]
            if self.latest is None:
                values[self.late[i]] = max(0, late)
            else:
                values[self.latest] = max(values[self.latest], late + self.terms.shift)
        if i in self.miss:
            limit = None if self.terms.limits is None else self.terms.limits[i]
            assert limit is not None
            late = 0 <= limit[0] < first - problem.arrivals[i]
            values[self.miss[i]] = int(late or 0 <= limit[1] < finish - first)

    def plan_of(self, values: Sequence[float]) -> Plan:
        """Return the plan in a solution; requests take the lowest free clients. With limits it
        holds the times at which bins begin: to wait may keep one."""
        every = range(self.stages)
        stage = tuple(max(every, key=lambda k, of=s: values[of[k]]) for s in self.s)  # type: ignore[misc]
        rounds = tuple(round(values[column]) for column in self.rounds)
        if self.terms.limits is None:
            return Plan(stage, None, rounds)
        return Plan(stage, None, rounds, tuple(self._begins(stage, values)))

    def _begins(self, stage: tuple[int, ...], values: Sequence[float]) -> list[int]:
        """Return when bins begin, in units: their prefill takes no longer than it must."""
        problem, found = self.problem, []
        for k in range(self.stages):
            tokens = sum(p for p, s in zip(problem.prompts, stage, strict=True) if s == k)
            least = 0
            if tokens:
                least = next(time for cap, time in problem.levels if cap >= tokens)
                least += problem.prompt_token * tokens
            found.append(max(0, round(values[self.prefilled[k]]) - least))
        return found


def _less(terms: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(column, -value) for column, value in terms]
