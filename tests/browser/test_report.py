"""The report in a real browser: it opens, zooms, answers the pointer, and tells the truth."""

import re

import numpy as np
import pytest

from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from orsched.views.curves import class_curves
from tests.browser.opening import names, point, told, until
from tests.views.samples import by_hand, every_kind, mixed, slower, timed, use_of

pytestmark = pytest.mark.browser


def span(page, index=0):
    """The times at the left and right edge of a chart, in seconds."""
    script = f"document.getElementById('gantt-{index}')._fullLayout.xaxis.range"
    return [float(x) for x in page.evaluate(script)]


def exact(ns):
    """Seconds as the page writes them: all digits, no trailing zeros."""
    text = f"{ns // 10**9}.{ns % 10**9:09d}".rstrip("0").rstrip(".")
    return f"{text} s"


def test_dragging_zooms_and_a_double_click_shows_everything(page, sample):
    end = sample[1][0].makespan_ns / 10**9
    whole = span(page)
    assert whole[0] == 0
    assert whole[1] >= end
    start, stop = point(page, 4, 0.4 * end), point(page, 14, 0.6 * end)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*stop, steps=6)
    page.mouse.up()
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
    said = told(page, lane, int(bars.start_ns[k] + bars.end_ns[k]) / 2 / 10**9)
    times = {name: int(v[request]) for name, v in request_times(instance, schedules[0]).items()}
    table = instance.requests
    assert f"request <b>{request}</b> on client {times['client']}" in said
    assert f"prompt {table.prompt_tokens[request]} tokens" in said
    assert f"output {table.output_tokens[request]} tokens" in said
    assert re.search(r"decode after prefill stages? \d+", said)
    for name in ("prefill_start_ns", "prefill_end_ns", "first_token_ns", "finish_ns"):
        assert exact(times[name]) in said
    # bubbles are drawn, and their numbers unfold
    shares = page.evaluate("document.getElementById('bubbles').data.map((t) => t.x[0])")
    assert sum(shares) == pytest.approx(100)
    utilization = summarise(instance, schedules[0])["slot_utilization"]
    assert shares[0] == pytest.approx(100 * utilization)
    assert not page.locator("#bubbles-table").is_visible()
    page.click("summary")
    assert page.locator("#bubbles-table").is_visible()


def test_pauses_invalid_rounds_and_mixed_steps_are_drawn_and_told(opened):
    instance, schedule = every_kind()
    page = opened(instance, [schedule])
    assert {"mixed steps", "paused", "invalid"} <= set(names(page, "gantt-0"))
    assert "restarts" not in names(page, "gantt-0")
    assert "invalid tokens after prefill stage 0: 0.000000026 s to" in told(page, 0, 32e-9)
    assert "paused after prefill stage 2" in told(page, 2, 44.5e-9)
    assert "mixed, client 1" in told(page, 3, 50e-9)
    assert names(page, "usage-0") == ["decode", "prefill", "invalid tokens", "paused for others",
                     "waiting", "running", "worker-0: blocks", "mixed: blocks"]  # fmt: skip
    shares = page.evaluate("document.getElementById('bubbles').data.map((t) => t.x[0])")
    assert len(shares) == 6
    assert shares[-1] == pytest.approx(100 * 12 / (4 * 59))


def test_a_restart_is_marked_and_told(opened):
    instance, schedule = by_hand()
    page = opened(instance, [schedule])
    assert "request 1 on big, client 0restart 1 at 0.000000024 s" in told(page, 0, 24e-9)


def test_tabs_draw_their_chart_when_they_are_chosen(page, sample):
    """And the table has a row for each schedule, with names as text."""
    assert page.locator("h1").inner_text() == "Schedules for <i>sample</i>"
    rows = page.locator("#comparison tbody tr")
    names = rows.locator("th").all_inner_texts()
    assert [name.startswith(s.method) for name, s in zip(names, sample[1], strict=True)] == [1, 1]
    assert rows.locator("[data-field=checked]").all_inner_texts() == ["yes", "yes"]
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


def test_a_small_screen_has_no_sideways_scrolling(page):
    page.set_viewport_size({"width": 400, "height": 800})
    until(page, "document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.locator("#panel-0").is_visible()


RUN = {"device": "cpu", "clock": "perf_counter"}
DRAWN = "document.getElementById('plan-run-0').dataset.drawn === 'done'"


def test_plan_and_run_stand_on_one_time_axis(opened, sample):
    instance, (plan, _) = sample
    trace = slower(plan, run=RUN)
    page = opened(instance, [plan, trace])
    until(page, DRAWN)
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
    took = plan.steps.end_ns - plan.steps.start_ns
    took[len(took) // 2] *= 51  # of one stage: 5,000 % more than planned
    ends = np.cumsum(took)
    page = opened(instance, [plan, timed(plan, ends - took, ends, bound=None, run=RUN)])
    until(page, DRAWN)
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
