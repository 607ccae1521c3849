from __future__ import annotations

from html.parser import HTMLParser

import pytest

from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.metrics.summary import summarise
from orsched.simulator import simulate_policy
from tests.views.samples import every_kind

EVIL = '<script>alert("x")</script>&'


class Reader(HTMLParser):
    """Collects tags and texts, and requires that tags close in order."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.texts = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def parsed(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture
def instance():
    worker = Worker(2, prefill_cap_tokens=900, memory=BlockMemory(10, 128, "whole"), name=EVIL)
    return Instance(Requests([3, 5], [2, 4]), worker, name=EVIL, first_token="decode")


def test_instance_tables_hold_the_figures_and_escape_texts(instance):
    reader = parsed(instance._repr_html_())
    assert reader.tags == {"table", "caption", "tbody", "tr", "th", "td"}
    assert f"Instance {EVIL}" in reader.texts
    assert EVIL in reader.texts
    pang = "affine, LLaMA-65B on Ascend 910 (Pang et al.)"
    assert (
        f"2 clients, {pang}, prefill up to 900 tokens, 10 blocks of 128 tokens (whole)"
        in reader.texts
    )
    assert "4.0" in reader.texts
    assert "3.0" in reader.texts


def test_empty_instances_and_many_workers_have_tables():
    workers = tuple(Worker(1, name=f"w{i}") for i in range(13))
    reader = parsed(Instance(Requests([], []), workers, first_token="decode")._repr_html_())
    assert "w9" in reader.texts
    assert "w10" not in reader.texts
    assert "3" in reader.texts


def test_schedule_tables_hold_the_figures_and_escape_texts(instance):
    schedule = simulate_policy(instance, FirstComeFirstServed()).schedule
    plain = parsed(schedule._repr_html_())
    assert f"{EVIL} ({instance.sha256[:12]})" in plain.texts
    assert f"{schedule.makespan_ns / 10**9:.3f} s" in plain.texts
    full = schedule.replace(
        method=EVIL,
        results={"slot_utilization": 0.5, "gap": 0.25, "prefill_stages": 1, "decode_rounds": 4},
        bound={"name": EVIL, "value_ns": 1_500_000_000, "certificate": {}},
    )
    reader = parsed(full._repr_html_())
    assert reader.tags == {"table", "caption", "tbody", "tr", "th", "td"}
    for text in (f"Schedule by {EVIL}", "50.00%", "25.00%", "1.500 s", f"Bound {EVIL}"):
        assert text in reader.texts


def test_what_is_rare_is_named_where_it_occurs():
    instance, schedule = every_kind()
    reader = parsed(instance._repr_html_())
    workers = [text for text in reader.texts if text.startswith("2 clients, affine, ")]
    assert any(text.endswith("9 blocks of 2 tokens (paged), padded") for text in workers)
    plain = parsed(schedule._repr_html_()).texts
    full = schedule.replace(results=summarise(instance, schedule))
    found = parsed(full._repr_html_()).texts
    for word in ("Mixed steps", "Invalid tokens", "Pad tokens"):
        assert word in found
        assert word not in plain
    assert "Restarts" not in found
