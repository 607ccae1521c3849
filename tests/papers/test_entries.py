"""The registry of figures is whole: each entry has a place, a statement or a reason, and runs."""

import re

import pytest

from orsched.common.errors import InputError
from orsched.papers import PAPERS, entries, find, listed
from orsched.papers.reruns import number_of, title

EVERY = [entry for name in PAPERS for entry in entries(name)]
DRAWN = [entry for entry in EVERY if not entry.skip]
NAMES = [entry.name for entry in DRAWN]


def test_each_figure_stands_once_and_each_paper_has_a_title():
    assert len({entry.name for entry in EVERY}) == len(EVERY) == len(listed())
    assert all("arXiv" in title(name) or name == "mico" for name in PAPERS)


@pytest.mark.parametrize("entry", DRAWN, ids=NAMES)
def test_a_drawn_figure_has_place_statement_chart_and_a_rerun(entry):
    assert entry.where
    assert entry.rerun
    assert entry.claim
    assert entry.quick
    assert set(entry.full) <= set(entry.quick)
    charts = entry.chart.get("parts", [entry.chart] if entry.chart else [])
    kinds = [part["kind"] for part in charts]
    assert kinds or entry.kind == "table"
    assert set(kinds) <= {"lines", "bars", "points", "gantt"}
    assert "gantt" not in kinds or entry.reruns().schedules is not None
    for claim in entry.claim:
        assert claim.text
        assert claim.where
        assert bool(claim.holds) != bool(claim.not_comparable)
    assert all(printed.where for printed in entry.printed)


@pytest.mark.parametrize("entry", DRAWN, ids=NAMES)
def test_the_jobs_of_both_sizes_are_flat_and_differ(entry):
    rerun = entry.reruns()
    for full in (False, True):
        jobs = rerun.jobs(entry.settings(full, {}))
        assert 0 < len(jobs) <= 3000
        assert len({tuple(job.items()) for job in jobs}) == len(jobs)
        for job in jobs:
            assert all(isinstance(v, (str, int, float, bool, type(None))) for v in job.values())


@pytest.mark.parametrize("entry", [entry for entry in EVERY if entry.skip], ids=lambda e: e.name)
def test_what_is_not_drawn_says_why(entry):
    assert len(entry.skip) > 5
    with pytest.raises(InputError, match="is not rerun"):
        find(entry.paper, **{entry.kind: entry.number})


def test_settings_are_checked_and_take_the_type_of_the_known_ones():
    entry = find("pang", figure=9)
    assert entry.settings(True, {})["seeds"] == 10
    found = entry.settings(False, {"seeds": "2", "methods": "fcfs,hybrid", "sigma": 0})
    assert (found["seeds"], found["methods"], found["sigma"]) == (2, ["fcfs", "hybrid"], 0.0)
    for changes, said in (({"seed": 1}, "did you mean seeds"), ({"seeds": 1.5}, "whole number")):
        with pytest.raises(InputError, match=said):
            entry.settings(False, changes)


@pytest.mark.parametrize("name", ["pong", "pan", ""])
def test_unknown_papers_and_figures_are_refused_with_the_known_ones(name):
    with pytest.raises(InputError, match="known: pang, scls"):
        entries(name)
    with pytest.raises(InputError, match="it has 1, 2, 3"):
        find("pang", figure=99)


@pytest.mark.parametrize("entry", DRAWN, ids=NAMES)
def test_comparisons_are_of_names_and_numbers(entry):
    for claim in entry.claim:
        for part in re.split(r"\s*(?:<=|>=|==|<|>|\band\b)\s*", claim.holds):
            assert re.fullmatch(r"[\w%./+-]*", part), part
            assert number_of(part, {part: 1.0}) is not None or not claim.holds
