"""The numbered invariants of the documentation, asserted from the rows of a schedule alone: nothing
of checker, metrics and cost model is used, times are judged by their order. The last functions are
about INV-8 end to end: what a policy cannot know yet does not change what is done until it can."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import NamedTuple

import numpy as np

PREFILL, DECODE, MIXED, INVALID = 0, 1, 2, 2


class Row(NamedTuple):
    request: int
    client: int
    phase: int
    first_step: int
    last_step: int
    tokens: int
    stay: int


class Step(NamedTuple):
    worker: int
    phase: int
    start_ns: int
    end_ns: int
    rounds: int


class Stay(NamedTuple):
    """A stay; ``cache`` has the tokens after each of the steps in which it is served."""

    request: int
    worker: int
    client: int
    first: int
    last: int
    cache: dict[int, int]


def rows_of(kind, columns):
    """Return a table as rows; what prefix caches add stands behind the columns of every table."""
    lists = [getattr(columns, name).tolist() for name in kind._fields]
    assert [f.name for f in fields(columns)][: len(kind._fields)] == list(kind._fields)
    return [kind(*values) for values in zip(*lists, strict=True)]


class Account:
    """A schedule as rows, with the stays and what each request got in each step."""

    def __init__(self, instance, schedule):
        self.instance, self.table = instance, instance.requests
        self.steps = rows_of(Step, schedule.steps)
        self.rows = rows_of(Row, schedule.work)
        self.got = dict.fromkeys(range(len(instance)), 0)  # tokens of the answer
        self.lost = dict.fromkeys(range(len(instance)), 0)  # tokens after the last one
        self.prefilled = {}  # (request, stay) -> tokens
        self.due = {}  # (request, stay) -> prompt and what it had yielded before
        self.first_ns, self.finish_ns = {}, {}
        self.stays = {}
        for row in sorted(self.rows, key=lambda row: (row.request, row.stay, row.first_step)):
            self._enter(row)

    def _enter(self, row):
        key, steps = (row.request, row.stay), self.steps
        if key not in self.stays:
            worker = steps[row.first_step].worker
            self.stays[key] = Stay(row.request, worker, row.client, row.first_step, -1, {})
            self.due[key] = int(self.table.prompt_tokens[row.request]) + self.got[row.request]
            self.prefilled[key] = 0
        stay = self.stays[key] = self.stays[key]._replace(last=row.last_step)
        assert (row.client, steps[row.last_step].worker) == (stay.client, stay.worker)
        held = max(stay.cache.values(), default=0)
        for number in self.served_in(row):
            if row.phase == PREFILL:
                self.prefilled[key] += row.tokens
                held += row.tokens
                if self.prefilled[key] == self.due[key]:
                    self._yields(row, number, self.instance.first_token == "prefill")
            else:
                held += steps[number].rounds
                if row.phase == INVALID:
                    self.lost[row.request] += steps[number].rounds
                else:
                    self._yields(row, number, steps[number].rounds)
            stay.cache[number] = held
        self.finish_ns[row.request] = steps[row.last_step].end_ns

    def _yields(self, row, number, tokens):
        if tokens and self.got[row.request] == 0:
            self.first_ns[row.request] = self.steps[number].start_ns, self.steps[number].end_ns
        self.got[row.request] += tokens

    def served_in(self, row):
        """The steps in which a row is served."""
        worker = self.steps[row.first_step].worker
        return [
            number
            for number in range(row.first_step, row.last_step + 1)
            if self.steps[number].worker == worker
            and (row.phase == PREFILL or self.steps[number].phase != PREFILL)
        ]

    def present(self, number):
        """The stays on a step's worker during the step."""
        worker = self.steps[number].worker
        return [
            s for s in self.stays.values() if s.worker == worker and s.first <= number <= s.last
        ]


def requests_are_conserved(account):
    """INV-1: every request is served, none is invented, its stays are numbered and in order."""
    n = len(account.instance)
    numbers = {request: [] for request in range(n)}
    for request, stay in account.stays:
        numbers[request].append(stay)
    assert all(stays == list(range(len(stays))) and stays for stays in numbers.values())
    for request, stays in numbers.items():
        own = [account.stays[request, stay] for stay in stays]
        for before, after in pairwise(own):
            assert account.steps[before.last].end_ns <= account.steps[after.first].start_ns


def tokens_are_conserved(account):
    """INV-2, INV-17: prefills are what is due, answers are whole, to the token."""
    assert list(account.got.values()) == account.table.output_tokens.tolist()
    decoded = {(row.request, row.stay) for row in account.rows if row.phase != PREFILL}
    for key, tokens in account.prefilled.items():
        last = key[1] == max(stay for request, stay in account.stays if request == key[0])
        whole = last or key in decoded
        assert tokens == account.due[key] if whole else 0 < tokens <= account.due[key]


def blocks_are_conserved(account):
    """INV-3, INV-19: the memory is never over, in no step and on no worker."""
    for number, step in enumerate(account.steps):
        worker = account.instance.workers[step.worker]
        if worker.memory is None:
            continue
        present = account.present(number)
        if worker.memory.allocation == "whole":
            columns = account.table.prompt_tokens, account.table.output_tokens
            tokens = [int(sum(column[stay.request] for column in columns)) for stay in present]
        else:
            tokens = [
                max(held for at, held in stay.cache.items() if at <= number) for stay in present
            ]
            if worker.padding:
                tokens = [max(tokens, default=0)] * len(tokens)
        held = sum(-(-each // worker.memory.block_tokens) for each in tokens)
        assert held <= worker.memory.blocks


def the_clock_never_runs_backwards(account):
    """INV-4, INV-7: a worker does one step after the other, each for somebody."""
    now = [0] * len(account.instance.workers)
    served = {number: set() for number in range(len(account.steps))}
    for row in account.rows:
        for number in account.served_in(row):
            served[number].add(row.phase == PREFILL)
    for number, step in enumerate(account.steps):
        assert now[step.worker] <= step.start_ns <= step.end_ns
        now[step.worker] = step.end_ns
        kinds = {PREFILL: {True}, DECODE: {False}, MIXED: {True, False}}[step.phase]
        assert served[number] == kinds
        assert step.rounds == 1 or step.phase == DECODE


def times_of_a_request_are_in_order(account):
    """INV-5: arrival <= start of prefill <= first token <= finish."""
    for request, arrival in enumerate(account.table.arrival_ns.tolist()):
        begin = account.steps[account.stays[request, 0].first].start_ns
        early, late = account.first_ns[request]
        assert arrival <= begin <= early <= late <= account.finish_ns[request]


def a_client_serves_one_request_at_a_time(account):
    """INV-6: no two stays on a client share a step."""
    for number in range(len(account.steps)):
        clients = [stay.client for stay in account.present(number)]
        room = account.instance.workers[account.steps[number].worker].clients
        assert len(set(clients)) == len(clients)
        assert all(0 <= client < room for client in clients)


def invalid_tokens_come_last(account):
    """INV-18: a request is held only after its last token, and never all alone."""
    for row in account.rows:
        if row.phase == INVALID:
            assert row.last_step == account.stays[row.request, row.stay].last
    yielding = {
        number for row in account.rows if row.phase == DECODE for number in account.served_in(row)
    }
    rounds = {number for number, step in enumerate(account.steps) if step.phase != PREFILL}
    assert rounds == yielding


def work_is_conserved(account):
    """INV-12: no worker rests while a request that it serves later is there."""
    ends = [0] * len(account.instance.workers)
    for number, step in enumerate(account.steps):
        if step.start_ns > ends[step.worker]:
            for request in range(len(account.instance)):
                first = account.stays[request, 0]
                waits = first.worker == step.worker and account.finish_ns[request] > step.start_ns
                arrived = int(account.table.arrival_ns[request])
                assert not waits or arrived >= step.start_ns, (number, request)
        ends[step.worker] = step.end_ns


LAWS = (
    requests_are_conserved,
    tokens_are_conserved,
    blocks_are_conserved,
    the_clock_never_runs_backwards,
    times_of_a_request_are_in_order,
    a_client_serves_one_request_at_a_time,
    invalid_tokens_come_last,
)


def revealed_by(instance, schedule, moment):
    """Return tokens by request, and those done, in the steps begun by a moment, counted whole."""
    account = Account(instance, schedule)
    prefix = sum(step.start_ns <= moment for step in account.steps)
    tokens = np.zeros(len(instance), np.int64)
    prefilled = dict.fromkeys(account.stays, 0)
    for row in account.rows:
        for number in account.served_in(row):
            if number >= prefix:
                continue
            key = (row.request, row.stay)
            if row.phase == DECODE:
                tokens[row.request] += account.steps[number].rounds
            elif row.tokens and row.phase == 0:
                prefilled[key] += row.tokens
                complete = prefilled[key] == account.due[key]
                tokens[row.request] += complete and instance.first_token == "prefill"
    return tokens, tokens == instance.requests.output_tokens, prefix


def otherwise(instance, schedule, moment):
    """Return the instance with other lengths of all who are not done at a moment, or None. Each
    gets what another has left; where that changes nothing, as much as the limit allows."""
    tokens, done, prefix = revealed_by(instance, schedule, moment)
    outputs = instance.requests.output_tokens.copy()
    open_rows = np.flatnonzero(~done)
    left = np.roll(outputs[open_rows] - tokens[open_rows], 1)
    outputs[open_rows] = np.minimum(tokens[open_rows] + left, instance.output_limit_tokens)
    if (outputs == instance.requests.output_tokens).all():
        outputs[open_rows] = instance.output_limit_tokens
    if (outputs == instance.requests.output_tokens).all():
        return None, prefix
    return instance.replace(requests=instance.requests.replace(output_tokens=outputs)), prefix


def begun(schedule, prefix, moment):
    """Return the ``prefix`` steps that are begun by a moment, and who does what in them. Of a step
    that is under way its end is left out: that of rounds may hang on what happens to other workers
    until then."""
    steps = rows_of(Step, schedule.steps)[:prefix]
    seen = [s if s.end_ns <= moment else (s.worker, s.phase, s.start_ns) for s in steps]
    last = {step.worker: number for number, step in enumerate(steps)}
    rows = [row for row in rows_of(Row, schedule.work) if row.first_step < prefix]
    cut = [
        row._replace(last_step=min(row.last_step, last[steps[row.first_step].worker]))
        for row in rows
    ]
    return seen, cut
