"""The column ``weight`` of requests, by every door, and the figure that it changes."""

import json

import pytest

from orsched import AffineCost, Requests, Worker, check, simulate
from orsched.cli.commands import run
from orsched.files import load_schedule, read_requests_csv, save_schedule
from orsched.heuristics.pang import FirstComeFirstServed
from tests.decoding import decoding
from tests.in_order import in_order
from tests.refusals import place, refusal

WORKER = Worker(2, in_order(AffineCost, 10_000_000, 1000, 5_000_000, 0))
PROBLEM = decoding([5, 7, 9], [2, 1, 4], WORKER, weights=[3, 0, 10**6])


def test_weights_are_a_part_of_the_instances_identity():
    other = PROBLEM.replace(requests=PROBLEM.requests.replace(weights=[3, 0, 5]))
    none = PROBLEM.replace(requests=PROBLEM.requests.replace(weights=None))
    assert len({PROBLEM.sha256, other.sha256, none.sha256}) == 3


def test_csv_frames_and_rows_keep_weights(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("prompt_tokens,output_tokens,weight\n5,2,3\n7,1,0\n9,4,1000000\n")
    read = read_requests_csv(path)
    assert read.weights.tolist() == [3, 0, 10**6]
    assert read.take([2, 0]).weights.tolist() == [10**6, 3]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"prompt_tokens": [5], "output_tokens": [2], "weight": [4]})
    assert Requests.from_pandas(frame).weights.tolist() == [4]


@pytest.mark.parametrize(("cell", "problem"), [
    ("-1", "-1"), ("0.5", "0.5"), ("nan", "nan"), ("1000001", "1000001"), ("", "missing"),
])  # fmt: skip
def test_a_wrong_weight_is_named_with_its_line(tmp_path, cell, problem):
    path = tmp_path / "mine.csv"
    path.write_text(f"prompt_tokens,output_tokens,weight\n5,2,1\n7,1,{cell}\n")
    error = refusal(read_requests_csv, path)
    assert (*place(error), problem in str(error)) == (3, "weight", True)


@pytest.mark.parametrize(("name", "text"), [
    ("own.csv", "prompt_len;output_len;Weight\n5;2;3\n7;1;0\n"),
    ("own.jsonl", '{"prompt_len": 5, "output_len": 2, "weight": 3}\n'
                  '{"prompt_len": 7, "output_len": 1, "weight": 0}\n'),
])  # fmt: skip
def test_convert_reads_weights(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    out = tmp_path / "converted.json"
    assert run(["convert", str(tmp_path / name), str(out), "--clients", "2"]) == 0
    assert json.loads(out.read_text())["requests"]["weight"] == [3, 0]


def test_policies_see_weights_of_requests_that_have_arrived():
    seen = {}

    class Looks(FirstComeFirstServed):
        def on_arrival(self, view, request):
            seen[request] = view.weights[request]
            super().on_arrival(view, request)

    simulate(PROBLEM, Looks)
    assert seen == {0: 3, 1: 0, 2: 10**6}


def test_the_checker_recomputes_the_weighted_mean(tmp_path):
    schedule = simulate(PROBLEM, "fcfs").schedule
    stated = schedule.results["weighted_jct_ns"]
    assert stated["weight"] == 10**6 + 3
    path = tmp_path / "schedule.json"
    save_schedule(schedule, path)
    assert check(PROBLEM, load_schedule(path)) == []
    for forged in ({**stated, "mean": stated["mean"] - 1}, {**stated, "weight": 1}, None, {}):
        results = {**schedule.results, "weighted_jct_ns": forged}
        violations = check(PROBLEM, schedule.replace(results=results))
        assert [v.field.startswith("results.weighted_jct_ns") for v in violations]
        assert violations
    without = {k: v for k, v in schedule.results.items() if k != "weighted_jct_ns"}
    assert check(PROBLEM, schedule.replace(results=without))
    plain = PROBLEM.replace(requests=PROBLEM.requests.replace(weights=None))
    assert "weighted_jct_ns" not in simulate(plain, "fcfs").schedule.results
