"""The HTML report: what it says, what it must not load, and that names cannot break it."""

import json
import re
from collections import Counter
from functools import partial
from itertools import pairwise

import pytest

import orsched
from orsched.calibration.catalogue import cost_words
from orsched.common.errors import InputError
from orsched.metrics.summary import summarise
from orsched.metrics.token_times import request_times
from orsched.views import page_data
from orsched.views.html import write_report
from orsched.views.report_tables import labels, short_time
from tests.metrics.any_schedule import any_schedule
from tests.views.samples import Page, by_hand, every_kind, random_instance, served, use_of

NASTY = '<script>alert("x")</script><img src="http://example.org/a.png">&amp;'


@pytest.fixture
def page(tmp_path):
    """Write a report of one schedule or several, and read it."""

    def write(instance, schedules, **options):
        several = schedules if isinstance(schedules, list) else [schedules]
        write_report(instance, several, tmp_path / "a.html", **options)
        return Page((tmp_path / "a.html").read_text(encoding="utf-8"))

    return write


def chart_of(page, index=0):
    return json.loads(page.scripts["orsched-data"])["methods"][index]


@pytest.fixture(scope="module")
def sample():
    instance = random_instance(n=40, latest_ns=5 * 10**9, name="sample")
    schedule = served(instance)
    return instance, [schedule, schedule.replace(method="second", bound=None, run={})]


def test_the_table_holds_the_exact_numbers(page, sample):
    instance, schedules = sample
    found = page(instance, schedules).rows["comparison"][1:]
    assert len(found) == 2
    for row, schedule in zip(found, schedules, strict=True):
        results = summarise(instance, schedule)
        assert int(row["makespan"]["data-ns"]) == schedule.makespan_ns
        assert float(row["utilization"]["data-value"]) == results["slot_utilization"]
        assert int(row["utilization"]["data-busy-client-ns"]) == results["busy_client_ns"]
        assert int(row["stages"]["data-value"]) == results["prefill_stages"]
        assert int(row["rounds"]["data-value"]) == results["decode_rounds"]
        assert float(row["rate"]["data-value"]) == results["tokens_per_s"]
        assert row["checked"]["data-violations"] == "0"
    assert int(found[0]["bound"]["data-ns"]) == schedules[0].bound["value_ns"]
    assert float(found[0]["gap"]["data-value"]) == summarise(instance, schedules[0])["gap"]
    assert "data-ns" not in found[1]["bound"]
    assert "data-value" not in found[1]["gap"]


def test_bubbles_and_latencies_are_exact_and_bubbles_add_up(page, sample):
    instance, schedules = sample
    tables = page(instance, schedules).rows
    results = summarise(instance, schedules[0])
    uses = {k: int(v["data-ns"]) for k, v in tables["bubbles-table"][1].items()}
    assert uses.pop("busy") == results["busy_client_ns"]
    assert uses == {k.replace("_", "-"): v for k, v in results["bubble_ns"].items()}
    total = sum(uses.values()) + results["busy_client_ns"]
    assert total == instance.worker.clients * schedules[0].makespan_ns
    latency = tables["latency"][1]
    assert int(latency["ttft-p99"]["data-ns"]) == results["ttft_ns"]["p99"]
    assert float(latency["jct-mean"]["data-ns"]) == results["jct_ns"]["mean"]


@pytest.mark.parametrize(
    "case", [None, every_kind, *(partial(any_schedule, seed) for seed in range(4))]
)
def test_batches_and_memory_are_exact(page, sample, case):
    instance, schedule = case() if case else (sample[0], sample[1][0])
    results = summarise(instance, schedule)
    row = page(instance, schedule).rows["batches"][1]
    expected = {f"batch-{phase}": results["batch_size"][phase] for phase in ("prefill", "decode")}
    expected |= {f"worker-end-{k}": results["worker_end_ns"][k] for k in ("min", "max", "std")}
    expected |= {f"kv-{k}": (results["kv_blocks"] or {}).get(k) for k in ("peak", "mean")}
    for name in ("mixed_steps", "restarts", "invalid_tokens", "pad_tokens"):
        expected[name.replace("_", "-")] = results[name]
    found = {k: v.get("data-ns" if "end" in k else "data-value") for k, v in row.items()}
    assert {k: None if v is None else float(v) for k, v in found.items()} == expected


def test_charts_hold_pauses_invalid_rounds_restarts_and_mixed_steps(page):
    found = page(*every_kind())
    chart = chart_of(found)
    assert (chart["invalid"]["start"], chart["invalid"]["end"]) == ([26], [38])
    assert (chart["paused"]["start"], chart["paused"]["lane"]) == ([42], [2])
    assert chart["stages"]["phase"].count(2) == 2
    assert chart["restarts"]["start"] == []
    assert {"mixed step", "paused", "invalid tokens"} <= set(found.texts)
    assert "restart" not in found.texts
    again = page(*by_hand())
    restarts = {"start": [24], "lane": [0], "request": [1], "stay": [1]}
    assert chart_of(again)["restarts"] == restarts
    assert "restart" in again.texts
    assert "mixed step" not in again.texts


@pytest.mark.parametrize("seed", range(6))
def test_usage_adds_up_to_the_client_time(seed):
    instance, schedule = any_schedule(seed, requests=6)
    found = page_data.chart_of(instance, schedule).columns["usage"]
    results = summarise(instance, schedule)
    widths = [b - a for a, b in pairwise(found["borders"])]
    clients, requests, *memory = found["rows"]
    areas = Counter()
    for name, _, _, values, stacked in clients["lines"]:
        assert stacked
        areas[name] = sum(w * v for w, v in zip(widths, values, strict=True))
    busy = areas["decode"] + areas["prefill"]
    assert busy == pytest.approx(results["busy_client_ns"], abs=1)
    assert areas["invalid tokens"] == pytest.approx(results["bubble_ns"]["invalid"], abs=1)
    assert [line[0] for line in requests["lines"]] == ["waiting", "running"]
    blocks = [max(line[3]) for row in memory for line in row["lines"]]
    if results["kv_blocks"] is None:
        assert blocks == []
    else:
        assert max(blocks) <= results["kv_blocks"]["peak"]
        assert len(blocks) == sum(worker.memory is not None for worker in instance.workers)


def test_facts_name_padding_paged_memory_and_the_machine(page):
    texts = page(*every_kind()).texts
    assert "9 blocks of 2 tokens (paged), 9 blocks of 4 tokens (whole)" in texts
    assert "yes, no" in texts
    instance = orsched.load("two-by-two")
    texts = page(instance, orsched.simulate(instance, "fcfs").schedule).texts
    assert cost_words(instance.worker.cost, instance.worker.clients) in texts


def test_the_charts_hold_every_bar(page, sample):
    instance, schedules = sample
    chart = chart_of(page(instance, schedules))
    times = request_times(instance, schedules[0])
    use = use_of(instance, schedules[0])
    for name, expected in (("prefill", use.prefill), ("decode", use.decode)):
        assert chart[name]["start"] == expected.start_ns.tolist()
        assert chart[name]["end"] == expected.end_ns.tolist()
        assert chart[name]["lane"] == expected.lane.tolist()
        rows = [chart["requests"]["row"][k] for k in chart[name]["request"]]
        assert rows == expected.request.tolist()
    for name, key in (("first", "first_token_ns"), ("finish", "finish_ns")):
        assert chart["requests"][name] == times[key].tolist()
    assert chart["bound"] == schedules[0].bound["value_ns"]
    assert chart["shown_ns"] == chart["makespan"] == schedules[0].makespan_ns


def test_a_schedule_with_too_many_bars_is_shown_up_to_a_time(sample, monkeypatch):
    monkeypatch.setattr(page_data, "MAX_BARS", 10)
    instance, schedules = sample
    chart = page_data.chart_of(instance, schedules[0]).columns
    starts = use_of(instance, schedules[0]).decode.start_ns
    shown = chart["shown_ns"]
    assert 0 < shown < schedules[0].makespan_ns
    assert 0 < len(chart["decode"]["start"]) == (starts < shown).sum() <= 10
    assert len(chart["stages"]["start"]) <= 10
    assert max(chart["stages"]["start"]) < shown


def test_nothing_is_loaded_from_anywhere(page, sample):
    found = page(*sample)
    for tag, fields in found.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "href", "srcset", "action"} & fields.keys()
    policy = next(f["content"] for t, f in found.elements if f.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    style = next(x for x in found.texts if "--ink" in x)
    assert not re.search(r"url\(|@import", style)


def test_names_are_text_everywhere(page):
    ids = [f"{NASTY}{k}\u2028\ud800" for k in range(5)]
    instance = random_instance(n=5, ids=ids, name=NASTY, description=NASTY)
    plain = page(*by_hand())
    nasty = page(instance, served(instance).replace(method=NASTY), title=NASTY, notes=[NASTY])
    tags = [t for t, _ in nasty.elements]
    assert tags.count("script") == [t for t, _ in plain.elements].count("script") == 4
    assert "img" not in tags
    assert NASTY in nasty.texts  # it is there, as text
    assert chart_of(nasty)["requests"]["id"] == ids
    assert "<" not in nasty.scripts["orsched-data"]


def test_a_wrong_schedule_is_called_wrong(page):
    found = page(*by_hand())  # its times are not those of the cost model
    assert int(found.rows["comparison"][1]["checked"]["data-violations"]) > 0


def test_a_schedule_that_meets_its_bound_says_so_and_notes_are_printed(page, sample):
    instance = random_instance(n=1, clients=1)
    schedule = served(instance)
    assert schedule.bound["value_ns"] == schedule.makespan_ns
    said = [t for t in page(instance, schedule).texts if "is the shortest among" in t]
    assert len(said) == 1
    texts = page(*sample, notes=["Look here."]).texts
    assert not [t for t in texts if "is the shortest among" in t]
    assert "Look here." in texts


def test_schedules_of_one_method_are_told_apart():
    instance = random_instance(n=3)
    one = served(instance)
    several = [one, one.replace(information="predicted"), one, one.replace(method="other")]
    assert labels(several) == ["fcfs (none) #1", "fcfs (predicted)", "fcfs (none) #2", "other"]


def test_short_times_have_a_fitting_unit():
    assert short_time(1_500_000_000) == "1.500 s"
    assert short_time(2_500_000) == "2.5 ms"
    assert short_time(4_321) == "4.3 µs"


def test_equal_bytes_come_twice_outside_the_run_block(tmp_path, sample):
    instance, schedules = sample
    texts = []
    for p99 in (1, 1, 2):
        varied = [s.replace(run={"decision_ns": {"p99": p99}}) for s in schedules]
        write_report(instance, varied, tmp_path / "a.html")
        texts.append((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert texts[0] == texts[1] != texts[2]
    block = re.compile(r'<script type="application/json" id="orsched-run">.*?</script>')
    assert len(block.findall(texts[0])) == 1
    assert block.sub("", texts[0]) == block.sub("", texts[2])


def test_paper_scale_with_four_schedules_keeps_the_size_limit(tmp_path):
    instance = random_instance(n=1319, clients=200)
    schedule = served(instance, bound=False)
    path = tmp_path / "a.html"
    write_report(instance, [schedule.replace(method=m) for m in "abcd"], path)
    assert 4_000_000 < path.stat().st_size <= 8_000_000


def test_wrong_input_is_refused(page, tmp_path, sample):
    instance, schedules = sample
    with pytest.raises(InputError, match="no schedule"):
        page(instance, [])
    with pytest.raises(InputError, match="another instance") as caught:
        page(instance, [schedules[0], served(random_instance(n=3))])
    assert caught.value.row == 1
    assert list(tmp_path.iterdir()) == []


def test_critical_path_adds_up_to_the_makespan(page):
    instance = random_instance(3)
    schedule = served(instance)
    row = page(instance, schedule).rows["path-table"][-1]
    found = {name: int(fields["data-ns"]) for name, fields in row.items()}
    assert found["prefill-ns"] + found["decode-ns"] == found["length-ns"]
    assert found["mixed-ns"] == 0
    assert found["length-ns"] + found["idle-ns"] == schedule.makespan_ns
