"""The report in a real browser: it opens, zooms, answers the pointer, and tells the truth."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from orsched.views.curves import class_curves
from tests.browser.opening import point, until
from tests.views.samples import by_hand, every_kind, mixed, use_of

pytestmark = pytest.mark.browser


def span(page, index=0):
    """The times at the left and right edge of a chart, in seconds."""
    script = f"document.getElementById('gantt-{index}')._fullLayout.xaxis.range"
    return [float(x) for x in page.evaluate(script)]


def drag(page, start, end):
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=6)
    page.mouse.up()


def exact(ns):
    """Seconds as the page writes them: all digits, no trailing zeros."""
    text = f"{ns // 10**9}.{ns % 10**9:09d}".rstrip("0").rstrip(".")
    return f"{text} s"


def test_dragging_zooms_and_a_double_click_shows_everything(page, sample):
    end = sample[1][0].makespan_ns / 10**9
    whole = span(page)
    assert whole[0] == 0
    assert whole[1] >= end
    drag(page, point(page, 4, 0.4 * end), point(page, 14, 0.6 * end))
    until(page, "document.getElementById('gantt-0')._fullLayout.xaxis.range[0] > 0")
    left, right = span(page)
    assert left == pytest.approx(0.4 * end, abs=0.02 * end)
    assert right == pytest.approx(0.6 * end, abs=0.02 * end)
    page.mouse.dblclick(*point(page, 9, 0.5 * end))
    until(page, "document.getElementById('gantt-0')._fullLayout.xaxis.range[0] === 0")
    assert span(page) == whole


def test_pointing_at_a_bar_tells_the_request(page, sample):
    instance, schedules = sample
    bars = use_of(instance, schedules[0]).decode
    k = int((bars.end_ns - bars.start_ns).argmax())
    request, lane = int(bars.request[k]), int(bars.lane[k])
    middle = int(bars.start_ns[k] + bars.end_ns[k]) / 2 / 10**9
    page.mouse.move(*point(page, lane, middle))
    label = page.locator("#gantt-0 .hoverlayer .hovertext")
    label.wait_for()
    told = label.text_content()
    times = {name: int(v[request]) for name, v in request_times(instance, schedules[0]).items()}
    table = instance.requests
    assert f"request <b>{request}</b> on client {times['client']}" in told
    assert f"prompt {table.prompt_tokens[request]} tokens" in told
    assert f"output {table.output_tokens[request]} tokens" in told
    assert re.search(r"decode after prefill stages? \d+", told)
    for name in ("prefill_start_ns", "prefill_end_ns", "first_token_ns", "finish_ns"):
        assert exact(times[name]) in told


def told_at(page, lane, ns):
    """What the chart says when one points at a client and a time."""
    page.mouse.move(0, 0)
    page.mouse.move(*point(page, lane, ns / 10**9))
    label = page.locator("#gantt-0 .hoverlayer .hovertext")
    label.wait_for()
    return label.text_content()


def test_pauses_invalid_rounds_and_mixed_steps_are_drawn_and_told(opened):
    instance, schedule = every_kind()
    page = opened(instance, [schedule])
    names = page.evaluate("document.getElementById('gantt-0').data.map((t) => t.name)")
    assert {"mixed steps", "paused", "invalid"} <= set(names)
    assert "restarts" not in names
    assert "invalid tokens after prefill stage 0: 0.000000026 s to" in told_at(page, 0, 32)
    assert "paused after prefill stage 2" in told_at(page, 2, 44.5)
    assert "mixed, client 1" in told_at(page, 3, 50)
    drawn = page.evaluate("document.getElementById('usage-0').data.map((t) => t.name)")
    assert drawn == ["decode", "prefill", "invalid tokens", "paused for others",
                     "waiting", "running", "worker-0: blocks", "mixed: blocks"]  # fmt: skip
    shares = page.evaluate("document.getElementById('bubbles').data.map((t) => t.x[0])")
    assert len(shares) == 6
    assert shares[-1] == pytest.approx(100 * 12 / (4 * 59))


def test_a_restart_is_marked_and_told(opened):
    instance, schedule = by_hand()
    page = opened(instance, [schedule])
    assert "request 1 on big, client 0restart 1 at 0.000000024 s" in told_at(page, 0, 24)


def test_the_table_agrees_with_the_schedules(page, sample):
    instance, schedules = sample
    assert page.locator("h1").inner_text() == "Schedules for <i>sample</i>"
    rows = page.locator("#comparison tbody tr")
    assert rows.count() == 2
    for index, schedule in enumerate(schedules):
        row, results = rows.nth(index), summarise(instance, schedule)

        def value(field, name, row=row):
            return row.locator(f"[data-field={field}]").get_attribute(f"data-{name}")

        assert row.locator("th").inner_text().startswith(schedule.method)
        assert int(value("makespan", "ns")) == schedule.makespan_ns
        assert float(value("utilization", "value")) == results["slot_utilization"]
        assert int(value("bound", "ns")) == schedule.bound["value_ns"]
        assert float(value("gap", "value")) == results["gap"]
        assert row.locator("[data-field=checked]").inner_text() == "yes"
    decision = page.locator("#comparison [data-field=decision]")
    assert decision.nth(0).get_attribute("data-ns") == "4321"
    assert decision.nth(0).inner_text() == "4.3 µs"
    assert decision.nth(1).inner_text() == "–"


def test_tabs_draw_their_chart_when_they_are_chosen(page, sample):
    assert page.locator("#panel-1").get_attribute("data-drawn") is None
    assert not page.locator("#panel-1").is_visible()
    page.click("#tab-1")
    page.wait_for_selector("#panel-1[data-drawn=done]")
    assert page.locator("#panel-1").is_visible()
    assert not page.locator("#panel-0").is_visible()
    assert page.locator("#tab-1").get_attribute("aria-selected") == "true"
    bars = page.evaluate("document.getElementById('gantt-1').data[0].x.length")
    assert bars == len(sample[0])
    page.keyboard.press("ArrowRight")  # from the last tab to the first
    assert page.locator("#panel-0").is_visible()
    assert page.evaluate("document.activeElement.id") == "tab-0"


def test_bubbles_are_drawn_and_their_numbers_unfold(page, sample):
    results = summarise(sample[0], sample[1][0])
    shares = page.evaluate("document.getElementById('bubbles').data.map((t) => t.x[0])")
    assert sum(shares) == pytest.approx(100)
    assert shares[0] == pytest.approx(100 * results["slot_utilization"])
    assert not page.locator("#bubbles-table").is_visible()
    page.click("summary")
    assert page.locator("#bubbles-table").is_visible()


def test_a_small_screen_has_no_sideways_scrolling(page):
    page.set_viewport_size({"width": 400, "height": 800})
    until(page, "document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.locator("#panel-0").is_visible()


def test_plan_and_run_stand_on_one_time_axis(opened, sample):
    instance, (plan, _) = sample
    steps = plan.steps
    slow = replace(steps, start_ns=2 * steps.start_ns, end_ns=2 * steps.end_ns)
    trace = plan.replace(
        steps=slow, bound=None, results={}, run={"device": "cpu", "clock": "perf_counter"}
    )
    page = opened(instance, [plan, trace])
    until(page, "document.getElementById('plan-run-0').dataset.drawn === 'done'")
    layout = "document.getElementById('plan-run-0')._fullLayout"
    assert page.evaluate(f"{layout}.xaxis.range[1]") >= trace.makespan_ns / 1e9
    bars = page.evaluate(
        "document.getElementById('plan-run-0').data.filter((t) => t.name === 'decode' && "
        "t.type === 'bar').map((t) => [t.yaxis, t.x.reduce((a, b) => a + b, 0)])"
    )
    (upper, planned), (lower, took) = bars
    assert (upper, lower) == ("y", "y3")
    assert took == pytest.approx(2 * planned)
    errors = page.evaluate(
        "document.getElementById('plan-run-0').data.filter((t) => t.yaxis === 'y5')"
        ".flatMap((t) => t.y)"
    )
    assert errors == pytest.approx([100.0] * len(errors))


def test_errors_of_stages_far_from_the_others_stand_at_the_border_with_their_value(opened, sample):
    instance, (plan, _) = sample
    steps, slow = plan.steps, len(plan.steps) // 2
    took = steps.end_ns - steps.start_ns
    took[slow] *= 51  # of one stage: 5,000 % more than planned
    ends = np.cumsum(took)
    late = replace(steps, start_ns=ends - took, end_ns=ends)
    trace = plan.replace(
        steps=late, bound=None, results={}, run={"device": "cpu", "clock": "perf_counter"}
    )
    page = opened(instance, [plan, trace])
    until(page, "document.getElementById('plan-run-0').dataset.drawn === 'done'")
    beyond, border = page.evaluate(
        """() => { const chart = document.getElementById('plan-run-0');
            const trace = chart.data.find((t) => t.name === 'beyond the axis');
            return [[[...trace.text], [...trace.y]], chart._fullLayout.yaxis5.range[1]]; }"""
    )
    assert beyond[0] == ["5000 %"]
    assert 0.9 * border < beyond[1][0] <= border < 100


def test_what_classes_get_over_time_and_bulk_requests_told_apart(opened):
    instance, schedule = mixed()
    page = opened(instance, [schedule])
    until(page, "document.getElementById('classes-0').data !== undefined")
    shown = page.evaluate(
        """() => document.getElementById('classes-0').data.map(
            (line) => [line.name, line.yaxis, [...line.y].slice(0, -1), [...line.x]])"""
    )
    curves = class_curves(Timeline(instance, schedule))
    assert [name for name, *_ in shown] == [
        "tokens in time", "interactive running", "bulk running",
        "bulk tokens, prefilled and decoded",
        *(f"tenant {name}" for name, _ in curves.service),
    ]  # fmt: skip
    assert [axis for _, axis, *_ in shown][:4] == ["y", "y2", "y2", "y3"]
    assert len({tuple(x) for *_, x in shown}) == 1  # one time axis
    assert shown[3][2] == pytest.approx(curves.bulk.tolist(), abs=1e-3)
    bars = page.evaluate(
        """() => document.getElementById('gantt-0').data.filter((t) => t.name === 'bulk').map(
            (t) => [t.y.length, t.marker.pattern.shape])"""
    )
    decoded = (schedule.work.phase == 1) & instance.bulk[schedule.work.request]
    assert bars == [[int(decoded.sum()), "\\"]]
    assert "decode of a bulk request" in page.inner_text("#charts .key")
    by_class = summarise(instance, schedule)["classes"]
    told = page.evaluate(
        """() => [...document.querySelectorAll('#classes-table tbody tr')].map((row) => [
            row.querySelector('td').textContent,
            row.querySelector('[data-field=ttft-p99]').dataset.ns,
            row.querySelector('[data-field=attainment]').dataset.value ?? null])"""
    )
    assert told == [
        [name, str(part["ttft_ns"]["p99"]), part["slo"] and str(part["slo"]["attainment"])]
        for name, part in by_class.items()
    ]
