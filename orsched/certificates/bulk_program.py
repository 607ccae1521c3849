"""The linear program that bounds bulk work beside requests that meet their limits.

Time is cut into windows; each step is spread evenly over its time, so that a window has a part of
it. What holds of every step then holds of the sums over the parts of a window (docs/proofs.md
proves each row). Any schedule is a solution; the program's value bounds them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.bulk_parts import Demands, Program, active_at_most, hopeless, rates_of
from orsched.certificates.scope import Scope, Sharing

if TYPE_CHECKING:
    from orsched.certificates.fields import Budget
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance

TIME_PARTS = 2**20
"""Rows of time are in so many parts of a nanosecond."""
HELD_PARTS = 2**10
"""Rows of memory are in so many parts of a token."""
_CELLS_AN_ENTRY = 1_000

Entry = tuple[int, int | Fraction]


@dataclass(frozen=True)
class Question:
    """What is bounded.

    Attributes:
        horizon_ns: until when work counts.
        needed: requests with limits that meet them, at least; None: their number is what is
            bounded, and bulk work plays no part.
        prompt_weight, output_weight: what a token of a bulk request counts.
        credit: when its prompt counts: ``output``: with each token of the output in proportion;
            ``prefill``: when its prefill is complete.
        measure: when a request meets its limits: ``attained``: by its first token and the mean of
            the others; ``in_time``: by each token.
        restarts: evictions of all requests together at most; None: any number.
        windows: moments that grow, from 0 to the horizon.
        pieces: into how many parts the rounds of a bulk request are divided.
    """

    horizon_ns: int
    needed: int | None
    prompt_weight: int
    output_weight: int
    credit: str
    measure: str
    restarts: int | None
    scope: Scope
    windows: list[int]
    pieces: int

    @classmethod
    def read(cls, instance: Instance, claim: dict[str, Any]) -> Question:
        """Return the question of a certificate; ``ValueError`` where it makes none."""
        windows = claim["windows"]
        if windows[0] != 0 or any(b <= a for a, b in pairwise(windows)):
            raise ValueError("the windows are not in order, from 0")
        scope = Scope.read(claim, instance)
        needed = claim["needed"] if claim["bound"] == "bulk" else None
        weights = claim["weights"] if needed is not None else (0, 0)
        credit = claim.get("credit", "output")
        return cls(
            windows[-1],
            needed,
            weights[0],
            weights[1],
            credit,
            claim["measure"],
            claim.get("restarts"),
            scope,
            windows,
            claim.get("pieces", 1),
        )

    def gain(self, prompt: int, output: int, tokens: int) -> int:
        """Return what so many tokens of a bulk request's output count, rounded up."""
        found = self.output_weight * tokens
        if self.credit == "output":
            found -= -self.prompt_weight * prompt * tokens // output
        return found


class BulkProgram(Program):
    """The program of a question about an instance.

    Raises ``ValueError`` if nothing is known of the steps of these schedules, ``BudgetError``
    beyond the budget.
    """

    def __init__(self, instance: Instance, question: Question, budget: Budget) -> None:
        super().__init__()
        instance.require_known_arrivals("a bound on bulk work or attainment")
        self.instance, self.question = instance, question
        self.sharing = Sharing.of(instance)
        self.demands = Demands.of(instance)
        self.computed: IntColumn = instance.requests.prompt_tokens - self.sharing.hits
        arrived = instance.requests.arrival_ns < question.horizon_ns
        wanted = question.needed is not None
        self.bulk = np.flatnonzero(instance.bulk & arrived).tolist() if wanted else []
        size = int(self._spans()[1].sum()) + len(self.bulk) * question.pieces
        size += len(instance) + len(question.windows)
        budget.spend(size * _CELLS_AN_ENTRY)
        budget.hold(size * 10)
        self.active = active_at_most(instance, self.held_first, self.room)
        self.rates = rates_of(instance, question.scope, self.active)
        limited = instance.requests.prompt_tokens[self.demands.rows]
        self.again_ns = self.rates.again_of(int(limited.min(initial=1)))
        self._columns()
        self._requests_with_limits()
        if wanted:
            self._bulk_requests()
        self._shared_prefixes()
        self._window_rows()

    # -- what requests hold -----------------------------------------------------------------

    @cached_property
    def room(self) -> int | None:
        """The most memory of a worker, in parts of a token; None where one has no limit."""
        memories = [worker.memory for worker in self.instance.workers]
        sizes = [m.blocks * m.block_tokens for m in memories if m is not None]
        return max(sizes) * HELD_PARTS if len(sizes) == len(memories) else None

    @cached_property
    def _grows(self) -> bool:
        memories = [worker.memory for worker in self.instance.workers]
        return any(memory is None or memory.is_paged for memory in memories)

    @cached_property
    def held_first(self) -> IntColumn:
        """What each request holds in its first round at least, its share of what is shared."""
        requests = self.instance.requests
        most = max(worker.clients for worker in self.instance.workers)
        shares, tokens = [0], [0]  # the last one for no segment: index -1
        for segment in self.sharing.segments:
            part = segment.tokens * HELD_PARTS // min(segment.sharers, most)
            at = segment.parent if segment.parent >= 0 else len(shares) - 1
            shares.insert(-1, part + (shares[at] if segment.parent >= 0 else 0))
            tokens.insert(-1, segment.tokens + (tokens[at] if segment.parent >= 0 else 0))
        ends = np.array(self.sharing.shared, np.int64)
        own = requests.prompt_tokens - np.array(tokens)[ends]
        own = own + (1 if self._grows else requests.output_tokens)
        held: IntColumn = own * HELD_PARTS + np.array(shares)[ends]
        return held

    # -- columns ----------------------------------------------------------------------------

    def _columns(self) -> None:
        """Columns and rows of each window; the entries of rows are collected until the end."""
        instance, rates, windows = self.instance, self.rates, self.question.windows
        requests = instance.requests
        self.count = len(windows) - 1
        tokens = int(requests.output_tokens.sum())
        contexts = requests.prompt_tokens + requests.output_tokens
        context = int(contexts.max(initial=1))
        held = int(self.held_first.max(initial=0))
        held += HELD_PARTS * int(requests.output_tokens.max(initial=1))
        rows = self.demands.rows
        self.most_context = int(contexts[rows].max(initial=1))  # of requests with limits
        self.most_held = int(self.held_first[rows].max(initial=0))
        self.most_held += HELD_PARTS * int(requests.output_tokens[rows].max(initial=1))

        def by_window(upper: int, present: bool = True) -> list[int]:
            return [self.column(upper) for _ in range(self.count)] if present else []

        again = rates.again_fixed is not None
        bulk = bool(self.bulk)
        self.round = by_window(tokens)
        self.again_step = by_window(tokens, again)
        self.by_round = by_window(tokens, again)
        self.by_again = by_window(tokens, again)
        self.tokens = by_window(tokens, bulk)
        self.tokens_again = by_window(tokens, bulk and again)
        self.context = by_window(tokens * context, rates.context > 0 or rates.longest > 0)
        self.read = by_window(tokens * context, again and rates.context > 0)
        self.longest = by_window(tokens * context, rates.longest > 0)
        self.held = by_window(tokens * held, self.room is not None)
        weighted = rates.longest > 0 and self.room is not None
        self.weighted = by_window(tokens * context * held, weighted)
        self.prefill = [self.column(len(instance.workers) * (b - a)) for a, b in pairwise(windows)]
        empty: list[list[Entry]] = [[] for _ in range(self.count)]
        self.decode_time = [list(each) for each in empty]
        self.prefill_time = self.decode_time if rates.added else [list(each) for each in empty]
        self.in_window: dict[str, list[list[Entry]]] = {
            name: [[] for _ in range(self.count)]
            for name in ("tokens", "context", "held", "weighted")
        }
        self.in_all: dict[str, list[Entry]] = {
            name: []
            for name in ("tokens", "tokens_again", "context", "held", "weighted", "prefill")
        }
        self.segment_users: list[tuple[int, int, int]] = []  # column, segment, prompt tokens

    def _spans(self) -> tuple[IntColumn, IntColumn]:
        """First window of each request with limits, and how many its rounds may be in."""
        windows = np.array(self.question.windows, np.int64)
        first = np.searchsorted(windows, self.demands.arrival_ns, "right") - 1
        until = np.minimum(self.demands.end_ns, windows[-1])
        last = np.maximum(np.searchsorted(windows, until, "left") - 1, first)
        counts: IntColumn = last - first + 1
        return first, counts

    # -- requests with limits ---------------------------------------------------------------

    def _requests_with_limits(self) -> None:
        question, demands = self.question, self.demands
        without = hopeless(self.instance, demands, self.rates, self.computed, question.measure)
        firsts, counts = self._spans()
        windows = np.array(question.windows, np.int64)
        untils = np.searchsorted(windows, np.minimum(demands.first_ns, windows[-1]), "left") - 1
        attained, met = int(question.needed is None), []
        for at, row in enumerate(demands.rows.tolist()):
            column = self.column(0 if without[at] else 1, attained)
            met.append((column, -1))
            first = int(firsts[at])
            if demands.first_ns[at] <= question.horizon_ns:
                self._prefill_in(column, row, range(first, max(first, int(untils[at])) + 1))
            if demands.end_ns[at] <= question.horizon_ns and demands.rounds[at]:
                rounds = int(demands.rounds[at])
                self._rounds_in(column, row, rounds, range(first, first + int(counts[at])))
        if question.needed is not None:
            self.at_most(met, -question.needed)

    def _prefill_in(self, column: int, row: int, windows: range) -> None:
        """What a request computes itself, in the windows until its first token is due."""
        tokens = int(self.computed[row])
        own = self.rates.prefills.of(tokens)
        self.segment_users.append((column, self.sharing.last[row], tokens))
        if len(windows) == 1:
            self.prefill_time[windows[0]].append((column, own))
            return
        parts = [self.column(1) for _ in windows]
        self.at_most([(column, 1), *((part, -1) for part in parts)], 0)
        for window, part in zip(windows, parts, strict=True):
            self.prefill_time[window].append((part, own))

    def _rounds_in(self, column: int, row: int, rounds: int, windows: range) -> None:
        """A request's rounds, in the windows until its end is due: each is in another step."""
        amounts: list[tuple[int, int]] = [(column, rounds)]
        if len(windows) > 1:
            amounts = [(self.column(rounds), 1) for _ in windows]
            self.at_most([(column, rounds), *((part, -1) for part, _ in amounts)], 0)
        if self.question.measure == "in_time":
            self._each_in_time(column, row, rounds, windows, [part for part, _ in amounts])
        context = int(self.instance.requests.prompt_tokens[row]) + 1
        held, grows = int(self.held_first[row]), HELD_PARTS * self._grows
        later = rounds * (rounds - 1) // 2
        squares = (rounds - 1) * rounds * (2 * rounds - 1) // 6
        more = {
            "context": later,
            "held": grows * later,
            "weighted": (held + grows * context) * later + grows * squares,
        }
        first = {"tokens": 1, "context": context, "held": held, "weighted": context * held}
        for window, (part, factor) in zip(windows, amounts, strict=True):
            for name, value in first.items():
                self.in_window[name][window].append((part, factor * value))
            steps = [(self.round[window], -1)]
            if self.again_step:
                steps.append((self.again_step[window], -1))
            self.at_most([(part, factor), *steps], 0)
            if self.longest:
                beside = [(self.longest[window], -1)]
                if self.by_again:
                    beside.append((self.by_again[window], -context))
                self.at_most([(part, factor * context), *beside], 0)
        for name, value in more.items():
            self.in_all[name].append((column, value))

    def _each_in_time(
        self, column: int, row: int, rounds: int, windows: range, parts: list[int]
    ) -> None:
        """Rounds of which the tokens are due in a window are in this one or before."""
        instance = self.instance
        kind = instance.classes[int(instance.requests.service_class[row])]
        if kind.ttft_ns is None or kind.tpot_ns is None or len(windows) == 1:
            return
        begun = int(instance.requests.arrival_ns[row]) + kind.ttft_ns
        after = instance.first_token == "decode"
        for count, window in enumerate(windows[:-1], start=1):
            late = self.question.windows[window + 1] - begun
            due = min(rounds, late // max(1, kind.tpot_ns) + after) if late >= 0 else 0
            if due > 0:
                self.at_most([(column, due), *((part, -1) for part in parts[:count])], 0)

    # -- bulk requests ----------------------------------------------------------------------

    def _bulk_requests(self) -> None:
        question, instance = self.question, self.instance
        requests, needed = instance.requests, instance.rounds_needed
        yields = instance.first_token == "prefill"
        for row in self.bulk:
            prompt, rounds = int(requests.prompt_tokens[row]), int(needed[row])
            output = int(requests.output_tokens[row])
            gain = question.gain(prompt, output, int(yields))
            if question.credit == "prefill":
                gain += question.prompt_weight * prompt
            column = self.column(1, gain)
            tokens = int(self.computed[row])
            self.segment_users.append((column, self.sharing.last[row], tokens))
            self.in_all["prefill"].append((column, self.rates.prefills.of(tokens)))
            self._output(column, row, prompt, rounds)

    def _output(self, prefilled: int, row: int, prompt: int, rounds: int) -> None:
        """Rounds of a bulk request in pieces, each at its mean; what convexity may lack is given.

        A piece of L rounds, of which some are done, the cheapest, takes at most a quarter of L
        times the difference of its ends less than its mean says.
        """
        pieces = max(1, min(self.question.pieces, rounds))
        bounds = [rounds * k // pieces for k in range(pieces + 1)]
        held, grows = int(self.held_first[row]), HELD_PARTS * self._grows
        lack = {"context": 0, "held": 0, "weighted": 0}
        output = int(self.instance.requests.output_tokens[row])
        pieces_and_again: list[Entry] = []
        for begin, end in pairwise(bounds):
            count = end - begin
            if not count:
                continue
            part = self.column(1, self.question.gain(prompt, output, count))
            pieces_and_again.append((part, count))
            self.at_most([(part, 1), (prefilled, -1)], 0)
            self.in_all["tokens"].append((part, count))
            sums = sums_of(prompt + 1, held, grows, begin, end)
            ends = [
                (prompt + 1 + k, held + grows * k, (prompt + 1 + k) * (held + grows * k))
                for k in (begin, end - 1)
            ]
            for at, name in enumerate(lack):
                self.in_all[name].append((part, sums[at]))
                lack[name] = max(lack[name], -(-count * (ends[1][at] - ends[0][at]) // 4))
        for name, value in lack.items():
            self.in_all[name].append((prefilled, -value))
        if self.tokens_again and rounds:
            again = self.column(1, self.question.gain(prompt, output, rounds))
            pieces_and_again.append((again, rounds))
            self.at_most([*pieces_and_again, (prefilled, -rounds)], 0)
            self.in_all["tokens_again"].append((again, rounds))
            self.in_all["held"].append((again, rounds * held))
            cost = rounds * self.rates.again_of(prompt)
            self.in_all["prefill"].append((again, cost))

    # -- shared prefixes --------------------------------------------------------------------

    def _shared_prefixes(self) -> None:
        """Each shared block is computed once at least, if a request that has it is served."""
        segments = self.sharing.segments
        slopes: dict[int, Fraction] = {}
        for _, segment, tokens in self.segment_users:
            slope = self.rates.prefills.slope(tokens)
            while segment >= 0 and slope < slopes.get(segment, slope + 1):
                slopes[segment] = slope
                segment = segments[segment].parent
        columns = {segment: self.column(1) for segment in sorted(slopes)}
        for segment, column in columns.items():
            cost = slopes[segment] * segments[segment].once
            self.in_all["prefill"].append((column, cost))
            if segments[segment].parent >= 0:
                self.at_most([(column, 1), (columns[segments[segment].parent], -1)], 0)
        for user, segment, _ in self.segment_users:
            if segment >= 0:
                self.at_most([(user, 1), (columns[segment], -1)], 0)

    # -- windows ----------------------------------------------------------------------------

    def _window_rows(self) -> None:
        for window, (begin, end) in enumerate(pairwise(self.question.windows)):
            self._tokens_in(window)
            self._contexts_in(window)
            self._times_in(window, end - begin)
        totals = {
            "tokens": self.tokens,
            "tokens_again": self.tokens_again,
            "context": self.context,
            "held": self.held,
            "weighted": self.weighted,
        }
        for name, columns in totals.items():
            if columns:
                self.at_most([*self.in_all[name], *((c, -1) for c in columns)], 0)
        self.at_most([*self.in_all["prefill"], *((c, -1) for c in self.prefill)], 0, TIME_PARTS)
        if self.question.restarts is not None and self.again_step:
            again = [*self.in_all["tokens_again"], *((c, 1) for c in self.by_again)]
            self.at_most(again, self.question.restarts)

    def _tokens_in(self, window: int) -> None:
        """At most J tokens a step, of requests that fit into memory together."""
        present = list(self.in_window["tokens"][window])
        steps = [self.round[window]]
        if self.again_step:
            steps.append(self.again_step[window])
            ways = [(self.by_round[window], 1), (self.by_again[window], 1)]
            self.at_most([*present, *((way, -1) for way, _ in ways)], 0)
            self.at_most([*((c, -k) for c, k in present), *ways], 0)
            in_rounds = [ways[0], *((c[window], 1) for c in (self.tokens,) if c)]
            self.at_most([*in_rounds, (steps[0], -self.active)], 0)
            yielded = [ways[1], *((c[window], 1) for c in (self.tokens_again,) if c)]
            self.at_most([(steps[1], 1), *((c, -1) for c, _ in yielded)], 0)
        for of_bulk in (self.tokens, self.tokens_again):
            present += [(of_bulk[window], 1)] if of_bulk else []
        self.at_most([*present, *((step, -self.active) for step in steps)], 0)
        if self.room is not None:
            held = [*self.in_window["held"][window], (self.held[window], 1)]
            self.at_most([*held, *((step, -self.room) for step in steps)], 0)

    def _contexts_in(self, window: int) -> None:
        """The longest context of a round is at least the mean one, also weighted by memory.

        A token of a repeated prefill has no context, which takes the longest one off at most.
        """
        if not self.context:
            return
        found = [*self.in_window["context"][window], (self.context[window], 1)]
        again = [(self.by_again[window], -self.most_context)] if self.by_again else []
        if self.read:
            self.at_most([*found, *again, (self.read[window], -1)], 0)
        if not self.longest:
            return
        longest = self.longest[window]
        self.at_most([*found, *again, (longest, -self.active)], 0)
        if self.weighted and self.room is not None:
            found = [*self.in_window["weighted"][window], (self.weighted[window], 1)]
            most = self.most_context * self.most_held
            again = [(self.by_again[window], -most)] if self.by_again else []
            self.at_most([*found, *again, (longest, -self.room)], 0, Fraction(1, HELD_PARTS))

    def _times_in(self, window: int, length: int) -> None:
        rates, time = self.rates, self.decode_time[window]
        prefill_time = self.prefill_time[window]
        time.append((self.round[window], rates.round_fixed))
        if self.again_step and rates.again_fixed is not None:
            prefill_time.append((self.again_step[window], rates.again_fixed))
            prefill_time.append((self.by_again[window], self.again_ns))
            time.append((self.by_round[window], rates.request))
        else:
            time += [(c, rates.request * k) for c, k in self.in_window["tokens"][window]]
        time += [(self.tokens[window], rates.request)] if self.tokens else []
        if self.read:
            time.append((self.read[window], rates.context))
        elif rates.context:
            time += [(c, rates.context * k) for c, k in self.in_window["context"][window]]
            time.append((self.context[window], rates.context))
        if self.longest:
            time.append((self.longest[window], rates.longest))
        prefill_time.append((self.prefill[window], 1))
        capacity = len(self.instance.workers) * length
        for entries in [time] if time is prefill_time else [time, prefill_time]:
            self.at_most(_added(entries), capacity, TIME_PARTS)


def sums_of(context: int, held: int, grows: int, begin: int, end: int) -> tuple[int, int, int]:
    """Return the sums over rounds begin .. end - 1 of context, memory, and of their product."""

    def both(count: int) -> tuple[int, int]:
        return count * (count - 1) // 2, (count - 1) * count * (2 * count - 1) // 6

    count = end - begin
    (one, two), (less, lesser) = both(end), both(begin)
    later, squares = one - less, two - lesser
    product = count * context * held + (held + grows * context) * later + grows * squares
    return count * context + later, count * held + grows * later, product


def _added(entries: list[Entry]) -> list[Entry]:
    """Return the entries with those of one column added up."""
    found: dict[int, int | Fraction] = {}
    for column, value in entries:
        found[column] = found.get(column, 0) + value
    return list(found.items())
