"""Is prediction worth it: the shares by hand, the studies' files, and the page that they make."""

from __future__ import annotations

import os
import tomllib

import pytest

from benchmarks.worth import __main__ as command
from benchmarks.worth import corpus, report, rows, shares
from benchmarks.worth.rows import Row
from orsched.files.request_columns import read_requests_csv
from orsched.instances.datasets import VARIABLE
from orsched.planning.study import read_study
from orsched.prediction import make_corpus
from orsched.prediction.evaluation import kendall_tau

FIGURES = rows.FOLDER / "figures.csv"


def case(*, none, five, oracle, tails=((1, 1), (1, 1), (1, 1))):
    """Two seeds: mean JCT without predictions, with the five classes and with the oracle."""
    named = zip(("none", "five classes", "oracle"), (none, five, oracle), tails, strict=True)
    others = [(told, none, tails[0]) for told in report.PREDICTORS if told != "five classes"]
    made = [
        Row("W", "0.9", "gittins", told, seed, mean, tail[seed], 1.0, 0.0, 1.0)
        for told, means, tail in (*named, *others)
        for seed, mean in enumerate(means)
    ]
    return shares.cases(reversed(made))[0]  # in any order


def test_gain_and_share_by_hand():
    """Gains of 0.3 and 0.1 of the oracle's 0.4 and 0.2: two thirds, though no seed keeps them."""
    found = case(none=(10, 20), five=(7, 18), oracle=(6, 16))
    assert found.gains("five classes") == pytest.approx([0.3, 0.1])
    assert found.gains("oracle") == pytest.approx([0.4, 0.2])
    assert shares.share([0.3, 0.1], [0.4, 0.2]) is None  # with two seeds the oracle's may be 0
    assert found.gain("oracle").mean == pytest.approx(0.3)
    assert found.worth
    assert found.share("five classes") is None
    assert not found.keeps("five classes")


def test_the_interval_of_a_share_by_hand():
    """R = 0.6 / 0.9; residuals (gain - R oracle) / 0.3 are 0.1/0.9, 0, -0.1/0.9, times t(2)."""
    kept = shares.share([0.3, 0.2, 0.1], [0.4, 0.3, 0.2])
    assert kept.mean == pytest.approx(2 / 3)
    deviation = 1 / 9
    assert kept.high - kept.mean == pytest.approx(4.302653 * deviation / 3**0.5, rel=1e-6)
    assert shares.share([0.4, 0.3, 0.2], [0.4, 0.3, 0.2])[1:] == pytest.approx((1, 1, 1))
    assert shares.share([0.1], [0.2])[1:] == (0.5, None, None)
    assert shares.share([0.1], [0.0]) is None
    assert shares.share([0.1, 0.1], [-0.2, -0.2]) is None


def test_the_tail_is_held_against_the_tail_without_predictions():
    """A p99 that is 10 % less on one seed and 20 % more on the other is worse."""
    means = {"none": (10, 10), "five": (9, 9), "oracle": (8, 8)}
    worse = case(**means, tails=((10, 10), (9, 12), (9, 10)))
    assert worse.gain("five classes", "p99_s").mean == pytest.approx(-0.05)
    assert not worse.tail_no_worse("five classes")
    assert worse.tail_no_worse("oracle")


def test_seeds_must_be_the_same():
    made = [Row("W", "0.9", "gittins", told, seed, 1, 1, 1, 0, 1)
            for told, seed in (("none", 0), ("oracle", 1))]  # fmt: skip
    with pytest.raises(ValueError, match="other seeds"):
        shares.cases(made)


def test_runs_without_predictions_stand_once_and_must_not_differ():
    cell = {
        "instance": "W", "arrivals": "at_once", "policy": "vllm", "information": "none", "seed": 0,
        "jct_ns_mean": 2e9, "jct_ns_p99": 3e9, "makespan_ns": 4e9, "bound_ns": 2e9,
        "jct_bound_ns": 1e9,
    }  # fmt: skip
    table = [{**cell, "predictions": told} for told in ("oracle", None)]
    laws = ["a", "b", "c", "at_once"]
    assert rows.rows_of(table, laws) == [
        Row("W", "all at 0", "shortest first", "none", 0, 2.0, 3.0, 4.0, 1.0, 2.0)
    ]
    table[1]["jct_ns_mean"] = 5e9
    with pytest.raises(AssertionError, match="depends on them"):
        rows.rows_of(table, laws)


def test_the_claim_is_counted():
    """Kept 0.9 of a gain of 20 % at an equal p99: it holds; at a longer p99 it does not."""
    means = {"none": (10, 10.1), "five": (8.2, 8.3), "oracle": (8, 8.1)}
    assert "it **holds**" in "\n".join(report.claim([case(**means)]))
    longer = case(**means, tails=((1, 1), (1.1, 1), (1, 1)))
    text = "\n".join(report.claim([longer]))
    assert "it **does not hold**" in text
    assert "80 % in 1 (W 0.9), p99 is no worse in 0 (none)" in text
    (only,) = report.workload_answers([longer])
    assert (
        "no worse with none; at the price of p99, which is up to 5.0 % more, with `gittins` (0.9)"
        in only
    )


def test_the_page_is_what_the_command_computes(repo_root, capsys):
    page = (repo_root / "docs" / "is-prediction-worth-it.md").read_text(encoding="utf-8")
    assert command.main(["--from", str(FIGURES)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n| ") > 100
    assert command.marked(page)[1].strip() == printed.strip()


def test_the_page_is_written_between_its_marks(repo_root, tmp_path):
    page = (repo_root / "docs" / "is-prediction-worth-it.md").read_text(encoding="utf-8")
    before, between, behind = command.marked(page)
    emptied = tmp_path / "page.md"
    emptied.write_text("".join((before, *command.MARKS, behind)), encoding="utf-8")
    command.main(["--from", str(FIGURES), "--page", str(emptied)])
    assert emptied.read_text(encoding="utf-8") == page
    assert between


def test_figures_are_kept(tmp_path):
    found = rows.load(FIGURES)
    rows.save(found, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == FIGURES.read_bytes()
    assert {row.load for row in found} == set(rows.LOADS)
    assert len({row.workload for row in found}) == len(rows.STUDIES)
    for row in found:  # no schedule is below its bounds, no tail below its mean
        assert row.gap > -1e-9
        assert row.over_bound >= 1
        assert row.mean_s <= row.p99_s <= row.makespan_s


def test_the_corpus_has_a_file_for_each_predictor_of_its_study(tmp_path, monkeypatch):
    """The same requests in all, held out from what the predictors are fitted on."""
    study = tomllib.loads((rows.FOLDER / "corpus.toml").read_text("utf-8"))
    told = [*corpus.PREDICTORS, "oracle"]
    assert [each["name"] for each in study["instances"]] == [*map(corpus.file_name, told)]
    labels = [each["label"] for each in study["instances"]]
    assert labels == [f"{corpus.WORKLOAD}: {name}" for name in told]
    monkeypatch.setattr(corpus, "ROWS", 600)
    corpus.write_corpus(tmp_path)
    tables = [read_requests_csv(tmp_path / corpus.file_name(name)) for name in told]
    test = make_corpus("chat", 600, corpus.SEED).part("test", corpus.SEED)
    for table in tables:
        assert table.output_tokens.tolist() == test.output_tokens.tolist()
        assert table.prompt_tokens.tolist() == tables[0].prompt_tokens.tolist()
    by_name = dict(zip(told, (table.predicted_tokens for table in tables), strict=True))
    assert by_name["oracle"].tolist() == test.output_tokens.tolist()
    taus = {name: kendall_tau(column, test.output_tokens) for name, column in by_name.items()}
    assert taus["oracle"] > taus["lexical"] > taus["prompt length"]
    online, base = by_name["of other text, online"], by_name["of other text"]
    assert online[: corpus.LAG].tolist() == base[: corpus.LAG].tolist()
    assert online[corpus.LAG + 1 :].tolist() != base[corpus.LAG + 1 :].tolist()


@pytest.mark.full
def test_the_corpus_s_study_runs_again_to_the_kept_figures(tmp_path):
    again = rows.run_all(tmp_path, ["corpus"], 1, 1)
    kept = [r for r in rows.load(FIGURES) if r.workload == corpus.WORKLOAD and r.seed == 0]
    rows.save(again, tmp_path / "again.csv")
    assert sorted(rows.load(tmp_path / "again.csv")) == sorted(kept)


@pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not name the data sets")
def test_the_studies_are_the_same_but_for_the_workload_and_run_again_gives_the_figures(tmp_path):
    texts = {name: (rows.FOLDER / f"{name}.toml").read_text("utf-8") for name in rows.STUDIES}
    policies = [tomllib.loads(text)["policies"] for text in texts.values()]
    assert all(each == policies[0] for each in policies)
    study = tomllib.loads(texts["sharegpt"])
    assert len(read_study(study).cells()) == 4 * 5 * 5 * 4
    again = rows.run_all(tmp_path, ["ssjf-chat"], 1, 1)
    kept = [row for row in rows.load(FIGURES) if row.workload == "SSJF chat" and row.seed == 0]
    rows.save(again, tmp_path / "again.csv")
    assert sorted(rows.load(tmp_path / "again.csv")) == sorted(kept)


@pytest.mark.parametrize("text", [None, "", "a,b\n1,2\n"])
def test_a_file_of_other_figures_is_refused_in_a_line(tmp_path, capsys, text):
    path = tmp_path / "figures.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit) as caught:
        command.main(["--from", str(path)])
    assert caught.value.code == 2
    assert f"{path}: cannot be read" in capsys.readouterr().err
