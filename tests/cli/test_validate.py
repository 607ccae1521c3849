"""``orsched validate``: errors by dimension, reasons, rows and pictures."""

import csv
import io
import json
from pathlib import Path

import pytest

import orsched

SILICON = Path(__file__).parents[1] / "benchmarks" / "validation" / "silicon"


@pytest.fixture
def small():
    """Write two rows of the recorded ones that are expressible, and one that is not."""
    lines = (SILICON / "rows.csv").read_text().splitlines()
    kept = [line for line in lines if "Llama-3.1-8B" in line][:2]
    apart = next(line for line in lines if ",disagg," in line)
    Path("small.csv").write_text("\n".join((lines[0], *kept, apart)) + "\n")


def test_rows_and_what_is_left_out_are_json(as_json, small):
    found = as_json("validate small.csv")
    assert {(row["metric"], row["model"]) for row in found["rows"]} == {
        ("tpot", "llama3-8b"), ("ttft", "llama3-8b")}  # fmt: skip
    for row in found["rows"]:
        assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)
    (left,) = found["skipped"]
    assert left["reason"] == "prefill and decode on different GPUs"
    every = found["groups"][0]
    assert (every["by"], every["rows"], every["makespan"]) == ("all", 2, None)


def test_a_table_has_errors_by_gpu_and_model(call, small):
    code, out, err = call("validate small.csv")
    assert code == 0
    assert {line.split()[0] for line in out.splitlines()[2:]} == {
        "all", "gpu", "model", "precision", "engine", "tp", "in_flight"}  # fmt: skip
    assert "2 configurations predicted, 1 left out" in err
    assert "1 left out: prefill and decode on different GPUs" in err


def test_rows_as_csv_and_a_picture(call, small):
    code, out, _ = call("validate small.csv --format csv -o p.svg")
    assert code == 0
    assert len(list(csv.DictReader(io.StringIO(out)))) == 4
    drawn = Path("p.svg").read_text()
    assert "predicted TPOT, s" in drawn
    assert "llama3-8b" in drawn


def test_a_gpu_that_a_table_does_not_name_is_asked_for(as_json):
    silent = as_json(f"validate {SILICON / 'runs.csv'}")
    assert silent["rows"] == []
    assert {each["reason"] for each in silent["skipped"]} == {
        "the table does not name the GPU (--gpu)"
    }
    assumed = as_json(f"validate {SILICON / 'runs.csv'} --gpu h200")
    assert {row["metric"] for row in assumed["rows"]} == {"tpot", "ttft", "throughput", "makespan"}
    assert {row["gpu"] for row in assumed["rows"]} == {"h200"}


RUN = """arrival_s,prompt_tokens,output_tokens,first_token_s,last_token_s
0,100,11,0.5,1.5
0,100,11,0.5,2.5
"""
STEPS = """phase,start_ns,end_ns,active,context_sum,context_max,rounds,prompts,tokens,longest
prefill,0,400000000,0,0,0,1,1,100,100
decode,500000000,600000000,1,100,100,1,0,0,0
"""


def test_a_run_and_its_steps_are_held_against_a_machine(as_json, small):
    """Ten tokens in 1 and in 2 s: 150 ms each; steps of 400 and 100 ms, without the gap."""
    Path("run.csv").write_text(RUN)
    Path("steps.csv").write_text(STEPS)
    command = "validate small.csv run.csv steps.csv --cost h100-8b-sheet --clients 2"
    rows = {(row["id"], row["metric"]): row for row in as_json(command)["rows"]}
    measured = {key: row["measured"] for key, row in rows.items() if key[0].endswith(".csv")}
    assert measured == pytest.approx({
        ("run.csv", "tpot"): 0.15, ("run.csv", "ttft"): 0.5, ("run.csv", "makespan"): 2.5,
        ("run.csv", "throughput"): 22 / 2.5, ("steps.csv", "makespan"): 0.5,
    })  # fmt: skip
    assert len(rows) == 9
    cost = orsched.machine("h100-8b-sheet").cost
    steps = cost.prefill_ns([100]) + cost.round_ns(1, 100, 100)
    assert rows["steps.csv", "makespan"]["predicted"] == pytest.approx(steps / 1e9)
    for row in rows.values():
        assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)


@pytest.mark.parametrize(("line", "said"), [
    ("validate run.csv", "does not name its machine"), ("validate steps.csv", "'--cost'"),
    ("validate run.csv --cost h100-8b-sheet", "'--clients'"),
    ("validate run.csv --cost abacus --clients 2", "unknown machine"),
    ("validate run.csv --cost h100-8b-sheet --clients 0", "clients"),
    ("validate none.csv", "does not exist"),
    ("validate small.csv --gpu abacus", "unknown GPU"),
    ("validate small.csv -o p.txt", "is not a suffix"),
    ("validate plain.csv", "is not a table of served configurations"),
    ("validate", "FILE"),
])  # fmt: skip
def test_what_cannot_be_read_or_written_is_refused(refused, small, line, said):
    Path("plain.csv").write_text("prompt_tokens,output_tokens\n5,5\n")
    Path("run.csv").write_text(RUN)
    Path("steps.csv").write_text(STEPS)
    refused(said, line)


def test_json_of_nothing_is_whole(as_json):
    lines = (SILICON / "rows.csv").read_text().splitlines()
    apart = next(line for line in lines if ",disagg," in line)
    Path("none.csv").write_text(f"{lines[0]}\n{apart}\n")
    found = as_json("validate none.csv")
    assert (found["rows"], found["groups"], len(found["skipped"])) == ([], [], 1)
    assert json.dumps(found)
