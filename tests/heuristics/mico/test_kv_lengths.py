"""The cache layout of section 3.4, replayed from schedules by hand."""

from __future__ import annotations

from benchmarks.reproductions import mico_setting
from benchmarks.reproductions.mico_runs import cache_lengths, kv_lengths, run, summed
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.heuristics.mico import Mico, MicoParams
from orsched.simulator import simulate_policy
from tests.in_order import in_order


def schedule_of(prompts, outputs, clients, **parameters):
    requests = Requests(prompts, outputs, predicted_tokens=outputs)
    worker = Worker(clients, in_order(AffineCost, 0, 0, 1, 0), padding=True)
    instance = Instance(requests, (worker,), first_token="prefill", output_limit_tokens=100)
    return instance, simulate_policy(instance, Mico(MicoParams(**parameters))).schedule


def test_a_static_batch_grows_from_its_longest_prompt():
    """Prompts of 3 and 5, answers of 4 and 2: length 5, then three rounds, the last two idle."""
    instance, schedule = schedule_of([3, 5], [4, 2], 2, batching="batch")
    runs = list(kv_lengths(schedule, 0, literal=True))
    assert summed(runs) == 5 + 6 + 7 + 8
    assert runs[0] == (5, 1)
    sums, peak = cache_lengths(instance, schedule)
    assert sums["literal"] == sums["engine"] == [26]
    assert sums["own"] == [((3 + 4 + 5 + 6) + (5 + 6 + 7 + 8)) // 2]
    assert peak == 8


def test_an_insertion_lengthens_everybody_and_the_oldest_releases():
    """0 (prompt 3) and 1 (prompt 3, 2 tokens) begin; 2 (prompt 4, 4 tokens) takes 1's place.

    Lengths: 3; 4 after the round in which 1 is done; the insertion appends 4 columns: 8; a round:
    9, in which 0 has its 4th token, and 2 its second. Then only 2 is left: its own 4 + 1 are 5 of
    the 9, and two more rounds make 6 and 7.
    """
    instance, schedule = schedule_of([3, 3, 4], [4, 2, 4], 2, insertion="mixed")
    literal = list(kv_lengths(schedule, 0, literal=True))
    assert summed(literal) == 3 + 4 + 8 + 9 + 6 + 7
    # As the engine counts, the insertion is a round for the others: 5, not 8.
    assert summed(list(kv_lengths(schedule, 0, literal=False))) == 3 + 4 + 5 + 6 + 6 + 7
    assert cache_lengths(instance, schedule)[1] == 9


def test_a_decoupled_insertion_pads_nobody():
    """Prefilled on its own while 0 has a cache of 4, and then beside it from the end."""
    _, schedule = schedule_of([3, 3, 4], [4, 2, 4], 2, insertion="decoupled")
    assert summed(list(kv_lengths(schedule, 0, literal=True))) == 3 + 4 + 4 + 5 + 6 + 7


def test_the_literal_insertion_charges_the_whole_padded_batch():
    cost = in_order(mico_setting.InsertionCost, 100, 7, 100, 0)
    assert cost.mixed_ns([4], 2) == 100 + 7 * 4 * 3
    assert cost.mixed_ns([4, 4], 1) == 100 + 7 * 4 * 3


def test_the_setting_is_the_papers_and_iteration_level_wins(monkeypatch):
    monkeypatch.delenv("ORSCHED_DATA", raising=False)
    problem = mico_setting.instance(400, 3, 3, 0)
    total = problem.requests.prompt_tokens + problem.requests.output_tokens
    assert total.max() <= mico_setting.GPT2.limit
    limit, buckets = mico_setting.GPT2.limit, mico_setting.BUCKETS
    true = problem.requests.output_tokens * buckets // limit
    guessed = problem.requests.predicted_tokens * buckets // limit
    assert abs((true.clip(max=buckets - 1) == guessed).mean() - mico_setting.ACCURACY) < 0.06
    assert abs(true.clip(max=buckets - 1) - guessed).max() <= 1
    new, old = run("QI", 100, 3, 3, 0), run("neither", 100, 3, 3, 0)
    assert new.makespan_ns < old.makespan_ns
    assert len(new.ends_ns) == sum(new.served) == 100
