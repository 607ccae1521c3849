"""SSJF's heads trained here: files of their predictions, scores, and the requests made of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import pages, proxy_latency
from benchmarks.reproductions import ssjf_authors, ssjf_authors_runs, ssjf_heads
from benchmarks.reproductions.ssjf_authors_runs import ORACLE, Case
from orsched.instances.datasets import VARIABLE


@pytest.fixture(autouse=True)
def _shipped(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def test_predictions_come_back_from_their_file(tmp_path):
    found = {
        name: ssjf_heads.Predictions(
            np.array([1, 2]), np.array([30, 40]), {"a": np.array([3, 4]), "b": np.array([5, 6])}
        )
        for name in ("one", "two")
    }
    ssjf_heads.save(found, tmp_path / "f.csv")
    back = ssjf_heads.kept("two", tmp_path / "f.csv")
    assert back.rounds.tolist() == [1, 2]
    assert back.truth.tolist() == [30, 40]
    assert {name: told.tolist() for name, told in back.told.items()} == {"a": [3, 4], "b": [5, 6]}


def test_scores_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    truth, told, edges = random.integers(1, 99, 300), random.integers(1, 99, 300), [20, 50, 80]
    wanted, found = np.searchsorted(edges, truth), np.searchsorted(edges, told)
    accuracy, f1 = ssjf_heads.scored(truth, told, edges)
    assert accuracy == pytest.approx(metrics.accuracy_score(wanted, found))
    assert f1 == pytest.approx(metrics.f1_score(wanted, found, average="weighted"))


@pytest.mark.parametrize("source", ssjf_heads.SOURCES)
def test_every_head_is_kept_and_classes_are_few(source):
    found = ssjf_heads.kept(source)
    assert {*ssjf_authors.HEADS, "ranks", *ssjf_heads.SIMPLER} == set(found.told)
    assert len(found.truth) > 1000
    assert min(told.min() for told in found.told.values()) >= 1
    assert len(np.unique(found.told["classes"])) <= 5
    assert len(np.unique(found.told["binary"])) == 2
    assert (found.rounds == 1).all() == (source == "bodies")


def test_requests_have_published_lengths_in_the_order_of_the_source():
    case = Case("none", "rates", rows=("chat", 1, 99))
    told = ssjf_authors_runs.workload(case, 1, 3, "regression_l1").requests
    true = ssjf_authors_runs.workload(case, 1, 3, ORACLE).requests
    assert told.output_tokens.tolist() == true.output_tokens.tolist()
    assert told.arrival_ns.tolist() == true.arrival_ns.tolist()
    offset = ssjf_authors_runs.OFFSET_TOKENS
    assert told.output_tokens.min() - offset >= 2
    assert told.output_tokens.max() - offset <= 511
    # The same rows by hand: predictions and lengths are mapped by one order.
    place = 3
    draws = ssjf_authors_runs.stream("ssjf/authors/heads", place)
    found = ssjf_heads.kept("chat")
    rows = draws.integers(0, len(found.truth), ssjf_authors_runs.JOBS)
    for ours, theirs in (
        (told.output_tokens, found.truth),
        (told.predicted_tokens, found.told["regression_l1"]),
    ):
        above = theirs[rows][:, None] > theirs[rows][None, :]
        assert not (ours[:, None] < ours[None, :])[above].any()
    # As many are predicted below half of the requests' lengths as on the source.
    assert np.corrcoef(told.predicted_tokens, told.output_tokens)[0, 1] > 0.4


def test_rounds_are_kept_apart():
    case = Case("none", "rates", rows=("chat", 3, 99))
    found = ssjf_heads.kept("chat")
    requests = ssjf_authors_runs.workload(case, 1, 0, ORACLE).requests
    assert len(requests) == ssjf_authors_runs.JOBS
    assert 50 < (found.rounds >= 3).sum() < len(found.truth) / 2


def test_the_page_has_the_scores_that_the_command_prints(repo_root, capsys):
    ssjf_authors.main(["--heads", "--runs", "1"])
    printed = [" ".join(row.split()) for row in capsys.readouterr().out.splitlines()]
    text = (repo_root / "docs" / "ssjf.md").read_text().replace("\N{MINUS SIGN}", "-")
    tables = pages.tables(text, "Predictors trained here")
    assert len(tables) == len(ssjf_heads.SOURCES)
    for table in tables:
        assert len(table) == 1 + 6 + 3 + 1
        assert table[-1][0] == "oracle"
        for name, *scores, _, _, paper in table[1:-1]:
            line = " ".join((name, *(cell for cell in scores if cell)))
            (row,) = [each for each in printed if each.startswith(f"{line} ")]
            assert row.endswith(paper)


def test_a_full_size_model_is_timed_by_the_same_program():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    found = proxy_latency.rows("small", "cpu", 0.0, long=False, sizes=(1,))
    assert [row["model"] for row in found] == list(proxy_latency.KINDS)
    assert all(row["median ms"] > 0 and row["calls"] == 1 for row in found)
