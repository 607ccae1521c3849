"""The section on the torch worker measures both sides, or says why it does not."""

from __future__ import annotations

import pytest

from benchmarks.speed import worker
from benchmarks.speed.section import Options


def test_without_torch_the_section_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "find_spec", lambda name: None)
    section = worker.run(Options(tmp_path, repeats=1, tiny=True))
    assert (section.rows, section.targets) == ([], [])
    assert "not installed" in section.text()


def test_both_sides_do_the_same_steps(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    pytest.importorskip("transformers", reason="the extra 'runner' is not installed")
    monkeypatch.setattr(worker, "DTYPES", ("float64",))
    monkeypatch.setattr(worker, "SHAPES", (worker.Shape("tiny", 3, 20),))
    section = worker.run(Options(tmp_path, repeats=1, tiny=True))
    assert [row["step"] for row in section.rows] == ["round", "equal", "ragged", "scattered"]
    assert all(row["ratio"] > 0 for row in section.rows)
    shape = worker.SHAPES[0]
    ours, theirs = worker.Ours(shape, "float64"), worker.Transformers(shape, "float64")
    prompts = [[slot + 1] * 20 for slot in range(3)]
    for side in (ours, theirs):
        side.prefill(prompts)
    theirs.next = ours.worker.slots.tokens[:-1, None].clone()
    for side in (ours, theirs):
        side.before_rounds()
        side.rounds()
    assert torch.equal(theirs.next[:, 0], ours.worker.slots.tokens[:-1])
