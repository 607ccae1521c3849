"""``orsched batch``, ``offload`` and ``gantt``."""

import json

import pytest
from matplotlib.image import imread

import orsched


@pytest.fixture
def numbers(folder):
    (folder / "costs.txt").write_text("7\n5\n4 # the third\n3\n")
    return "costs.txt"


def test_offload_prints_the_assignment_and_the_bound(numbers, done, as_json):
    shown = done(f"offload {numbers} --workers 2 --plot loads.png")
    assert "worker 0: load 10, jobs 0 3" in shown
    assert "bound     10" in shown
    assert imread("loads.png").ndim == 3
    found = as_json(f"offload {numbers} --loads 9,0")
    assert (found["assignment"], found["loads"], found["bound"]) == ([1, 1, 0, 1], [13, 15], 14)
    table = done(f"offload {numbers} --workers 2 --format csv").splitlines()
    assert table[:2] == ["job,cost,worker", "0,7,0"]


def test_offload_by_stealing_is_that_of_the_queues(done, as_json):
    found = as_json("offload pang-100x20 --workers 8 --rule stealing")
    queues = orsched.sort_with_stealing(orsched.load("pang-100x20").rounds_needed, 8)
    assert found["loads"] == queues.serve()
    assert found["makespan"] >= found["bound"]


def test_batch_is_that_of_the_function(done, as_json, folder):
    (folder / "lengths.csv").write_text("length\n9\n10\n800\n11\n900\n")
    found = as_json("batch lengths.csv --slice 16 --max-batch 4 --plot b.svg")
    batches = orsched.batch([9, 10, 800, 11, 900], orsched.AffineCost(), 16, max_batch=4)
    assert [each["rows"] for each in found["of_each"]] == [rows.tolist() for rows in batches]
    assert found["total_s"] == batches.total_ns / 10**9
    assert (folder / "b.svg").read_text().startswith("<?xml")
    small = as_json("batch lengths.csv --slice 16 --memory-tokens 1832")
    assert max(each["requests"] for each in small["of_each"] if each["padded_to"] > 700) == 2
    assert "padded_to" in done("batch pang-100x20 --cost a100-llama3-8b-sheet")


def test_gantt_draws_several_with_one_legend_and_the_slack_of_one(done, call, folder):
    for name in ("fcfs", "hybrid"):
        done(f"solve gate --method {name} -o {name}.json")
    done("gantt gate fcfs.json hybrid.json -o both.svg")
    text = (folder / "both.svg").read_text()
    assert text.count("prefill stage") + text.count("own prefill") == 2 + text.count(
        "prefill stages"
    )
    shown = json.loads(done("gantt gate fcfs.json --slack -o slack.png --format json"))
    assert [row["critical"] for row in shown] == [True] * 5


@pytest.mark.parametrize(("said", "line"), [
    ("nothing says how many", "offload costs.txt"),
    ("'a' is not a whole number", "offload costs.txt --loads a,3"),
    ("is for max_min", "offload costs.txt --loads 1,2 --rule stealing"),
    ("does not fit into the memory", "batch costs.txt --memory-tokens 3"),
    ("an instance has no columns", "batch gate --column x"),
    ("takes one SCHEDULE", "gantt gate a.json b.json --slack -o x.png"),
    ("ends in", "gantt gate a.json -o x.txt"),
    ("costs.txt", "offload costs.txt --workers 2 --plot costs.txt"),
])  # fmt: skip
def test_what_is_refused(said, line, numbers, refused):
    refused(said, line)
