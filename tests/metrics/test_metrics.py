"""Figures by hand and of what is simulated: summary, objectives and flat figures."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import (
    SLO,
    AffineCost,
    InputError,
    Worker,
    check,
    load_schedule,
    save_schedule,
    simulate,
    summarise,
)
from orsched.data.schedule import Steps, Work
from orsched.metrics.flat_figures import FIGURES, flat_figures
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from orsched.simulator import simulate_policy
from orsched.solving.result import ROW, request_columns
from tests.by_the_book import Book, require_reported
from tests.checker.valid import with_step, with_work
from tests.decoding import decoding
from tests.in_order import in_order
from tests.metrics.any_schedule import any_schedule
from tests.random_instances import random_batching_instance
from tests.simulator.batching_policies import BATCHING
from tests.views.samples import every_kind

cases = st.integers(0, 10**6).map(any_schedule)
several = settings(max_examples=60)


@several
@given(cases)
def test_numbers_are_those_of_each_step_and_client_time_adds_up(case):
    """INV-15: busy time and bubbles are clients x makespan, to the nanosecond."""
    instance, schedule = case
    require_reported(instance, schedule)
    results = summarise(instance, schedule)
    clients = sum(worker.clients for worker in instance.workers)
    total = results["busy_client_ns"] + sum(results["bubble_ns"].values())
    assert total == clients * schedule.makespan_ns


def test_the_tail_is_the_time_of_the_last_tenth_where_requests_have_groups():
    """Rounds of 1 s on ten clients: nine requests of 2 tokens, one of 9; the prefill takes 3 s."""
    worker = Worker(10, in_order(AffineCost, 3 * 10**9, 0, 10**9, 0))
    plain = decoding([1] * 10, [2] * 9 + [9], worker)
    grouped = plain.replace(requests=plain.requests.replace(group=[0] * 10))
    result = simulate(grouped, "fcfs")
    assert (result.checked, result.schedule.results["tail_ns"]) == (True, 7 * 10**9)
    row = result.to_row()
    assert (row["tail_s"], row["bubble_share"]) == (7.0, pytest.approx(1 - (9 * 5 + 12) / 120))
    without = simulate(plain, "fcfs")
    assert "tail_ns" not in without.schedule.results
    assert without.to_row()["bubble_share"] is None
    for tail in (7 * 10**9 + 1, None, "7"):
        results = {**result.schedule.results, "tail_ns": tail}
        (fault,) = check(grouped, replace(result.schedule, results=results))
        assert fault.field == "results.tail_ns"


def require_times(instance, schedule):
    """Times of requests are those of the literal reading; return both."""
    book, times = Book(instance, schedule), request_times(instance, schedule)
    literal = {
        "first_token_ns": book.first_token, "prefill_end_ns": book.prefill_end,
        "finish_ns": book.finish,
    }  # fmt: skip
    for column, moments in literal.items():
        assert times[column].tolist() == [moments[request] for request in range(len(instance))]
    return book, times


@several
@given(cases)
def test_times_are_those_of_each_round(case):
    instance, schedule = case
    book, times = require_times(instance, schedule)
    stays = {stay.request: stay for stay in reversed(book.stays)}  # the first of each request
    for request in range(len(instance)):
        assert times["client"][request] == stays[request].client
        begin = book.steps[stays[request].first]
        assert times["prefill_start_ns"][request] == begin.start_ns
        assert begin.worker == stays[request].worker


@several
@given(cases)
def test_caches_are_those_of_each_round(case):
    line, book = Timeline(*case), Book(*case)
    for number, row in enumerate(book.work):
        (stay,) = (s for s in book.stays
                   if s.request == row.request and s.first <= row.first_step <= s.last
                   and s.worker == book.steps[row.first_step].worker)  # fmt: skip
        before = [cache for step, (*_, cache) in stay.does.items() if step < row.first_step]
        assert line.cached[number] == (before[-1] if before else 0)
        grown = stay.cache_in(row.last_step) - line.cached[number]
        assert grown == (row.tokens if row.first_step == row.last_step and line.is_prefill[number]
                         else line.row_rounds[number])  # fmt: skip


def test_a_measured_schedule_has_equal_rounds_in_a_step():
    for seed in range(30):
        instance, schedule = any_schedule(seed, requests=6)
        measured = schedule.replace(run={"device": "a device", "clock": "a clock"})
        times = request_times(instance, measured)
        if instance.first_token == "prefill":
            assert times["first_token_ns"].tolist() == times["prefill_end_ns"].tolist()
            continue
        line, work = Timeline(instance, measured), schedule.work
        rows = [np.flatnonzero((work.request == r) & (work.phase == 1))[0] for r in range(6)]
        place = line.first[rows]
        one = (line.end_ns[place] - line.start_ns[place]) // line.rounds[place]
        assert times["first_token_ns"].tolist() == (line.start_ns[place] + one).tolist()


@pytest.mark.full
def test_many_more_schedules():
    for seed in range(10**6, 10**6 + 3000):
        require_reported(*any_schedule(seed))


CHANGES = {
    "steps.worker": ("worker", 0, 7, "the worker does not exist"),
    "work.request": ("request", 0, 99, "the request does not exist"),
    "work.client": ("client", 0, 2, "the worker has fewer clients"),
    "an end before the start": ("last_step", 2, 3, "the row ends before it begins"),
    "another worker's step": ("last_step", 1, 5, "the row changes workers"),
    "a long prefill": ("last_step", 0, 3, "a prefill row has one step"),
    "a prefill in a round": ("phase", 4, 0, "a prefill row has one step"),
    "a round in a prefill": ("phase", 5, 1, "the step does not do that"),
    "a stay on two workers": ("first_step", 2, 5, "the stay changes workers"),
    "twice in one step": ("first_step", 7, 5, "the rows overlap"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_work_that_cannot_be_is_named(change):
    column, row, value, problem = CHANGES[change]
    instance, schedule = every_kind()
    changed = with_step if column == "worker" else with_work
    broken = changed(schedule, column, row, value)
    if change == "a stay on two workers":
        broken = with_work(broken, "last_step", row, value)
    with pytest.raises(InputError, match=problem) as caught:
        summarise(instance, broken)
    assert caught.value.row == row


def test_a_request_of_one_token_has_no_pace_even_if_its_batch_holds_it():
    worker = orsched.Worker(2, in_order(orsched.costs.AffineCost, 4, 1, 8, 1))
    instance = orsched.Instance(orsched.Requests([3, 3], [1, 4]), worker, first_token="prefill")
    steps = in_order(Steps, [0, 0], [0, 1], [0, 10], [10, 40], [1, 3])
    work = Work([0, 0, 1, 1], [0, 0, 1, 1], [0, 2, 0, 1], [0, 1, 0, 1], [0, 1, 0, 1], [3, 1, 3, 1])
    schedule = orsched.Schedule(instance.sha256, steps, work, "own", "none")
    assert orsched.check(instance, schedule) == []
    assert summarise(instance, schedule, SLO(ttft_ns=10, tpot_ns=10))["slo"]["attained"] == 2
    assert summarise(instance, schedule, SLO(ttft_ns=10, tpot_ns=9))["slo"]["attained"] == 1


def simulated(name, seeds):
    """Schedules of random policies of some kind for random instances."""
    for seed in seeds:
        instance = random_batching_instance(random.Random(f"{name} {seed}"))
        yield instance, simulate_policy(instance, BATCHING[name](seed)).schedule


@pytest.mark.parametrize("name", BATCHING)
def test_simulated_schedules_report_what_is_defined_and_the_checker_agrees(name):
    for instance, schedule in simulated(name, range(12)):
        require_reported(instance, schedule)
        require_times(instance, schedule)


@pytest.mark.full
@pytest.mark.parametrize("name", BATCHING)
def test_many_more_simulated_schedules(name):
    for instance, schedule in simulated(name, range(1000, 2000)):
        require_reported(instance, schedule)


limits = st.none() | st.integers(0, 400)


@settings(max_examples=80)
@given(cases, limits, limits)
def test_figures_are_those_of_the_requests_one_by_one(case, ttft_ns, tpot_ns):
    instance, schedule = case
    slo = None if ttft_ns is None and tpot_ns is None else SLO(ttft_ns=ttft_ns, tpot_ns=tpot_ns)
    results = summarise(instance, schedule, slo)
    figures = flat_figures(results)
    assert list(figures) == list(FIGURES)
    rows = request_columns(instance, schedule)
    n = len(instance)
    if n == 0:
        assert figures["jct_mean_s"] is None
        return
    assert figures["ttft_mean_s"] == pytest.approx(sum(rows["ttft_s"]) / n)
    assert figures["jct_p99_s"] == sorted(rows["jct_s"])[-(-99 * n // 100) - 1]
    several = [k for k in range(n) if instance.requests.output_tokens[k] >= 2]
    gaps = [rows["itl_max_s"][k] for k in several]
    assert figures["itl_max_s"] == max(gaps, default=None)
    if slo is None:
        assert figures["slo_attainment"] is figures["goodput_per_s"] is None
        return
    met = 0
    for k in range(n):
        ttft, tpot = rows["ttft_s"][k] * 1e9, rows["tpot_s"][k] * 1e9
        in_ttft = ttft_ns is None or round(ttft) <= ttft_ns
        met += in_ttft and (tpot_ns is None or k not in several or round(tpot) <= tpot_ns)
    assert figures["slo_attainment"] == met / n
    assert figures["goodput_per_s"] == pytest.approx(met * 1e9 / schedule.makespan_ns)
    assert check(instance, schedule.replace(results=results)) == []


def test_limits_are_given_in_seconds_or_nanoseconds_either_alone():
    assert SLO(ttft_s=2).limits_ns == (2_000_000_000, None)
    assert SLO(tpot_s=0.05) == SLO(tpot_ns=50_000_000)
    assert SLO(ttft_s=0.1, tpot_s=0.3) == SLO(ttft_ns=100_000_000, tpot_ns=300_000_000)
    for wrong in ({}, {"ttft_s": 1, "ttft_ns": 1}, {"ttft_s": -1}, {"tpot_ns": 0.5},
                  {"ttft_s": float("nan")}):  # fmt: skip
        with pytest.raises(InputError):
            SLO(**wrong)


def test_without_an_slo_the_limits_of_the_classes_give_the_overall_attainment():
    limits = ("interactive:ttft=20,tpot=0.1", "batch:ttft=60")
    instance = orsched.load("gsm8k-llama65b").with_classes(*limits)
    result = orsched.solve(instance, "fcfs")
    results = result.schedule.results
    assert results["slo"] is None
    limited = [part for part in results["classes"].values() if part["slo"]]
    attained = sum(part["slo"]["attained"] for part in limited)
    judged = sum(part["requests"] for part in limited)
    assert judged == len(instance)
    assert 0 < result.slo_attainment == attained / judged < 1
    given = orsched.solve(instance, "fcfs", slo=SLO(ttft_s=20, tpot_s=0.1))
    assert given.slo_attainment == given.schedule.results["slo"]["attainment"]


def test_files_without_the_new_numbers_load_and_check_and_wrong_ones_do_not(tmp_path):
    instance = orsched.load("two-by-two")
    path = tmp_path / "s.json"
    save_schedule(orsched.solve(instance, "fcfs", slo=SLO(ttft_s=1)).schedule, path)
    document = json.loads(path.read_text())
    assert check(instance, load_schedule(path)) == []
    older = json.loads(path.read_text())
    del older["results"]["itl_ns"]
    del older["results"]["slo"]["goodput_per_s"]
    older["results"]["slo"]["tpot_ns"] = 2**62  # what stood for no limit
    path.write_text(json.dumps(older))
    old = load_schedule(path)
    assert check(instance, old) == []
    assert flat_figures(old.results)["itl_max_s"] is None
    results = document["results"]
    for where, name in ((results["itl_ns"], "max"), (results["slo"], "goodput_per_s")):
        kept = where[name]
        where[name] = kept + 1
        path.write_text(json.dumps(document))
        assert [v.kind.value for v in check(instance, load_schedule(path))] == ["result"]
        where[name] = kept
    results["slo"] |= {"ttft_ns": None, "tpot_ns": None}
    path.write_text(json.dumps(document))
    assert "an objective without a limit" in check(instance, load_schedule(path))[0].message


def test_attributes_of_a_result_are_the_figures_of_its_row():
    result = orsched.solve(orsched.load("two-by-two"), "fcfs", slo=SLO(ttft_s=0.1))
    row = result.to_row()
    assert tuple(row) == ROW
    for name in FIGURES:
        if name not in ("gap", "slot_utilization"):
            assert getattr(result, name) == row[name]
    assert result.makespan_s == result.makespan
