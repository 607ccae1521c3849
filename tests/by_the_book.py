"""Schedules read literally: rules and reported numbers, one request, step and round at a time.

Slow, meant to be read, and without a line of the checker, the metrics or the timeline: all must
agree on every schedule. (``tests.oracle`` makes schedules as literally.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from itertools import pairwise

from orsched import check, summarise
from orsched.costs import mixed_ns
from tests.prefix_book import PrefixBook

PREFILL, DECODE, MIXED, INVALID = 0, 1, 2, 2


class Wrong(Exception):
    """A rule is broken."""


def require(condition, rule):
    if not condition:
        raise Wrong(rule)


@dataclass
class Stay:
    """A stay; ``does`` says by step what is done for it: phase of the row, tokens, cache after.

    ``due`` are the tokens that it has to have, ``then`` those that the next one will have to have;
    hit, turn, rested and exit are what it says of prefix caches.
    """

    request: int
    worker: int
    client: int
    first: int
    last: int
    does: dict = field(default_factory=dict)
    due: int = 0
    hit: int = 0
    turn: int = 0
    rested: int = 0
    exit: int = 0
    then: int = 0
    finished: bool = False
    sent: object = None
    came: object = None

    def cache_in(self, step):
        """Tokens in the cache after a step of its worker."""
        if step < self.first:
            return self.came.tokens
        return self.does[max(s for s in self.does if s <= step)][2]


class Book:
    """A schedule, gone through by the rules; ``Wrong`` at the first rule that is broken."""

    def __init__(self, instance, schedule):
        self.instance, self.requests = instance, instance.requests
        self.steps = table(schedule.steps)
        self.work = table(schedule.work)
        self.transfers = [] if schedule.transfers is None else table(schedule.transfers)
        self.on_times = schedule.on_times
        self.by_prefill = instance.first_token == "prefill"
        self.stays = []
        self.prefill_end, self.first_token, self.finish = {}, {}, {}
        self.check_steps()
        self.check_rows()
        for request in range(len(instance)):
            self.follow(request)
        self.check_said_of_caches(schedule)
        for number in range(len(self.steps)):
            self.check_step(number)
        self.check_clients()
        self.check_links()

    def check_links(self):
        """A worker sends one cache at a time, each in the time of its tokens."""
        keys = [(sent.start_ns, sent.source, sent.request) for sent in self.transfers]
        require(keys == sorted(keys), "order of transfers")
        require(len(self.transfers) == sum(s.sent is not None for s in self.stays), "transfers")
        for sent in self.transfers:
            link, took = self.instance.link, sent.end_ns - sent.start_ns
            require(link is not None, "a link")
            require(took == link.latency_ns + sent.tokens * link.ns_per_token, "time of a link")
            for other in self.transfers:
                if other is not sent and other.source == sent.source:
                    apart = sent.end_ns <= other.start_ns or other.end_ns <= sent.start_ns
                    require(apart, "one transfer at a time")

    def check_said_of_caches(self, schedule):
        """Nothing is said of prefix caches where there are none."""
        cached = [worker.caches_prefixes for worker in self.instance.workers]
        require(schedule.eviction is None or any(cached), "no rule without a cache")
        for row in self.work:
            if not cached[self.steps[row.first_step].worker]:
                said = (row.hit, row.turn, row.rested, row.exit)
                require(said == (0, 0, 0, 0), "nothing is said where there is no cache")
        self.prefix_book = None
        if any(cached):
            caches = [w.memory.prefix_cache for w in self.instance.workers if w.caches_prefixes]
            rules = {each.eviction for each in caches}
            own = schedule.eviction is None
            (rule,) = rules if own else (schedule.eviction["rule"],)
            ahead = not own and schedule.eviction.get("ahead", False)
            self.check_orders(ahead)
            self.prefix_book = PrefixBook(self, rule, ahead)
            for stay in self.stays:
                found = self.prefix_book.found.get(id(stay), 0)
                require(found == stay.hit, "hits")

    def check_orders(self, ahead):
        """Stays that begin in a step have turns, and those evicted before one have exits."""
        ends = len(self.steps)
        begun, gone, early = {}, {}, set()
        for stay in self.stays:
            if not self.instance.workers[stay.worker].caches_prefixes:
                continue
            begun.setdefault(stay.first, []).append(stay.turn)
            stays = stay.finished or stay.sent is not None
            later = [n for n in range(stay.last + 1, ends) if self.on_worker(n, stay.worker)]
            require(stay.rested <= len(later), "an eviction while the worker goes on")
            if stay.finished and ahead:
                require(stay.rested <= 1, "freed with the next step")
                require(stay.rested == 0 or stay.exit == 0, "late ones go in turn")
                if not stay.exit:
                    continue
                early.add((stay.worker, (*later, ends)[0]))
            else:
                require(not stays or stay.rested == stay.exit == 0, "finished and sent stays")
                if stays:
                    continue
                self.check_rest(stay, later)
            place = [*later, ends][stay.rested]
            gone.setdefault((stay.worker, place), []).append(stay.exit)
        for turns in begun.values():
            require(sorted(turns) == list(range(len(turns))), "turns")
        for place, exits in gone.items():
            turns = [turn + (place in early) for turn in range(len(exits))]
            require(not any(exits) or sorted(exits) == turns, "exits")

    def on_worker(self, number, worker):
        return self.steps[number].worker == worker

    def check_rest(self, stay, later):
        """Until it is freed a stay keeps its client, and its request does nothing else."""
        if not stay.rested:
            return
        until = later[stay.rested - 1]
        for other in self.stays:
            same = (other.worker, other.client) == (stay.worker, stay.client)
            if other is stay or not (same or other.request == stay.request):
                continue
            if other.worker == stay.worker:
                require(other.first <= stay.last or other.first > until, "kept until then")
            elif self.steps[other.first].start_ns >= self.steps[stay.last].end_ns:
                begin = self.steps[other.first].start_ns
                require(begin >= self.steps[until].end_ns, "kept until then")

    # -- steps and rows -------------------------------------------------------------------

    def check_steps(self):
        now = [0] * len(self.instance.workers)
        keys = [(step.start_ns, step.worker) for step in self.steps]
        require(keys == sorted(keys), "order of steps")
        for step in self.steps:
            require(step.worker < len(now), "worker")
            require(now[step.worker] <= step.start_ns <= step.end_ns, "one step at a time")
            require(step.rounds == 1 or step.phase == DECODE, "rounds")
            now[step.worker] = step.end_ns
        devices = [worker.device for worker in self.instance.workers]
        for a in self.steps:
            for b in self.steps if devices[a.worker] else ():
                if a is not b and devices[a.worker] == devices[b.worker]:
                    require(a.end_ns <= b.start_ns or b.end_ns <= a.start_ns, "one device")

    def check_rows(self):
        keys = [(row.request, row.stay, row.first_step) for row in self.work]
        require(all(a < b for a, b in pairwise(keys)), "order of rows")
        for row in self.work:
            require(row.request < len(self.instance), "request")
            require(row.first_step <= row.last_step, "row")
            first, last = self.steps[row.first_step], self.steps[row.last_step]
            require(first.worker == last.worker, "worker of a row")
            require(row.client < self.instance.workers[first.worker].clients, "client")
            role = self.instance.workers[first.worker].role
            require(role != ("decode" if row.phase == PREFILL else "prefill"), "role")
            if row.phase == PREFILL:
                require(row.first_step == row.last_step, "prefill in one step")
                require(first.phase != DECODE, "prefill in a decode step")
            else:
                require(row.tokens == 1, "one token a round")
                require(first.phase != PREFILL and last.phase != PREFILL, "decode in a prefill")

    def served(self, number):
        """Rows that take part in a step."""
        return [row for row in self.work if any(n == number for n, _ in self.steps_of(row))]

    def steps_of(self, row):
        worker = self.steps[row.first_step].worker
        for number in range(row.first_step, row.last_step + 1):
            step = self.steps[number]
            if step.worker == worker and (row.phase == PREFILL or step.phase != PREFILL):
                yield number, step

    # -- requests -------------------------------------------------------------------------

    def follow(self, request):
        """Go through the stays of a request and count its tokens."""
        rows = [row for row in self.work if row.request == request]
        numbers = sorted({row.stay for row in rows})
        require(numbers == list(range(len(numbers))) and numbers, "numbers of stays")
        output, yielded, free_at, before = int(self.requests.output_tokens[request]), 0, 0, None
        for number in numbers:
            require(yielded < output, "no stay after the last token")
            mine = [row for row in rows if row.stay == number]
            came = [t for t in self.transfers if (t.request, t.stay) == (request, number)]
            require(len(came) <= 1, "one transfer a stay")
            stay, yielded = self.follow_stay(mine, yielded, came[0] if came else None)
            if came:
                self.hand_over(before, stay, came[0])
            begin = self.steps[stay.first].start_ns
            require(begin >= self.requests.arrival_ns[request], "arrival")
            require(begin >= free_at, "one stay at a time")
            if before is not None and before.worker == stay.worker:
                require(before.last < stay.first, "one stay at a time")
            before, free_at = stay, self.steps[stay.last].end_ns
            self.stays.append(stay)
        require(yielded == output, "all tokens")
        self.finish[request] = free_at

    def hand_over(self, before, stay, sent):
        """The cache of a stay that has only prefilled goes, whole, to another worker's stay."""
        require(before is not None, "a cache to send")
        require((before.worker, stay.worker) == (sent.source, sent.target), "from and to")
        require(sent.source != sent.target, "from one worker to another")
        require(all(phase == PREFILL for phase, _, _ in before.does.values()), "prefilled alone")
        require(before.cache_in(before.last) == before.due == sent.tokens, "the whole cache")
        require(self.steps[before.last].end_ns <= sent.start_ns, "prefill, then transfer")
        require(sent.end_ns <= self.steps[stay.first].start_ns, "transfer, then rounds")
        before.sent, stay.came = sent, sent

    def follow_stay(self, rows, yielded, came=None):
        request = rows[0].request
        output = int(self.requests.output_tokens[request])
        due = int(self.requests.prompt_tokens[request]) + yielded
        worker = self.steps[rows[0].first_step].worker
        stay = Stay(request, worker, rows[0].client, rows[0].first_step, rows[-1].last_step)
        stay.due, stay.hit, stay.turn = due, rows[0].hit, rows[0].turn
        stay.rested, stay.exit = rows[-1].rested, rows[-1].exit
        require(all(row.hit == row.turn == 0 for row in rows[1:]), "hits at the begin")
        require(all(row.rested == row.exit == 0 for row in rows[:-1]), "evictions at the end")
        cache, prefilled, end = stay.hit, stay.hit, -1
        if came is not None:
            require(rows[0].phase != PREFILL, "no prefill of what came")
            require(came.tokens == due - self.by_prefill, "all tokens by then")
            cache, prefilled = came.tokens, due
        for row in rows:
            require(self.steps[row.first_step].worker == worker, "one worker a stay")
            require(row.client == stay.client, "one client a stay")
            for number, step in self.steps_of(row):
                require(number > end, "one row after the other")
                end = number
                if row.phase == PREFILL:
                    prefilled += row.tokens
                    cache += row.tokens
                    require(cache == prefilled <= due, "no more prefill than is due")
                    if prefilled == due:
                        self.prefill_end.setdefault(request, step.end_ns)
                    if prefilled == due and self.by_prefill:
                        yielded += 1
                        self.first_token.setdefault(request, step.end_ns)
                else:
                    require(prefilled == due, "prefill first")
                    cache += step.rounds
                    if row.phase == INVALID:
                        require(yielded == output, "invalid tokens come last")
                    else:
                        yielded += step.rounds
                        self.first_token.setdefault(request, (number,))
                require(yielded <= output, "no more tokens than the answer has")
                stay.does[number] = (row.phase, row.tokens, cache)
        stay.finished = yielded == output
        stay.then = int(self.requests.prompt_tokens[request]) + yielded
        return stay, yielded

    # -- steps with what they do ----------------------------------------------------------

    def check_step(self, number):
        step = self.steps[number]
        worker = self.instance.workers[step.worker]
        here = [s for s in self.stays if s.worker == step.worker and number in s.does]
        does = [stay.does[number] for stay in here]
        chunks = [tokens for phase, tokens, _ in does if phase == PREFILL]
        cached = [cache - tokens for phase, tokens, cache in does if phase == PREFILL]
        contexts = [cache - step.rounds + 1 for phase, _, cache in does if phase != PREFILL]
        require(bool(chunks) == (step.phase != DECODE), "prefill in prefill and mixed steps")
        decoding = any(phase == DECODE for phase, _, _ in does)
        require(decoding == (step.phase != PREFILL), "tokens in decode and mixed steps")
        if worker.padding:
            chunks = [max(chunks)] * len(chunks) if chunks else []
            contexts = [max(contexts)] * len(contexts) if contexts else []
        require(worker.prefill_limit is None or sum(chunks) <= worker.prefill_limit, "cap")
        took = 0
        for later in range(step.rounds):
            longest = max(contexts, default=0)
            load = len(contexts), sum(contexts), longest
            took += mixed_ns(worker.cost, chunks, *load, cached)
            if later == 0 and step.phase == DECODE:
                self.reach_first_token(number, step.start_ns + took)
            contexts = [context + 1 for context in contexts]
        if step.phase == MIXED:
            self.reach_first_token(number, step.end_ns)
        require(step.end_ns - step.start_ns == took, "time of the cost model")
        require(worker.memory is None or self.blocks(number) <= worker.memory.blocks, "memory")

    def reach_first_token(self, number, moment):
        for request, value in self.first_token.items():
            if value == (number,):
                self.first_token[request] = moment

    def serving(self, number):
        """Stays from their first step to their last."""
        worker = self.steps[number].worker
        return [s for s in self.stays if s.worker == worker and s.first <= number <= s.last]

    def present(self, number):
        """Stays that hold client and blocks in a step: also while their caches are on the way."""
        found, step = self.serving(number), self.steps[number]
        for stay in self.stays:
            if stay.worker == step.worker and stay not in found:
                goes = stay.sent and number > stay.last and step.start_ns < stay.sent.end_ns
                comes = stay.came and number < stay.first and step.end_ns > stay.came.start_ns
                if goes or comes:
                    found.append(stay)
        return found

    def blocks(self, number):
        """Memory blocks held in a step."""
        worker = self.instance.workers[self.steps[number].worker]
        stays = self.present(number)
        if worker.caches_prefixes:
            return self.prefix_book.used[number]
        if worker.memory.allocation == "whole":
            sizes = [int(self.requests.prompt_tokens[s.request]) for s in stays]
            answers = [int(self.requests.output_tokens[s.request]) for s in stays]
            held = [a + b for a, b in zip(sizes, answers, strict=True)]
        else:
            held = [stay.cache_in(number) for stay in stays]
            if worker.padding:
                held = [max(held)] * len(held) if held else []
        return sum(math.ceil(tokens / worker.memory.block_tokens) for tokens in held)

    def check_clients(self):
        for number in range(len(self.steps)):
            clients = [stay.client for stay in self.present(number)]
            require(len(set(clients)) == len(clients), "one request a client")

    # -- figures --------------------------------------------------------------------------

    def figures(self):
        """The reported numbers that are not distributions, bounds or objectives."""
        makespan = max((step.end_ns for step in self.steps), default=0)
        times = self.client_time(makespan)
        clients = sum(worker.clients for worker in self.instance.workers)
        rounds = [step.rounds for step in self.steps if step.phase != PREFILL]
        shares = [(n, *share) for stay in self.stays for n, share in stay.does.items()]
        chunks = {n: [s[2] for s in shares if s[:2] == (n, 0)] for n in range(len(self.steps))}
        chunks = {number: tokens for number, tokens in chunks.items() if tokens}
        active = [self.steps[n].rounds for n, phase, *_ in shares if phase != PREFILL]
        pads = [self.instance.workers[self.steps[n].worker].padding for n in chunks]
        lengths = zip(pads, chunks.values(), strict=True)
        return {
            "makespan_ns": makespan,
            "busy_client_ns": times.pop("busy"),
            "bubble_ns": times,
            "slot_utilization": None
            if makespan == 0
            else (clients * makespan - sum(times.values())) / (clients * makespan),
            "prefill_stages": sum(step.phase == PREFILL for step in self.steps),
            "mixed_steps": sum(step.phase == MIXED for step in self.steps),
            "decode_rounds": sum(rounds),
            "invalid_tokens": sum(self.steps[n].rounds for n, phase, *_ in shares if phase == 2),
            "pad_tokens": sum(max(x) * len(x) - sum(x) for padded, x in lengths if padded),
            "restarts": sum(s.came is None for s in self.stays) - len(self.instance),
            "batch_size": {
                "prefill": ratio(sum(map(len, chunks.values())), len(chunks)),
                "decode": ratio(sum(active), sum(rounds)),
            },
            "worker_end_ns": self.worker_ends(),
            "kv_blocks": self.kv_blocks(makespan),
        }

    def client_time(self, makespan):
        """What every client does at every moment, in nanoseconds by kind."""
        names = ("busy", "waiting_for_prefill", "other_prefill", "no_request", "tail", "invalid")
        times = dict.fromkeys(names, 0)
        for index, worker in enumerate(self.instance.workers):
            mine = [n for n, step in enumerate(self.steps) if step.worker == index]
            now = 0
            for number in [*mine, None]:
                start = makespan if number is None else self.steps[number].start_ns
                for client in range(worker.clients):
                    times[self.between(index, client, number)] += start - now
                    if number is not None:
                        step = self.steps[number]
                        times[self.during(client, number)] += step.end_ns - step.start_ns
                now = start if number is None else self.steps[number].end_ns
        return times

    def during(self, client, number):
        for stay in self.serving(number):
            if stay.client == client:
                if number not in stay.does:
                    return "other_prefill"
                return "invalid" if stay.does[number][0] == INVALID else "busy"
        worker = self.steps[number].worker
        later = [s for s in self.on(worker, client) if s.first > number]
        return "waiting_for_prefill" if later else "tail"

    def between(self, worker, client, number):
        """Before a step, or after all of them, while the worker does nothing."""
        later = number is not None and any(s.last >= number for s in self.on(worker, client))
        return "no_request" if later else "tail"

    def on(self, worker, client):
        return [s for s in self.stays if (s.worker, s.client) == (worker, client)]

    def worker_ends(self):
        ends = [
            max((step.end_ns for step in self.steps if step.worker == index), default=0)
            for index in range(len(self.instance.workers))
        ]
        spread = len(ends) * sum(end * end for end in ends) - sum(ends) ** 2
        return {"min": min(ends), "max": max(ends), "std": math.sqrt(spread) / len(ends)}

    def kv_blocks(self, makespan):
        limited = [w for w, worker in enumerate(self.instance.workers) if worker.memory is not None]
        if not limited:
            return None
        steps = [n for n, step in enumerate(self.steps) if step.worker in limited]
        held = {number: self.blocks(number) for number in steps}
        area = sum(held[n] * (self.steps[n].end_ns - self.steps[n].start_ns) for n in steps)
        return {
            "peak": max(held.values(), default=0),
            "mean": ratio(area, len(limited) * makespan),
            "block_ns": area,
        }


def ratio(a, b):
    return a / b if b else None


class Row:
    """A row of steps or of work."""

    def __init__(self, names, values):
        self.__dict__.update(zip(names, values, strict=True))


def table(columns):
    names = [f.name for f in fields(columns)]
    rows = zip(*(getattr(columns, name).tolist() for name in names), strict=True)
    return [Row(names, values) for values in rows]


def rule_broken_by(instance, schedule):
    """Return the rule that a schedule breaks, or None."""
    try:
        Book(instance, schedule)
    except Wrong as wrong:
        return str(wrong)
    return None


def require_reported(instance, schedule):
    """The reported numbers are those of a literal reading, and the checker accepts them."""
    results, figures = summarise(instance, schedule), Book(instance, schedule).figures()
    assert {name: results[name] for name in figures} == figures
    assert check(instance, schedule.replace(results=results)) == []
