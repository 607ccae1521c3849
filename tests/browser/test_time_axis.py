"""One axis of time: the wheel, drags, tabs and keys move all charts of the page together."""

from __future__ import annotations

import pytest

from tests.browser.opening import centre, ranges, settled, under, wheel

pytestmark = pytest.mark.browser


def width(pair):
    return pair[1] - pair[0]


def test_the_wheel_over_a_chart_zooms_time_and_not_the_page(page):
    whole = ranges(page)["gantt-0"]
    x, y = centre(page, "#gantt-0")
    scrolled, before = page.evaluate("window.scrollY"), under(page, x)
    wheel(page, x, y, -240)
    shown = settled(page, lambda found: width(found["gantt-0"]) < 0.8 * width(whole))
    assert set(shown) == {"gantt-0", "usage-0"}
    assert shown["usage-0"] == shown["gantt-0"]
    assert page.evaluate("window.scrollY") == scrolled
    at = under(page, x)
    assert at == pytest.approx(before)  # what was under the pointer stays there
    assert whole[0] < shown["gantt-0"][0] < at < shown["gantt-0"][1] < whole[1]
    assert " s to " in page.inner_text(".range output")
    page.click(".range .all")
    settled(page, lambda found: found["gantt-0"] == whole == found["usage-0"])
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
    half = settled(page, lambda found: width(found["gantt-0"]) < 0.6 * width(whole))["gantt-0"]
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
    settled(page, lambda found: width(found["gantt-0"]) > 1.05 * width(half))


def test_the_range_is_kept_over_tabs(page):
    x, y = centre(page, "#gantt-0")
    whole = ranges(page)["gantt-0"]
    wheel(page, x, y, -300)
    shown = settled(page, lambda found: width(found["gantt-0"]) < 0.7 * width(whole))["gantt-0"]
    page.click("#tab-1")
    page.wait_for_selector("#panel-1[data-drawn=done]")
    found = ranges(page)
    assert found["gantt-1"] == found["usage-1"] == pytest.approx(shown)
    page.focus("#gantt-1")
    page.keyboard.press("ArrowRight")
    moved = settled(page, lambda found: found["gantt-1"][0] > shown[0])["gantt-1"]
    assert width(moved) == pytest.approx(width(shown))
    page.click("#tab-0")
    settled(page, lambda found: found["gantt-0"] == pytest.approx(moved))
    page.focus("#usage-0")
    page.keyboard.press("0")
    settled(page, lambda found: found["usage-0"] == found["gantt-0"] == whole)


def test_dragging_in_a_chart_below_zooms_the_gantt_chart(page):
    whole = ranges(page)["gantt-0"]
    x, y = centre(page, "#usage-0")
    page.mouse.move(x - 100, y)
    page.mouse.down()
    page.mouse.move(x + 100, y, steps=5)
    page.mouse.up()
    found = settled(page, lambda found: width(found["gantt-0"]) < 0.5 * width(whole))
    assert found["gantt-0"] == found["usage-0"]
