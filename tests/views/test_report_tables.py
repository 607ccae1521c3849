"""Tables of schedules: what is marked and badged; runs claim nothing that only plans can."""

import re

import pytest

import orsched
from orsched.metrics.flat_figures import flat_figures
from orsched.metrics.summary import summarise
from orsched.models.bounds.bounds import bound
from orsched.solving.scenario import with_workers
from orsched.views.gantt import gantt
from orsched.views.html import bounds_on_means, slo_of, write_report
from orsched.views.report_tables import (
    class_table,
    labels,
    latency_table,
    makespan_table,
    ranking_of,
    rows_of,
    worker_table,
)
from tests.views.samples import Page, begun, every_kind, mixed, random_instance, served, timed


def several(instance, slo=None):
    names = ("fcfs", "one_at_a_time", "dynamic")
    return [orsched.simulate(instance, name, slo=slo).schedule for name in names]


def marked(table, field):
    """Labels of the rows whose figure is marked."""
    rows = re.findall(r"<tr.*?</tr>", table)[1:]
    best = [row for row in rows if re.search(rf'data-field="{field}"[^>]*><b class="best"', row)]
    return [re.search(r'scope="row">([^<]*)', row)[1].strip() for row in best]


def badged(page):
    """Labels with badges, and what these say."""
    return re.findall(r'scope="row">([^<]*) <span class="badge">([^<]*)<', page)


def page_of(tmp_path, instance, schedules, **options):
    write_report(instance, schedules, tmp_path / "a.html", **options)
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    return re.sub(r"<script.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)


def test_all_at_once_the_shortest_is_badged_and_comes_first(tmp_path):
    instance = random_instance(n=40)
    schedules = several(instance)
    page = page_of(tmp_path, instance, schedules)
    shortest = min(schedules, key=lambda s: s.makespan_ns).method
    assert badged(page) == [(shortest, "shortest")]
    assert page.index('id="comparison"') < page.index('id="latency"')


def test_with_arrivals_latency_comes_first_and_nothing_is_called_short(tmp_path):
    instance = random_instance(n=40, latest_ns=40 * 10**9)
    schedules = several(instance)
    page = page_of(tmp_path, instance, schedules)
    rows = rows_of(instance, schedules)
    least = min(rows, key=lambda row: row.results["jct_ns"]["mean"]).label
    assert badged(page) == [(least, "least mean JCT")]
    assert page.index('id="latency"') < page.index('id="comparison"')
    assert "shortest" not in page.split("<h2>Words</h2>")[0]
    assert marked(page, "makespan") == []
    assert marked(page, "jct-mean") == [least]


def test_with_limits_attainment_decides(tmp_path):
    instance = random_instance(n=40, latest_ns=40 * 10**9)
    slo = orsched.SLO(ttft_s=8)
    rows = rows_of(instance, several(instance), slo)
    ranking = ranking_of(instance, rows)
    figures = [flat_figures(row.results) for row in rows]
    top = max(each["slo_attainment"] for each in figures)
    assert ranking.words == "best attainment"
    assert [figures[k]["slo_attainment"] for k in ranking.best] == [top]
    table = latency_table(rows, ranking, badged=True)
    (best,) = ranking.best
    assert marked(table, "slo-attainment") == [rows[best].label]
    values = re.findall(r'data-field="goodput" data-value="([^"]*)"', table)
    assert [float(value) for value in values] == [each["goodput_per_s"] for each in figures]
    page = page_of(tmp_path, instance, several(instance), slo=slo)
    assert "TTFT 8 s" in page


def test_a_makespan_that_is_the_last_arrivals_is_said_to_be_so(tmp_path):
    said = "arrivals decide it, not the method"
    early = random_instance(n=20, latest_ns=10**9)
    assert said not in page_of(tmp_path, early, several(early))
    requests = orsched.Requests([10, 10], [5, 5], arrival_ns=[0, 100 * 10**9])
    late = orsched.Instance(requests, orsched.Worker(1), first_token="decode")
    assert said in page_of(tmp_path, late, several(late))


def test_limits_are_those_that_the_schedules_were_made_with(tmp_path):
    instance = random_instance(n=20)
    slo = orsched.SLO(ttft_s=3, tpot_s=0.1)
    made = several(instance, slo)
    assert slo_of(made) == slo
    assert slo_of([*made, *several(instance)]) == slo
    assert slo_of([*made, *several(instance, orsched.SLO(ttft_s=4))]) is None
    assert slo_of(several(instance)) is None
    assert "TTFT 3 s, TPOT 0.1 s" in page_of(tmp_path, instance, made)


def test_bounds_stand_below_the_means():
    instance = random_instance(n=20, latest_ns=5 * 10**9)
    rows = rows_of(instance, [served(instance)])
    bounds = bounds_on_means(instance, rows)
    table = latency_table(rows, ranking_of(instance, rows), badged=True, bounds=bounds)
    for measure in ("ttft", "jct"):
        expected = bound(instance, f"mean_{measure}").value_ns
        assert bounds[measure] == [expected]
        assert 0 < expected <= rows[0].results[f"{measure}_ns"]["mean"]
        assert f'data-field="{measure}-mean" data-ns="' in table
        assert f'data-bound-ns="{expected}"' in table


def test_the_parts_of_the_work_are_told_as_they_begin(tmp_path, monkeypatch, capsys):
    """Bounds on means can take seconds; the command says that it is at them."""
    from orsched.cli.commands import run
    from orsched.cli.output import ProgressPrinter
    from orsched.files import save_instance, save_schedule
    from orsched.views import html

    instance, seen = random_instance(n=20, latest_ns=5 * 10**9), []
    schedule = orsched.simulate(instance, "fcfs").schedule
    bounding = html.bounds_on_means
    monkeypatch.setattr(html, "bounds_on_means", lambda *of: seen.append("do") or bounding(*of))
    write_report(instance, [schedule], tmp_path / "a.html", told=seen.append)
    assert seen == ["checking", "bounding means", "do", "writing"]
    seen.clear()
    monkeypatch.setattr(ProgressPrinter, "say", lambda self, what: seen.append(what))
    save_instance(instance, tmp_path / "i.json")
    save_schedule(schedule, tmp_path / "s.json")
    files = [str(tmp_path / name) for name in ("i.json", "s.json", "r.html")]
    assert run(["report", *files[:2], "-o", files[2]]) == 0
    assert seen == ["checking", "writing", "checking", "bounding means", "do", "writing"]


@pytest.mark.parametrize("method", ["fcfs", "vllm"])
def test_bounds_allow_what_the_schedule_does(method):
    instance = random_instance(n=30, latest_ns=5 * 10**9)
    (row,) = rows = rows_of(instance, [orsched.simulate(instance, method).schedule])
    for measure, (value,) in bounds_on_means(instance, rows).items():
        assert value <= row.results[f"{measure}_ns"]["mean"]


def test_nothing_is_marked_where_all_are_alike():
    instance = random_instance(n=20)
    schedule = served(instance)
    rows = rows_of(instance, [schedule, schedule.replace(method="other")])
    assert "best" not in makespan_table(rows, ranking_of(instance, rows), badged=True)


def test_best_figures_of_each_class_are_marked():
    instance, first = mixed()
    rows = rows_of(instance, [first, mixed(policy="fcfs")[1]])
    table = class_table(rows, rivals=(0, 1))
    assert len(marked(table, "ttft-mean")) == 2
    for name in ("interactive", "batch"):
        values = [row.results["classes"][name]["ttft_ns"]["mean"] for row in rows]
        assert f'data-ns="{min(values)}"><b class="best"' in table
        assert f'data-ns="{max(values)}"><b class="best"' not in table
    assert "best" not in class_table(rows, rivals=(0,))


MEASURED = {"device": "d", "clock": "c"}
CLAIMS = ("it is the shortest among ", 'class="badge"')


@pytest.fixture(scope="module")
def instance():
    return orsched.load("two-by-two")


@pytest.fixture(scope="module")
def plan(instance):
    found = orsched.solve(instance, "exact").schedule
    assert found.makespan_ns == found.bound["value_ns"]
    return found


def run_of(plan, speed=1, **run):
    """Return a plan as a run on a worker so many times as fast as its model."""
    times = (plan.steps.start_ns // speed, plan.steps.end_ns // speed)
    return timed(plan, *times, run={**MEASURED, **run})


def makespans(instance, schedules):
    rows = rows_of(instance, schedules)
    return makespan_table(rows, ranking_of(instance, rows), badged=True)


def test_runs_are_never_the_shortest(instance, plan, tmp_path):
    page = page_of(tmp_path, instance, [plan, plan.replace(method="other")])
    assert all(claim in page for claim in CLAIMS)
    for speed in (1, 2):
        runs = [run_of(plan, speed), run_of(plan, speed)]
        page = page_of(tmp_path, instance, runs)
        assert not any(claim in page for claim in CLAIMS)
        assert ("the worker was faster than its model" in page) is (speed == 2)
        assert page.count("yes; times not checked") == 2
        assert 'data-field="gap" data-value="-' not in page
    slow = orsched.solve(instance, "fcfs", parameters={}).schedule
    table = makespans(instance, [run_of(plan, 2), plan, slow])
    names = [name for name, _ in badged(table)]
    assert "exact, run" not in names
    assert "exact" in names


def test_an_invalid_schedule_is_not_the_shortest(instance, plan):
    halved = timed(plan, plan.steps.start_ns // 2, plan.steps.end_ns // 2)
    assert "badge" not in makespans(instance, [plan, halved])


def test_no_gap_below_the_bound(instance, plan):
    fast, slow = run_of(plan, 2), run_of(plan)
    assert summarise(instance, fast)["gap"] is None
    assert summarise(instance, slow)["gap"] == 0
    reported = fast.replace(results=summarise(instance, fast))
    assert orsched.check(instance, reported, times="measured") == []
    forged = reported.replace(results={**reported.results, "gap": -0.5})
    (found,) = orsched.check(instance, forged, times="measured")
    assert found.field == "results.gap"
    assert "Gap" not in forged._repr_html_()
    assert "measured" in forged._repr_html_()
    assert "Gap" in plan._repr_html_()


def test_the_title_of_a_chart_has_no_negative_gap(instance, plan):
    def facts(schedule):
        axes = gantt(instance, schedule)
        return next(t.get_text() for t in axes.texts if t.get_gid() == "facts")

    assert "gap 0.00 %" in facts(plan)
    assert "measured" not in facts(plan)
    assert "gap" not in facts(run_of(plan, 2))
    assert "measured" in facts(run_of(plan, 2))
    assert "partial run" in facts(run_of(plan, complete=False))


def test_a_part_of_a_run_says_so_and_has_no_latencies(instance, plan, tmp_path):
    work, last = plan.work, len(plan.steps) - 1
    part = begun(plan, last, MEASURED)
    page = page_of(tmp_path, instance, [plan, part])
    assert labels([part]) == ["exact, partial run"]
    count = len(instance) - len(set(work.request[work.last_step >= last].tolist()))
    assert f"partial ({count} of {len(instance)} requests finished)" in page
    assert "Gap" not in part._repr_html_()
    (row,) = rows_of(instance, [part])
    assert row.results["gap"] is row.results["tokens_per_s"] is row.results["jct_ns"] is None
    assert "-1" not in latency_table([row], ranking_of(instance, [row]), badged=True)


EVIL = '<script>alert("x")</script>&'


TABLE = {"table", "caption", "tbody", "tr", "th", "td"}


def parsed(shown):
    return Page(shown._repr_html_())


@pytest.fixture
def evil():
    memory = orsched.BlockMemory(10, 128, "whole")
    worker = orsched.Worker(2, prefill_cap_tokens=900, memory=memory, name=EVIL)
    requests = orsched.Requests([3, 5], [2, 4])
    return orsched.Instance(requests, worker, name=EVIL, first_token="decode")


def test_instance_tables_hold_the_figures_and_escape_texts(evil):
    reader = parsed(evil)
    assert {tag for tag, _ in reader.elements} == TABLE
    assert {f"Instance {EVIL}", EVIL} <= set(reader.texts)
    pang = "affine, LLaMA-65B on Ascend 910 (Pang et al.)"
    said = f"2 clients, {pang}, prefill up to 900 tokens, 10 blocks of 128 tokens (whole)"
    assert {said, "4.0", "3.0"} <= set(reader.texts)


def test_empty_instances_and_many_workers_have_tables():
    workers = tuple(orsched.Worker(1, name=f"w{i}") for i in range(13))
    none = orsched.Instance(orsched.Requests([], []), workers, first_token="decode")
    texts = parsed(none).texts
    assert "w9" in texts
    assert "w10" not in texts
    assert "3" in texts


def test_schedule_tables_hold_the_figures_and_escape_texts(evil):
    schedule = orsched.simulate(evil, "fcfs").schedule.replace(results={}, bound=None)
    plain = parsed(schedule)
    assert f"{EVIL} ({evil.sha256[:12]})" in plain.texts
    assert f"{schedule.makespan_ns / 10**9:.3f} s" in plain.texts
    full = schedule.replace(
        method=EVIL,
        results={"slot_utilization": 0.5, "gap": 0.25, "prefill_stages": 1, "decode_rounds": 4},
        bound={"name": EVIL, "value_ns": 1_500_000_000, "certificate": {}},
    )
    reader = parsed(full)
    assert {tag for tag, _ in reader.elements} == TABLE
    for text in (f"Schedule by {EVIL}", "50.00%", "25.00%", "1.500 s", f"Bound {EVIL}"):
        assert text in reader.texts


def test_what_is_rare_is_named_where_it_occurs():
    instance, schedule = every_kind()
    reader = parsed(instance)
    workers = [text for text in reader.texts if text.startswith("2 clients, affine, ")]
    assert any(text.endswith("9 blocks of 2 tokens (paged), padded") for text in workers)
    plain = parsed(schedule).texts
    full = schedule.replace(results=summarise(instance, schedule))
    found = parsed(full).texts
    for word in ("Mixed steps", "Invalid tokens", "Pad tokens"):
        assert word in found
        assert word not in plain
    assert "Restarts" not in found


def test_the_report_has_a_row_for_each_of_several_workers():
    several = with_workers(orsched.load("two-by-two"), 3)
    for instance, many in ((several, 3), (orsched.load("two-by-two"), 0)):
        done = orsched.simulate(instance, "fcfs").schedule
        found = worker_table(instance, rows_of(instance, [done]))
        assert found.count('scope="row"') == many
