"""Reruns: rows, verdicts and pictures; finished runs are kept and not repeated."""

import json

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.papers import PAPERS, Entry, Rerun, Rerunning, entries, running
from orsched.papers.reruns import Claim, Printed, beside, judge, means


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ("0 < gain", "HOLDS"),
        ("gain < 0", "FAILS"),
        ("1 <= gain <= 2.5 and base == 4", "HOLDS"),
        ("1 <= gain <= 2.4", "FAILS"),
        ("gain < base and base > 5", "FAILS"),
        ("0 < missing", "NOT COMPARABLE"),
        ("", "NOT COMPARABLE"),
    ],
)
def test_a_statement_is_judged_by_its_comparisons(holds, verdict):
    claim = Claim("a statement", "5.1", holds, not_comparable="" if holds else "no such machine")
    assert judge(claim, {"gain": 2.5, "base": 4.0}).verdict == verdict


def test_the_reason_tells_our_numbers():
    said = judge(Claim("it gains", "5.1", "0 < gain_%", "as drawn"), {"gain_%": 1234.5, "x": 1.0})
    assert said.reason == "gain % 1,234; as drawn"


def test_printed_numbers_stand_beside_ours():
    rows = beside([Printed("a_b", [1, 2], "Fig. 3"), Printed("c", 1319, "5.1")], {"a_b": 1.23456})
    assert [(r["value"], r["printed"], r["ours"]) for r in rows] == [
        ("a b", "1 to 2", "1.235"),
        ("c", "1,319", "-"),
    ]


def test_means_are_over_seeds_and_leave_settings_out():
    done = [
        ({"rate": rate, "cap": 9, "seed": seed}, {"s": rate + seed, "why": "x"})
        for rate in (1, 5)
        for seed in (0, 2)
    ]
    assert means(done, {"cap": 9, "rates": [1, 5]}) == [
        {"rate": 1, "s": 2.0, "why": "x"},
        {"rate": 5, "s": 6.0, "why": "x"},
    ]


@pytest.fixture
def counted(monkeypatch):
    """Replace the runs of a figure by cheap ones, and return what was run."""
    ran = []

    def run(job):
        ran.append(job["seed"])
        return {"requests": job["seed"], "prompt_mean": 68.43, "prompt_std": 25.04}

    rerun = Rerun(lambda settings: [{"seed": s} for s in range(settings["seeds"])], run)
    monkeypatch.setattr(Entry, "reruns", lambda entry: rerun)
    return ran


def test_finished_runs_are_kept_and_not_repeated(counted, tmp_path):
    for seeds, new in ((2, [0, 1]), (3, [2]), (3, [])):
        counted.clear()
        orsched.paper("pang", table=3, settings={"seeds": seeds}, state=tmp_path / "state")
        assert counted == new
    (file,) = (tmp_path / "state").iterdir()
    lines = file.read_text().splitlines()
    assert [json.loads(line)["job"]["seed"] for line in lines] == [0, 1, 2]
    other = '{"version": "0", "job": {"seed": 1}, "figures": {}}'
    file.write_text("\n".join([lines[0], other, lines[1][:20]]))  # an older version, a kill
    counted.clear()
    orsched.paper("pang", table=3, settings={"seeds": 2}, state=tmp_path / "state")
    assert counted == [1]


@pytest.mark.parametrize("line", ["no JSON", "[1]", '{"version": "0"}', '{"job": 1}', "[" * 10**5])
def test_a_damaged_line_of_the_state_is_refused_with_its_place(counted, tmp_path, line):
    options = {"table": 3, "settings": {"seeds": 1}, "state": tmp_path}
    orsched.paper("pang", **options)
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(InputError, match=r"does not hold a finished run.*remove the line") as error:
        orsched.paper("pang", **options)
    assert (error.value.row, error.value.file) == (2, str(file))


def test_a_folder_that_is_a_file_is_refused(counted, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        orsched.paper("pang", table=3, state=tmp_path / "file")


def test_a_gantt_chart_of_the_baseline_is_drawn(tmp_path):
    found = orsched.paper("pang", figure=6, settings={"seeds": 1})
    assert repr(found) == "pang figure 6: 1 rows, statements: 1 HOLDS"
    assert found.to_pandas().loc[0, "makespan_s"] == pytest.approx(201.61043)
    for name in ("a.png", "b.svg"):
        found.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 10_000


def test_cases_are_drawn_as_points(tmp_path):
    found = orsched.paper("pang", figure=11, settings={"seeds": 1, "methods": "pang-hybrid"})
    assert [row["method"] for row in found.rows] == ["fcfs", "pang-hybrid"]
    assert found.verdicts[0].verdict == "HOLDS"
    found.save(tmp_path / "a.svg")
    assert "tokens (1/s)" in (tmp_path / "a.svg").read_text()


QUICK = [entry for name in PAPERS for entry in entries(name) if not entry.skip]


@pytest.mark.full
@pytest.mark.parametrize("entry", QUICK, ids=[entry.name for entry in QUICK])
def test_the_quick_size_of_each_figure_runs(entry, tmp_path_factory):
    state = running.Path(tmp_path_factory.getbasetemp(), "papers")
    found = orsched.paper(entry.paper, **{entry.kind: entry.number}, state=state)
    assert isinstance(found, Rerunning)
    assert found.rows
    assert all(row["ours"] != "-" for row in found.printed)
    assert all("no such rows" not in verdict.reason for verdict in found.verdicts)
    if entry.chart:
        found.save(tmp_path_factory.mktemp("pictures") / "a.png")
