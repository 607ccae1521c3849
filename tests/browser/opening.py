"""What tests in a browser do to a page."""

from __future__ import annotations

import pytest


def until(page, expression):
    """Wait until an expression is true; the page's own policy forbids to poll inside it."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {expression}")


def centre(page, selector):
    """Bring an element to the middle of the screen, and return where its middle is."""
    page.evaluate("(s) => document.querySelector(s).scrollIntoView({ block: 'center' })", selector)
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def wheel(page, x, y, down):
    """Turn the wheel with the pointer somewhere: a new turn, as the pointer moved before."""
    page.mouse.move(x - 20, y)
    page.mouse.move(x, y)
    page.mouse.wheel(0, down)


def under(page, x):
    """Return the time under a place on the screen in the first chart."""
    return page.evaluate(
        """(x) => {
            const chart = document.getElementById('gantt-0'), axis = chart._fullLayout.xaxis;
            return axis.p2l(x - chart.getBoundingClientRect().x - axis._offset);
        }""",
        x,
    )


def ranges(page):
    """Return the ends of the time axis of each chart that is shown, by its id."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.time')]
            .filter((chart) => chart.offsetParent !== null)
            .map((chart) => [chart.id, chart._fullLayout.xaxis.range.map(Number)]))"""
    )


def settled(page, wanted):
    """Wait until the ranges are as wanted, and return them."""
    for _ in range(200):
        found = ranges(page)
        if wanted(found):
            return found
        page.wait_for_timeout(50)
    pytest.fail(f"never as wanted: {found}")


def point(page, lane, seconds, index=0):
    """Where a client and a time are on the screen."""
    page.locator(f"#gantt-{index}").scroll_into_view_if_needed()
    return page.evaluate(
        """([index, lane, seconds]) => {
            const chart = document.getElementById(`gantt-${index}`);
            const { xaxis, yaxis, _size: size } = chart._fullLayout;
            const box = chart.getBoundingClientRect();
            return [box.x + xaxis._offset + xaxis.l2p(seconds),
                    box.y + yaxis._offset + yaxis.l2p(lane)];
        }""",
        [index, lane, seconds],
    )
