"""``orsched capacity``: what it prints, writes and exits with."""

from __future__ import annotations

import json

import pytest

from orsched.cli.commands import run
from orsched.data.workers import Worker
from orsched.files import save_instance
from tests.planning.capacity.test_capacity import heavy

LIMITS = ["--slo-ttft", 0.5, "--slo-tpot", 0.05]


@pytest.fixture
def capacity(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_instance(heavy(40), tmp_path / "i.json")

    def invoke(*arguments):
        code = run(["capacity", *map(str, arguments)])
        return code, *capsys.readouterr()

    return invoke


def test_json_is_one_object_which_verify_takes(capacity, tmp_path):
    code, out, _ = capacity("i.json", *LIMITS, "--format", "json", "--plot", "p.svg", "--jobs", 1)
    found = json.loads(out)
    assert code == 0
    assert list(found)[:8] == [
        "workers", "lower_bound_workers", "attainment", "attainment_low", "attainment_high",
        "ttft_p99_s", "tpot_p99_s", "bulk_tokens_per_s",
    ]  # fmt: skip
    assert {"simulations", "certificate"} <= set(found)
    assert "proven too few" in (tmp_path / "p.svg").read_text()
    (tmp_path / "found.json").write_text(out)
    code, out, _ = capacity("i.json", "--verify", "found.json")
    assert (code, out) == (
        0, f"proven: fleets of weight {found['lower_bound_workers'] - 1} or less are too small "
        "([1] each)\n",
    )  # fmt: skip
    found["lower_bound_workers"] += 1
    (tmp_path / "found.json").write_text(json.dumps(found))
    code, out, err = capacity("i.json", "--verify", "found.json")
    assert (code, out) == (1, "")
    assert "lower_bound_workers is" in err


def test_columns_and_sort_decide_and_wrong_names_are_refused_before_anything_runs(capacity):
    asked = ("i.json", *LIMITS, "--folder", "kept", "--jobs", 1, "--sort", "-workers")
    code, out, _ = capacity(*asked, "--columns", "workers,ttft_p99_s")
    assert code == 0
    lines = out.splitlines()
    head = lines.index("workers  TTFT p99")
    workers = [int(line.split()[0]) for line in lines[head + 2 :]]
    assert len(workers) > 1
    assert workers == sorted(workers, reverse=True)
    curve = json.loads(capacity(*asked, "--format", "json")[1])["curve"]
    assert [row["workers"] for row in curve] == workers
    code, out, err = capacity("i.json", *LIMITS, "--columns", "worker")
    assert (code, out) == (2, "")
    assert "there is no column 'worker' (did you mean workers?" in err


def test_text_begins_with_a_sentence_and_goes_on_in_the_folder(capacity):
    arguments = ("i.json", *LIMITS, "--folder", "kept", "--jobs", 1)
    code, out, _ = capacity(*arguments)
    assert code == 0
    assert " workers suffice (measured: attainment " in out.splitlines()[0]
    assert " cannot (proven)" in out.splitlines()[0]
    code, again, _ = capacity(*arguments)
    assert (code, again) == (0, out)


def test_a_mix_of_worker_files(capacity, tmp_path):
    (tmp_path / "w.json").write_text(json.dumps(Worker(8).to_dict()))
    machines = ("--machine", "own=instance:2", "--machine", "other=w.json:1.5")
    code, out, _ = capacity("i.json", *LIMITS, *machines, "--format", "json", "--max-workers", 8)
    found = json.loads(out)
    assert code == 0
    assert set(found["fleet"]) == {"own", "other"}
    assert found["lower_bound_price"] <= found["price"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["i.json", "--slo-ttft", 0.001], 2, "no number of workers can keep an attainment of 0.9"),
        (["i.json"], 2, "no limit is given"),
        (["no.json", *LIMITS], 2, "no.json"),
        (["i.json", *LIMITS, "--policy", "nope"], 2, "nope"),
        (["i.json", *LIMITS, "--machine", "a=w.json"], 2, "NAME=FILE:PRICE"),
        (["i.json", *LIMITS, "--machine", "a=none.json:1"], 2, "no such file"),
        (["i.json", *LIMITS, "--plot", "p.txt"], 2, "suffix"),
        (["i.json", *LIMITS, "--attainment", 2], 2, "attainment"),
        (["i.json", *LIMITS, "--time-limit", 0.001], 3, "time limit"),
        (["i.json", *LIMITS, "--max-workers", 1], 2, "no fleet of at most 1 workers"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line(capacity, arguments, code, said):
    found, out, err = capacity(*arguments)
    assert (found, out) == (code, "")
    assert said in err
    assert "Traceback" not in err


def test_json_of_limits_that_none_can_keep_is_an_object_too(capacity):
    code, out, err = capacity("i.json", "--slo-ttft", 0.001, "--format", "json")
    found = json.loads(out)
    assert (code, found["workers"]) == (2, None)
    assert "first is request 0" in found["infeasible"]
    assert "first is request 0" in err
