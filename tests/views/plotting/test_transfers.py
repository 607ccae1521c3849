"""Caches on their way in charts and records: neither restarts nor nothing."""

from __future__ import annotations

import pytest

from orsched.metrics.summary import summarise
from orsched.simulator import simulate_policy
from orsched.views.gantt import gantt
from orsched.views.records import record_columns
from orsched.views.spans import client_use
from tests.pools import pool_instance, pool_policy

pytest.importorskip("matplotlib")


def made(seed):
    instance = pool_instance(seed)
    return instance, simulate_policy(instance, pool_policy(seed)).schedule


@pytest.mark.parametrize("seed", [1, 2, 9])
def test_each_transfer_is_a_bar_on_both_workers(seed):
    instance, schedule = made(seed)
    sent, use = schedule.transfers, client_use(instance, schedule)
    assert len(use.transfers) == 2 * len(sent)
    assert sorted(use.transfers.start_ns.tolist()) == sorted([*sent.start_ns, *sent.start_ns])
    evicted = int((schedule.work.stay[schedule.work.phase == 0] > 0).any())
    assert bool(len(use.restarts)) == bool(evicted)


def test_the_chart_shows_them():
    instance, schedule = made(2)
    axes = gantt(instance, schedule)
    shown = {each.get_gid() for each in axes.collections}
    assert "transfers" in shown
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "cache on its way" in texts
    assert "restart" not in texts


@pytest.mark.parametrize("seed", [1, 2, 9])
def test_records_tell_transfers_from_restarts(seed):
    instance, schedule = made(seed)
    columns = record_columns(instance, schedule)
    assert int(columns["restarts"].sum()) == schedule_restarts(instance, schedule)
    moved = columns["prefill_worker_idx"] != columns["decode_worker_idx"]
    assert moved[schedule.transfers.request].any()


def schedule_restarts(instance, schedule):
    return summarise(instance, schedule)["restarts"]
