"""The table of where ranks lose: what is left out, and that the bound stays one."""

from __future__ import annotations

import pytest

from benchmarks import where_ranks_lose
from orsched import AffineCost, Instance, Requests, Worker
from tests.in_order import in_order


def test_parts_are_left_out_and_no_policy_is_below_the_bound(monkeypatch, capsys):
    worker = Worker(2, in_order(AffineCost, 5_000_000, 300_000, 9_000_000, 700_000), 40)
    instance = Instance(Requests([10, 3, 20, 8, 7], [4, 9, 2, 11, 6]), (worker,), "prefill")
    found = dict(where_ranks_lose.variants(instance))
    gaps = {name: where_ranks_lose.gap(each) for name, each in found.items()}
    assert all(policy >= least > 0 for policy, least in gaps.values())
    assert gaps["nothing"][0] > gaps["tokens of prefills"][0] > gaps["prefills"][0]
    like = found["prefills unlike rounds"].requests
    assert like.output_tokens.tolist() == [4, 9, 2, 11, 6]
    assert like.prompt_tokens.tolist() == [6, 14, 3, 17, 9]  # 48 tokens for 32, rounded up
    assert found["prefills"].workers[0].cost.prefill_ns([9]) == 0
    monkeypatch.setattr(where_ranks_lose.orsched, "load", lambda _: instance)
    where_ranks_lose.main([])
    policy, least = gaps["nothing"]
    row = f"| nothing | {policy:.3f} | {least:.3f} | {policy - least:.3f} |"
    assert capsys.readouterr().out.count(row) == len(where_ranks_lose.NAMES)


def test_the_whole_instance_is_what_is_solved_elsewhere():
    """The page of latencies has 35.260 s and 35.078 s from another command."""
    instance = where_ranks_lose.orsched.load("pang-100x20")
    whole = next(iter(where_ranks_lose.variants(instance)))[1]
    assert where_ranks_lose.gap(whole) == pytest.approx((35.260, 35.078), abs=6e-4)
