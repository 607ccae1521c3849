"""Mutated inputs of every format: no crash, no wrong verdict, nothing out of proportion."""

import json
import random

import pytest

from tests.fuzz.drive import fuzz, prepare
from tests.fuzz.judge import FAILING, JUDGES, outcome
from tests.fuzz.samples import documents

CHEAP = [form for form in JUDGES if form not in ("certificate", "trace.parquet")]


@pytest.fixture(scope="module")
def samples():
    return json.loads(json.dumps({**documents(), "certificate": []}))


@pytest.mark.parametrize("form", CHEAP)
def test_a_few_inputs_of_each_format(form, samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = set()
    for index in range(15):
        what, found = outcome(form, random.Random(f"7:{form}:{index}"), tmp_path, samples)
        assert found is None, (form, index, found)
        seen.add(what)
    assert "refused" in seen


@pytest.mark.full
def test_more_inputs_of_each_format(tmp_path):
    prepare(tmp_path, JUDGES)
    for form in JUDGES:
        tally = fuzz(form, "8", range(200), tmp_path)
        assert (tally.findings, sum(tally.outcomes.values())) == ([], 200)
        assert tally.outcomes["accepted"] > 0, f"{form}: what is not changed is accepted"


@pytest.mark.full
@pytest.mark.parametrize("how", FAILING)
def test_what_fails_is_found(how, tmp_path):
    """In two children, since one that dies or hangs is replaced."""
    (tmp_path / "current").mkdir()
    (tmp_path / "samples.json").write_text("{}")
    (tmp_path / "current" / "input.txt").write_text("x")
    tally = fuzz(how, "1", range(2), tmp_path, seconds=0.5, megabytes=20)
    name = {"memory at once": "memory", "hangs": "died"}.get(how, how)
    assert tally.outcomes == {name: 2}
    assert [finding["index"] for finding in tally.findings] == [0, 1]
    assert (tmp_path / "findings" / f"{how}-1-1" / "found.txt").read_text().startswith(name)
