"""Every value of the transfers is changed in turn: checker and literal reading see each change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orsched.checker import ViolationKind, check
from orsched.common.errors import InputError
from orsched.data.instance import Instance
from orsched.data.links import Link
from orsched.data.requests import Requests
from orsched.data.transfers import NAMES, Transfers
from orsched.data.workers import Worker
from orsched.simulator import simulate_policy
from tests.by_the_book import rule_broken_by
from tests.pools import pool_instance, pool_policy

SEEDS = (1, 2, 5)
FIELDS = {
    "steps": ("worker", "start_ns", "end_ns"),
    "work": ("request", "client", "stay", "tokens", "first_step", "last_step"),
}


def made(seed, rule="prefill"):
    instance = pool_instance(seed, rule)
    return instance, simulate_policy(instance, pool_policy(seed)).schedule


def changed(schedule, name, row, new):
    columns = {each: getattr(schedule.transfers, each).copy() for each in NAMES}
    columns[name][row] = new
    return schedule.replace(transfers=Transfers(**columns))


def taken(schedule, order):
    columns = {each: getattr(schedule.transfers, each)[order] for each in NAMES}
    return schedule.replace(transfers=Transfers(**columns))


@pytest.mark.parametrize("rule", ["prefill", "decode"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_change_is_caught(seed, rule):
    """INV-33, INV-34: no number of a transfer can be another one."""
    instance, schedule = made(seed, rule)
    assert check(instance, schedule) == []
    sent, missed = schedule.transfers, []
    for name in NAMES:
        column = getattr(sent, name).tolist()
        for row in range(0, len(column), 4):
            old = column[row]
            for new in {old + 1, old - 1, 0, 1, 10**6, column[(row + 1) % len(column)]} - {old}:
                try:
                    wrong = changed(schedule, name, row, new)
                except InputError:
                    continue
                if not check(instance, wrong) or rule_broken_by(instance, wrong) is None:
                    missed.append((name, row, old, new))
    assert missed == []


@pytest.mark.parametrize("seed", SEEDS)
def test_missing_and_repeated_transfers_are_caught(seed):
    """A cache that comes from nowhere, one that came twice, and rows out of order."""
    instance, schedule = made(seed)
    n = len(schedule.transfers)
    for row in range(0, n, 4):
        fewer = taken(schedule, [each for each in range(n) if each != row])
        more = taken(schedule, sorted([*range(n), row]))
        for wrong in (fewer, more):
            assert check(instance, wrong)
            assert rule_broken_by(instance, wrong) is not None
    for row in range(0, n - 1, 4):
        order = list(range(n))
        order[row], order[row + 1] = order[row + 1], order[row]
        assert check(instance, taken(schedule, order))
    assert check(instance, schedule.replace(transfers=None))


def test_work_and_steps_that_do_not_suit_the_transfers():
    """Each value of the steps and rows is changed: checker and literal reading judge alike."""
    instance, schedule = made(2)
    disagree = []
    for table, names in FIELDS.items():
        columns = getattr(schedule, table)
        for name in names:
            column = getattr(columns, name)
            for row in range(0, len(column), 7):
                for new in {int(column[row]) + 1, int(column[row]) - 1}:
                    values = column.copy()
                    values[row] = new
                    try:
                        wrong = schedule.replace(**{table: replace(columns, **{name: values})})
                    except InputError:
                        continue
                    found = bool(check(instance, wrong))
                    if found != (rule_broken_by(instance, wrong) is not None):
                        disagree.append((table, name, row, new))
    assert disagree == []


def kinds(instance, schedule):
    return {violation.kind for violation in check(instance, schedule)}


def test_roles_are_kept():
    """INV-33: who may not prefill or decode does not."""
    instance, schedule = made(1)
    workers = tuple(replace(worker, role="decode") for worker in instance.workers[:1])
    workers += tuple(replace(worker, role="prefill") for worker in instance.workers[1:])
    other = instance.replace(workers=workers)
    assert ViolationKind.ROLE in kinds(other, schedule)


def test_a_link_carries_one_cache_at_a_time():
    """INV-34: a transfer that waits for the link, moved ahead as a whole, meets the one before."""
    instance = Instance(
        Requests([10, 20], [3, 2]),
        (Worker(4, role="prefill"), Worker(4, role="decode")),
        first_token="prefill",
        link=Link(ns_per_token=7, latency_ns=50),
    )
    schedule = simulate_policy(instance, pool_policy(0)).schedule
    assert check(instance, schedule) == []
    assert schedule.transfers.start_ns[1] == schedule.transfers.end_ns[0]
    ahead = changed(schedule, "start_ns", 1, int(schedule.transfers.start_ns[1]) - 1)
    ahead = changed(ahead, "end_ns", 1, int(schedule.transfers.end_ns[1]) - 1)
    (violation,) = check(instance, ahead)
    assert "while its link is busy" in violation.message
    assert rule_broken_by(instance, ahead) == "one transfer at a time"


def test_a_transfer_needs_a_link():
    """Without a link a cache goes nowhere."""
    instance, schedule = made(1)
    workers = tuple(replace(worker, role="both", device="") for worker in instance.workers)
    assert ViolationKind.TRANSFER in kinds(instance.replace(workers=workers, link=None), schedule)


def test_a_shared_device_does_one_thing_at_a_time():
    """INV-35: steps of two workers that share a device do not overlap."""
    instance, schedule = made(1)
    workers = tuple(replace(worker, device="gpu") for worker in instance.workers)
    together = instance.replace(workers=workers)
    assert ViolationKind.STAGE_EXCLUSIVITY in kinds(together, schedule)
    assert rule_broken_by(together, schedule) == "one device"


def test_memory_of_both_sides_counts_while_a_cache_is_on_its_way():
    """Workers that just hold what they hold are too small with a block less, on both sides."""
    caught = {"source": 0, "target": 0}
    for seed in (1, 11):
        instance, schedule = made(seed)
        held = [0] * len(instance.workers)
        for index, worker in enumerate(instance.workers):
            for blocks in range(worker.memory.blocks, 0, -1):
                smaller = replace(worker, memory=replace(worker.memory, blocks=blocks))
                workers = [*instance.workers]
                workers[index] = smaller
                other = instance.replace(workers=tuple(workers))
                wrong = {v.kind for v in check(other, schedule)} - {ViolationKind.INSTANCE}
                assert bool(wrong) == (rule_broken_by(other, schedule) is not None)
                if wrong:
                    held[index] = blocks + 1
                    break
            caught["source" if worker.role == "prefill" else "target"] += held[index] > 0
    assert min(caught.values()) >= 2


def test_strange_transfers_never_raise():
    """The checker answers for every table that can be built."""
    instance, schedule = made(2)
    draw = np.random.default_rng(0)
    for _ in range(100):
        n = int(draw.integers(1, 8))
        columns = {name: draw.integers(1, 2**31 - 1, n) for name in NAMES}
        for name in draw.choice(NAMES, 4):
            columns[name] = draw.integers(1, 4, n)
        assert check(instance, schedule.replace(transfers=Transfers(**columns)))


def test_an_instance_without_requests():
    """Nothing is sent where nothing is served."""
    workers = (Worker(1, role="prefill"), Worker(1, role="decode"))
    empty = pool_instance(1).requests.take([])
    instance = Instance(empty, workers, link=Link(), first_token="decode")
    assert check(instance, simulate_policy(instance, pool_policy(1)).schedule) == []
