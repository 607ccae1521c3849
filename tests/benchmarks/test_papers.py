"""Reproductions of papers: what their scripts compute, on small cases."""

import random
from operator import add

import pytest

import orsched
from benchmarks import latency_search, proxy_latency
from benchmarks.parts_of_stays import stays
from benchmarks.reproductions import disaggregation as program
from benchmarks.reproductions import tail_requests
from benchmarks.solved_cases import least_jct_sum
from orsched import AffineCost, Instance, Requests, Worker
from orsched.data.schedule_classes import allowances_of
from orsched.instances import with_arrivals
from tests.brute_force import least_sum_ns
from tests.in_order import in_order

ONE, TWO = program.ROWS[0], program.ROWS[3]


def test_the_rate_found_keeps_the_limits_and_a_larger_one_does_not():
    rate = program.goodput(ONE, 0, 150, (True, True))
    for factor, kept in ((1.0, True), (1.5, False)):
        instance = program.instance_of(ONE, rate * factor, 0, 150)
        ttft, tpot = program.latencies_ns(instance, program.run(ONE, instance))
        assert (ttft <= program.TTFT_NS and tpot <= program.TPOT_NS) == kept
    for limits in ((True, False), (False, True)):
        assert program.goodput(ONE, 0, 150, limits) >= rate


@pytest.mark.full
def test_tables_have_a_line_for_each_split(capsys):
    program.main(["--requests", "60", "--seeds", "1"])
    lines = capsys.readouterr().out.splitlines()
    names = [f"| {row.split}" for row in program.ROWS]
    assert len(lines) == 2 + len(names) + 1 + 2 + 4
    assert [line.split(" | ")[0] for line in lines[2 : 2 + len(names)]] == names


def test_a_token_takes_the_bytes_of_the_model():
    """Llama 2 13B: 800 KiB a token, as the catalogue has it."""
    assert (program.KV_BYTES, program.LINKS[TWO.link].ns_per_token) == (800 * 1024, 2731)


def test_a_full_size_model_is_timed_by_the_same_program():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    found = proxy_latency.rows("small", "cpu", 0.0, long=False, sizes=(1,))
    assert [row["model"] for row in found] == list(proxy_latency.KINDS)
    assert all(row["median ms"] > 0 and row["calls"] == 1 for row in found)


def test_the_slowest_hundredth_of_a_run_is_told(monkeypatch, capsys):
    """Both prefills are one stage of 30 ms; then the long one goes on alone, 20 ms a round."""
    worker = Worker(2, in_order(AffineCost, 10_000_000, 1_000_000, 18_000_000, 2_000_000))
    instance = Instance(Requests([5, 15], [1, 101]), (worker,), "prefill")
    found = tail_requests.slowest(instance)
    assert found["p99 s"] == pytest.approx(0.030 + 100 * 0.020)
    assert found["waits, %"] == pytest.approx(100 * 30 / 2030)
    assert (found["pace, ms"], found["pace alone, ms"]) == (20.0, 20.0)
    assert found["prompt over median"] == 1.5
    assert found["answer over median"] == pytest.approx(101 / 51)
    monkeypatch.setattr(tail_requests, "workload", lambda *_: instance)
    tail_requests.main(["--seeds", "2"])
    assert "| ShareGPT, gamma | 2.0 | 1.5 | 1.5 | 2.0 | 20.0 | 20.0 |" in capsys.readouterr().out


def drawn(rng, n):
    cost = in_order(AffineCost, *(rng.randint(*x) for x in ((0, 20), (1, 9), (1, 20), (0, 5))))
    columns = ([rng.randint(*ends) for _ in range(n)] for ends in ((1, 9), (1, 4), (0, 60)))
    return Instance(in_order(Requests, *columns), Worker(n, cost), first_token="prefill")


def test_the_search_finds_the_least_sum():
    rng = random.Random(1)
    for _ in range(12):
        instance = drawn(rng, rng.randint(1, 4))
        least = least_jct_sum(instance)
        assert least == least_sum_ns(instance, "mean_jct")
        assert orsched.bound(instance, "mean_jct").certificate["sum_ns"] <= least
        mean = orsched.solve(instance, "fcfs").schedule.results["jct_ns"]["mean"]
        assert least <= round(mean * len(instance))
    assert least_jct_sum(drawn(random.Random(2), 12), 1e-3) is None  # the search takes too long


def least_of_rows(instance, rows):
    some = instance.replace(requests=instance.requests.take(rows))
    return least_sum_ns(some, "mean_jct") if rows else 0


def test_on_several_workers_all_divisions_are_tried():
    rng = random.Random(3)
    for _ in range(4):
        one = drawn(rng, 4)
        two = one.replace(workers=[one.worker, Worker(4, one.worker.cost, name="other")])
        least = least_jct_sum(two)
        halves = [[i for i in range(4) if chosen >> i & 1] for chosen in range(16)]
        alone = [least_of_rows(one, half) for half in halves]
        assert least == min(map(add, alone, reversed(alone))) <= least_jct_sum(one)
        for method in ("fcfs", "gittins"):
            schedule = orsched.solve(two, method).schedule
            if not allowances_of(two, schedule):
                assert schedule.results["jct_ns"]["mean"] * 4 >= least - 2


MS = 10**6
COST = in_order(AffineCost, 0, MS, 20 * MS, 3 * MS)


@pytest.mark.parametrize(("prompts", "outputs", "parts"), [
    ([10], [4], [0.010 + 3 * 0.023, 0.010 + 3 * 0.023, 0, 0, 0]),
    # both wait for both prefills in one stage; four of their rounds are shared
    ([10, 30], [5, 5], [0.040 + 4 * 0.026, 0.020 + 4 * 0.023, 4 * 0.003, 0, 0.020]),
], ids=["alone", "two at once"])  # fmt: skip
def test_parts_of_a_stay_by_hand(prompts, outputs, parts):
    instance = Instance(Requests(prompts, outputs), Worker(2, COST), first_token="prefill")
    found = stays(instance, orsched.solve(instance, "fcfs").schedule)
    names = ("JCT", "own", "rounds", "wait", "held up")
    assert [found[name] for name in names] == pytest.approx(parts)


def test_parts_add_up_on_two_workers():
    made = Requests(list(range(5, 45)), [3, 9, 30, 14] * 10)
    instance = Instance(made, (Worker(4, COST),) * 2, first_token="prefill")
    instance = with_arrivals(instance, "poisson:rate=20", seed=1)
    schedule = orsched.solve(instance, "gittins@clairvoyant").schedule
    found = stays(instance, schedule)
    assert found["JCT"] == pytest.approx(schedule.results["jct_ns"]["mean"] / 1e9)
    parts = [found[name] for name in ("own", "wait", "rounds", "held up")]
    assert sum(parts) == pytest.approx(found["JCT"])
    assert min(parts) > 0


def test_a_row_a_class_and_seed_with_gaps_from_0(capsys):
    words = "--instances two-by-two --seconds 0.5 --seeds 2 --steps stages"
    latency_search.main(words.split())
    head, line, *rows = capsys.readouterr().out.splitlines()
    assert head.count("|") == line.count("|") == 9
    assert len(rows) == 2
    for seed, row in enumerate(rows):
        cells = [cell.strip() for cell in row.split("|")]
        assert cells[3:5] == ["stages, rounds", str(seed)]
        assert int(cells[5]) > 0
        assert float(cells[8].removesuffix("%")) >= 0
