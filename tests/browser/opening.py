"""What tests in a browser do to a page."""

import pytest


def settled(page, read, wanted):
    """Wait until what is read is as wanted, and return it; the page's policy forbids to poll."""
    for _ in range(200):
        found = read(page)
        if wanted(found):
            return found
        page.wait_for_timeout(50)
    pytest.fail(f"never as wanted: {found}")


def until(page, expression):
    """Wait until an expression is true."""
    settled(page, lambda page: page.evaluate(expression), bool)


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


def ranged(page, wanted):
    """Wait until the ranges are as wanted, and return them."""
    return settled(page, ranges, wanted)


def told(page, *place):
    """What the first chart says where one points at a client and a time in seconds."""
    page.mouse.move(0, 0)
    page.mouse.move(*point(page, *place))
    label = page.locator("#gantt-0 .hoverlayer .hovertext")
    label.wait_for()
    return label.text_content()


def names(page, chart):
    """The names of what a chart draws."""
    return page.evaluate(f"document.getElementById('{chart}').data.map((t) => t.name)")


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
