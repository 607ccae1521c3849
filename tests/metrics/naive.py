"""The reported numbers from their definitions, nanosecond stretch by stretch and token by token."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

from orsched.checker import check
from orsched.metrics import summarise
from orsched.schedule import DECODE, INVALID, MIXED, PREFILL


class Naive:
    """A schedule as plain lists: who takes part in what."""

    def __init__(self, instance, schedule):
        self.instance, self.schedule = instance, schedule
        s, w = schedule.steps, schedule.work
        columns = (s.worker, s.phase, s.start_ns, s.end_ns, s.rounds)
        self.steps = list(zip(*(c.tolist() for c in columns), strict=True))
        columns = (w.request, w.client, w.phase, w.first_step, w.last_step, w.tokens, w.stay)
        self.rows = list(zip(*(c.tolist() for c in columns), strict=True))
        self.makespan = max((step[3] for step in self.steps), default=0)
        self.stays = {}
        for row in self.rows:
            first = self.steps[row[3]]
            key = (row[0], row[6])
            self.stays.setdefault(key, [first[0], row[1], row[3], row[4]])[3] = row[4]

    def served(self, step):
        """Rows that take part in a step."""
        worker, phase = self.steps[step][:2]
        return [
            row
            for row in self.rows
            if row[3] <= step <= row[4]
            and self.steps[row[3]][0] == worker
            and (phase == MIXED or (row[2] == PREFILL) == (phase == PREFILL))
        ]

    def present(self, step):
        """Stays (request, number) on the step's worker."""
        worker = self.steps[step][0]
        return [
            key
            for key, (owner, _, first, last) in self.stays.items()
            if owner == worker and first <= step <= last
        ]

    def caches(self):
        """Cache tokens of each present stay after each step."""
        held, result = {}, []
        for k, step in enumerate(self.steps):
            for row in self.served(k):
                key = (row[0], row[6])
                held[key] = held.get(key, 0) + (row[5] if row[2] == PREFILL else step[4])
            result.append({key: held.get(key, 0) for key in self.present(k)})
        return result

    def first_tokens(self):
        """When each request's first token is there, and when its first prefill is complete."""
        table, held = self.instance.requests, {}
        first, prefilled = {}, {}
        for k, (worker, phase, start, end, rounds) in enumerate(self.steps):
            rows = self.served(k)
            for row in rows:
                request, key = row[0], (row[0], row[6])
                if row[2] == PREFILL:
                    held[key] = held.get(key, 0) + row[5]
                    if request not in first and held[key] == table.prompt_tokens[request]:
                        prefilled.setdefault(request, end)
                        if self.instance.first_token == "prefill":
                            first[request] = end
            active = [row for row in rows if row[2] != PREFILL]
            for row in active:
                if row[0] in first:
                    continue
                if rounds == 1:
                    first[row[0]] = end
                    continue
                contexts = [held[r[0], r[6]] + 1 for r in active]
                owner, longest = self.instance.workers[worker], max(contexts)
                total = longest * len(active) if owner.padding else sum(contexts)
                first[row[0]] = start + owner.cost.round_ns(len(active), total, longest)
            for row in active:
                held[row[0], row[6]] += rounds
            assert phase != PREFILL or not active
        return first, prefilled

    def client_time(self):
        """Client-time by use, stretch by stretch."""
        uses = dict.fromkeys(
            ("busy", "waiting_for_prefill", "other_prefill", "no_request", "tail", "invalid"), 0
        )
        moments = sorted({0, *(t for step in self.steps for t in step[2:4])})
        serving = [self.served(k) for k in range(len(self.steps))]
        for low, high in pairwise(moments):
            for worker, owner in enumerate(self.instance.workers):
                running = [
                    k
                    for k, step in enumerate(self.steps)
                    if step[0] == worker and step[2] <= low and high <= step[3]
                ]
                assert len(running) <= 1
                for client in range(owner.clients):
                    uses[self._use(worker, client, low, running, serving)] += high - low
        return uses

    def _use(self, worker, client, moment, running, serving):
        mine = [
            (key, self.steps[first][2], self.steps[last][3])
            for key, (owner, place, first, last) in self.stays.items()
            if (owner, place) == (worker, client)
        ]
        holding = [key for key, start, end in mine if start <= moment < end]
        assert len(holding) <= 1
        if not holding:
            if all(end <= moment for _, _, end in mine):
                return "tail"
            return "waiting_for_prefill" if running else "no_request"
        if not running:
            return "no_request"
        kinds = {row[2] for row in serving[running[0]] if (row[0], row[6]) == holding[0]}
        if not kinds:
            return "other_prefill"
        return "invalid" if kinds == {INVALID} else "busy"

    def kv_blocks(self):
        """Peak, mean and sum over time of the blocks held."""
        table, peak, total = self.instance.requests, 0, 0
        for step, caches in zip(self.steps, self.caches(), strict=True):
            owner = self.instance.workers[step[0]]
            if owner.memory is None:
                continue
            size = owner.memory.block_tokens
            if owner.memory.is_paged:
                tokens = [max(caches.values())] * len(caches) if owner.padding else caches.values()
            else:
                tokens = [table.prompt_tokens[r] + table.output_tokens[r] for r, _ in caches]
            held = sum(math.ceil(Fraction(int(t), size)) for t in tokens)
            peak, total = max(peak, held), total + held * (step[3] - step[2])
        count = sum(w.memory is not None for w in self.instance.workers)
        if count == 0:
            return None
        mean = total / (count * self.makespan) if self.makespan else None
        return {"peak": peak, "mean": mean, "block_ns": total}

    def counts(self):
        """The numbers that count steps, rows and tokens."""
        pad = prefills = stages = rounds = active = invalid = 0
        for k, (worker, phase, _, _, repeat) in enumerate(self.steps):
            rows = self.served(k)
            chunks = [row[5] for row in rows if row[2] == PREFILL]
            if chunks:
                stages, prefills = stages + 1, prefills + len(chunks)
                if self.instance.workers[worker].padding:
                    pad += sum(max(chunks) - tokens for tokens in chunks)
            if phase != PREFILL:
                rounds += repeat
                active += repeat * (len(rows) - len(chunks))
                invalid += repeat * sum(row[2] == INVALID for row in rows)
        phases = [step[1] for step in self.steps]
        ends = [
            max((step[3] for step in self.steps if step[0] == worker), default=0)
            for worker in range(len(self.instance.workers))
        ]
        n = len(ends)
        return {
            "prefill_stages": phases.count(PREFILL),
            "mixed_steps": phases.count(MIXED),
            "decode_rounds": rounds,
            "restarts": sum(number >= 1 for _, number in self.stays),
            "invalid_tokens": invalid,
            "pad_tokens": pad,
            "batch_size": {
                "prefill": prefills / stages if stages else None,
                "decode": active / rounds if rounds else None,
            },
            "worker_end_ns": {
                "min": min(ends),
                "max": max(ends),
                "std": math.sqrt(n * sum(e * e for e in ends) - sum(ends) ** 2) / n,
            },
        }

    def finishes(self):
        """End of the last row of each request."""
        result = {}
        for row in self.rows:
            result[row[0]] = max(result.get(row[0], 0), self.steps[row[4]][3])
        return result

    def yielded(self):
        """Tokens that each request gets, over all stays."""
        table = self.instance.requests
        tokens, held = dict.fromkeys(range(len(table)), 0), {}
        for k, step in enumerate(self.steps):
            for row in self.served(k):
                key = (row[0], row[6])
                if row[2] == DECODE:
                    tokens[row[0]] += step[4]
                elif row[2] == PREFILL:
                    target = held.setdefault(key, [0, table.prompt_tokens[row[0]] + tokens[row[0]]])
                    target[0] += row[5]
                    if target[0] == target[1] and self.instance.first_token == "prefill":
                        tokens[row[0]] += 1
        return tokens


def require_reported(instance, schedule):
    """Definitions, stretch by stretch and token by token, give the same numbers."""
    results, naive = summarise(instance, schedule), Naive(instance, schedule)
    uses = naive.client_time()
    assert results["busy_client_ns"] == uses.pop("busy")
    expected = {**naive.counts(), "kv_blocks": naive.kv_blocks(), "bubble_ns": uses}
    assert {name: results[name] for name in expected} == expected
    assert list(naive.yielded().values()) == instance.requests.output_tokens.tolist()
    assert check(instance, schedule.replace(results=results)) == []
