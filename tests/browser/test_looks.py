"""What readers do with a page: sort, unfold, read it in the dark or on a narrow screen, and zoom:
wheel, drags, tabs and keys move all charts of the page together."""

import numpy as np
import pytest

import orsched
from benchmarks.report_page import opened_in
from orsched.metrics.summary import summarise
from orsched.views import page_data as density_data
from orsched.views.html import write_report
from orsched.views.report_tables import short_time
from tests.browser.opening import centre, ranged, ranges, told, under, until, wheel
from tests.views.samples import one_long, random_instance, served

pytestmark = pytest.mark.browser


def column(page, table, field, attribute):
    return page.evaluate(
        """([table, field, attribute]) => [...document.querySelectorAll(
            `#${table} [data-field="${field}"]`)].map((cell) => Number(cell.dataset[attribute]))""",
        [table, field, attribute],
    )


DRAWN = "document.getElementById('latencies').dataset.drawn === 'done'"


def test_columns_are_sorted_by_mouse_and_keyboard(opened):
    instance = random_instance(n=12, clients=3)
    slow = [orsched.simulate(instance, name).schedule for name in ("fcfs", "one_at_a_time")]
    page = opened(instance, [served(instance), *slow])
    values = column(page, "comparison", "makespan", "ns")
    head = page.locator("#comparison thead th", has_text="Makespan")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(page, "comparison", "makespan", "ns") == sorted(values)
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert column(page, "comparison", "makespan", "ns") == sorted(values, reverse=True)
    page.locator("#comparison thead button", has_text="Method").click()
    assert head.get_attribute("aria-sort") is None
    names = page.locator("#comparison tbody th").all_inner_texts()
    assert names == sorted(names)
    # another table stays as it was
    assert page.locator("#latency [aria-sort]").count() == 0


def test_figures_that_are_missing_are_sorted_to_the_end(opened, sample):
    page = opened(*sample)
    button = page.locator("#comparison thead button", has_text="Decision p99")
    for _ in range(2):
        button.click()
        cells = page.locator("#comparison [data-field=decision]").all_inner_texts()
        assert cells == ["4.3 µs", "–"]
    assert not page.locator("#panel-0 .folded").is_visible()  # every client works


def test_clients_without_a_request_are_folded_away(opened):
    instance = random_instance(n=5, clients=40)
    page = opened(instance, [served(instance)])
    rows = "document.getElementById('gantt-0')._fullLayout.yaxis.range[0] + 0.5"
    assert page.evaluate(rows) == 5
    assert "35 of 40 clients never hold a request" in page.inner_text("#panel-0 .folded")
    page.check("#panel-0 .folded input")
    until(page, f"{rows} === 40")
    page.uncheck("#panel-0 .folded input")
    until(page, f"{rows} === 5")


def brightness(page, element, colour):
    """The mean of red, green and blue of an element's colour."""
    script = f"getComputedStyle({element}).{colour}.match(/[0-9]+/g).slice(0, 3).map(Number)"
    return sum(page.evaluate(script)) / 3


@pytest.mark.parametrize("dark", [False, True])
def test_page_and_charts_follow_the_colours_of_the_reader(opened, sample, dark):
    page = opened(*sample, dark=dark)
    paper, ink = (brightness(page, "document.body", c) for c in ("backgroundColor", "color"))
    assert (paper < 60 < 180 < ink) if dark else (ink < 60 < 180 < paper)
    for chart in ("gantt-0", "usage-0", "bubbles", "latency-ttft", "latency-attainment"):
        svg = f"document.querySelector('#{chart} .main-svg')"
        until(page, f"{svg} !== null")
        assert brightness(page, svg, "backgroundColor") == pytest.approx(paper, abs=2)
    page.emulate_media(color_scheme="light" if dark else "dark")
    until(
        page,
        "getComputedStyle(document.querySelector('#gantt-0 .main-svg')).backgroundColor"
        " === getComputedStyle(document.body).backgroundColor",
    )


def test_at_800_pixels_tables_scroll_charts_fit_and_attainment_is_that_of_the_table(opened, sample):
    instance, schedules = sample
    page = opened(instance, schedules, width=800, slo=orsched.SLO(ttft_s=5, tpot_s=0.05))
    until(page, DRAWN)
    size = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    assert page.evaluate(size) == [800, 800]
    for chart in ("gantt-0", "usage-0", "bubbles", "latency-ttft"):
        box = page.locator(f"#{chart} .main-svg").first.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 800
    wide = page.evaluate(
        "(() => { const s = document.querySelector('#latency').parentElement;"
        " return [s.scrollWidth > s.clientWidth, getComputedStyle(s).overflowX]; })()"
    )
    assert wide == [True, "auto"]
    found = page.evaluate(
        """() => { const [line] = document.getElementById('latency-attainment').data;
            return line.y[[...line.x].indexOf(1)]; }"""
    )
    assert 0 < found < 1
    assert column(page, "latency", "slo-attainment", "value")[0] == pytest.approx(found, abs=1e-6)


def test_shares_take_the_place_of_bars_that_would_be_thinner_than_a_pixel(opened):
    draw = np.random.default_rng(1)
    requests = orsched.Requests(draw.integers(1, 30, 2500), draw.integers(1, 4, 2500))
    instance = orsched.Instance(requests, orsched.Worker(2), name="short", first_token="decode")
    page = opened(instance, [served(instance, bound=False)])

    def shown():
        return page.evaluate(
            """() => Object.fromEntries(document.getElementById('gantt-0').data
                .map((trace) => [trace.name, trace.visible !== false]))"""
        )

    assert shown()["density"]
    assert not shown()["decode"]
    assert "the colour is the share of client-time in use" in page.inner_text("#panel-0 .part")
    x, y = centre(page, "#gantt-0")
    for _ in range(6):
        wheel(page, x, y, -500)
        page.wait_for_timeout(60)
    ranged(page, lambda found: found["gantt-0"][0] > 0)
    until(page, "document.getElementById('gantt-0').data[0].visible !== false")
    assert not shown()["density"]
    assert not page.locator("#panel-0 .part").is_visible()
    page.click(".range .all")
    until(page, "document.getElementById('gantt-0').data[0].visible === false")
    assert density_data.BARS_A_CLIENT * 2 < 2500


def test_pointing_at_a_request_tells_its_latencies(opened):
    instance = random_instance(n=1, clients=1)
    schedule = served(instance)
    page = opened(instance, [schedule])
    said = told(page, 0, 0.7 * schedule.makespan_ns / 1e9)
    results = summarise(instance, schedule)
    for word, name in (("TTFT", "ttft_ns"), ("TPOT", "tpot_ns"), ("JCT", "jct_ns")):
        assert f"{word} {short_time(results[name]['mean'])}" in said
    assert "waiting 0 s" in said


def test_latencies_far_from_the_others_stand_at_the_border_with_their_value(opened):
    instance = one_long()
    schedule = served(instance, bound=False)
    page = opened(instance, [schedule])
    until(page, DRAWN)
    axis = "document.getElementById('latency-jct')._fullLayout.xaxis.range[1]"
    said = page.locator("#latency-jct .annotation-text").all_text_contents()
    longest = summarise(instance, schedule)["jct_ns"]["max"] / 1e9
    assert said == [f"largest {longest:.3f} s"]
    assert page.evaluate(axis) < longest / 10


@pytest.mark.full
def test_a_page_at_the_papers_scale_answers_within_three_seconds(browser, tmp_path):
    instance = orsched.load("gsm8k-llama65b")
    schedule = orsched.solve(instance, "fcfs").schedule
    path = tmp_path / "report.html"
    write_report(instance, [schedule.replace(method=name) for name in "abcd"], path)
    assert path.stat().st_size <= 8_000_000
    # processor time of the page's thread: what else the machine does has no part in it
    took, processor = min((opened_in(browser, path) for _ in range(3)), key=lambda pair: pair[1])
    assert processor <= 3
    assert took >= processor / 2


def width(pair):
    return pair[1] - pair[0]


def test_the_wheel_over_a_chart_zooms_time_and_not_the_page(page):
    whole = ranges(page)["gantt-0"]
    x, y = centre(page, "#gantt-0")
    scrolled, before = page.evaluate("window.scrollY"), under(page, x)
    wheel(page, x, y, -240)
    shown = ranged(page, lambda found: width(found["gantt-0"]) < 0.8 * width(whole))
    assert set(shown) == {"gantt-0", "usage-0"}
    assert shown["usage-0"] == shown["gantt-0"]
    assert page.evaluate("window.scrollY") == scrolled
    at = under(page, x)
    assert at == pytest.approx(before)  # what was under the pointer stays there
    assert whole[0] < shown["gantt-0"][0] < at < shown["gantt-0"][1] < whole[1]
    assert " s to " in page.inner_text(".range output")
    page.click(".range .all")
    ranged(page, lambda found: found["gantt-0"] == whole == found["usage-0"])
    assert page.inner_text(".range output") == "whole time"


def test_with_shift_and_where_nothing_is_left_to_zoom_out_of_the_page_scrolls(page):
    whole = ranges(page)["gantt-0"]
    x, y = centre(page, "#gantt-0")
    for shift in (True, False):
        before = page.evaluate("window.scrollY")
        if shift:
            page.keyboard.down("Shift")
        wheel(page, x, y, 60)
        page.keyboard.up("Shift")
        page.wait_for_timeout(400)
        assert page.evaluate("window.scrollY") > before
        assert ranges(page)["gantt-0"] == whole
    assert "with Shift it scrolls the page" in page.inner_text("#charts .hint")


def test_a_page_that_scrolls_does_not_stop_at_a_chart_under_a_pointer_at_rest(page):
    whole = ranges(page)["gantt-0"]
    page.click(".range .in")
    half = ranged(page, lambda found: width(found["gantt-0"]) < 0.6 * width(whole))["gantt-0"]
    page.evaluate("window.scrollTo(0, 0)")
    page.mouse.move(650, 450)
    over = "document.elementFromPoint(650, 450).closest('.time')?.id ?? null"
    assert page.evaluate(over) is None
    for _ in range(60):  # one turn of the wheel, all over what was there first
        page.mouse.wheel(0, 60)
        if page.evaluate(over) == "gantt-0":
            break
    page.mouse.wheel(0, 60)
    page.wait_for_timeout(400)
    assert page.evaluate(over) == "gantt-0"
    assert ranges(page)["gantt-0"] == half
    page.mouse.wheel(0, 60)  # another turn: it zooms out
    ranged(page, lambda found: width(found["gantt-0"]) > 1.05 * width(half))


def test_the_range_is_kept_over_tabs(page):
    x, y = centre(page, "#gantt-0")
    whole = ranges(page)["gantt-0"]
    wheel(page, x, y, -300)
    shown = ranged(page, lambda found: width(found["gantt-0"]) < 0.7 * width(whole))["gantt-0"]
    page.click("#tab-1")
    page.wait_for_selector("#panel-1[data-drawn=done]")
    found = ranges(page)
    assert found["gantt-1"] == found["usage-1"] == pytest.approx(shown)
    page.focus("#gantt-1")
    page.keyboard.press("ArrowRight")
    moved = ranged(page, lambda found: found["gantt-1"][0] > shown[0])["gantt-1"]
    assert width(moved) == pytest.approx(width(shown))
    page.click("#tab-0")
    ranged(page, lambda found: found["gantt-0"] == pytest.approx(moved))
    page.focus("#usage-0")
    page.keyboard.press("0")
    ranged(page, lambda found: found["usage-0"] == found["gantt-0"] == whole)


def test_dragging_in_a_chart_below_zooms_the_gantt_chart(page):
    whole = ranges(page)["gantt-0"]
    x, y = centre(page, "#usage-0")
    page.mouse.move(x - 100, y)
    page.mouse.down()
    page.mouse.move(x + 100, y, steps=5)
    page.mouse.up()
    found = ranged(page, lambda found: width(found["gantt-0"]) < 0.5 * width(whole))
    assert found["gantt-0"] == found["usage-0"]
