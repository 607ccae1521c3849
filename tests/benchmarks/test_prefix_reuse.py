"""The benchmark of reuse runs, hits, and compares the tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra 'runner' is not installed")

from benchmarks.speed import prefix_reuse
from benchmarks.speed.section import Options


def test_it_measures_runs_with_and_without_reuse() -> None:
    section = prefix_reuse.run_section(Options(Path(), repeats=1, tiny=True), "tiny")
    without, reusing = section.rows
    assert without["hit_rate"] == 0
    # each document of 32 tokens is computed once: 4 of 6 requests hit 32 of their 40 tokens
    assert reusing["hit_rate"] == pytest.approx(4 * 32 / (6 * 40))
    assert min(reusing[name] for name in ("compute_ms", "store_ms", "load_ms")) > 0
    assert section.targets[0].passed
