"""Workers by role: texts, scenarios, options and studies over splits."""

import json

import orsched
from orsched import Link
from orsched.cli.commands import run as run_command
from orsched.data.splits import Split, read_split
from orsched.planning.study import run
from orsched.solving.scenario import read_workers, scenario, worker_files
from tests.refusals import refusal


def test_splits_are_read_and_written():
    split = read_split("2P1B3D:ns_per_token=7,latency_ns=9")
    roles, link = ((2, "prefill"), (1, "both"), (3, "decode")), Link(ns_per_token=7, latency_ns=9)
    assert split == Split(roles, link)
    assert (split.workers, split.name) == (6, "2P1B3D")
    assert read_split(str(split)) == split
    assert read_split(str(read_split("1P1D"))) == Split(((1, "prefill"), (1, "decode")))
    assert read_workers("2P2D:free") == read_split("2P2D:ns_per_token=0,latency_ns=0")
    assert worker_files("2P2D:ns_per_token=1,latency_ns=2") == ()


def test_other_texts_are_no_splits_and_wrong_ones_are_refused():
    for text in ("4", "a.json", "2X", "2p2d", "P", "2P2D.json"):
        assert read_split(text) is None
    for text in ("2P0D", "2P2D:speed=3", "999999P1D", "1P1D:ns_per_token=-1"):
        refusal(read_split, text)
    for text in ("2p2d", "2p2d:free"):  # small letters are told from files
        assert "did you mean 2P2D" in str(refusal(read_workers, text))


def test_a_scenario_on_a_split():
    small = orsched.load("two-by-two")
    made = scenario(small, "1P2D:ns_per_token=5")
    assert [worker.role for worker in made.workers] == ["prefill", "decode", "decode"]
    assert [worker.name for worker in made.workers] == ["prefill-0", "decode-0", "decode-1"]
    assert made.link == Link(ns_per_token=5)
    assert "1P2D" in made.name
    assert "need a link" in str(refusal(scenario, small, "1P2D"))


def test_a_study_over_splits(tmp_path):
    """One table has all splits, and the worker of both roles beside them."""
    study = {
        "instances": [{"generator": "uniform", "requests": 20, "clients": 8}],
        "arrivals": ["poisson:rate=2"],
        "workers": ["2B:free", "1P1D:free", "1P1D:ns_per_token=100000,latency_ns=1000"],
        "policies": ["disaggregated"],
        "slo": {"ttft_s": 1, "tpot_s": 0.1},
    }
    done = run(study, folder=tmp_path, jobs=1)
    assert [row["error"] for row in done.rows] == [None] * 3
    assert [row["workers_split"] for row in done.rows] == ["2B", "1P1D", "1P1D"]
    assert [row["workers"] for row in done.rows] == [2, 2, 2]
    assert [row["transfers_link_ns"] for row in done.rows][:2] == [0, 0]
    assert done.rows[2]["transfers_link_ns"] > 0
    assert done.rows[0]["transfers_count"] == 0 < done.rows[1]["transfers_count"]


def test_splits_on_the_command_line(tmp_path):
    """simulate and compare take them as --workers; the instance they write has roles and link."""
    out = tmp_path / "i.json"
    arguments = ["simulate", "two-by-two", "--policy", "disaggregated", "--workers", "1P1D:free"]
    more = ["--instance-output", str(out), "-o", str(tmp_path / "s.json")]
    assert run_command([*arguments, *more]) == 0
    document = json.loads(out.read_text())
    assert [worker["role"] for worker in document["workers"]] == ["prefill", "decode"]
    assert document["link"] == {"ns_per_token": 0, "latency_ns": 0}
