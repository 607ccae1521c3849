"""``orsched validate``: errors by dimension, reasons, rows and pictures."""

import csv
import io
import json
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(("line", "said"), [
    ("validate none.csv", "does not exist"),
    ("validate small.csv --gpu abacus", "unknown GPU"),
    ("validate small.csv -o p.txt", "is not a suffix"),
    ("validate plain.csv", "is not a table of served configurations"),
    ("validate", "FILE"),
])  # fmt: skip
def test_what_cannot_be_read_or_written_is_refused(refused, small, line, said):
    Path("plain.csv").write_text("prompt_tokens,output_tokens\n5,5\n")
    refused(said, line)


def test_json_of_nothing_is_whole(as_json):
    lines = (SILICON / "rows.csv").read_text().splitlines()
    apart = next(line for line in lines if ",disagg," in line)
    Path("none.csv").write_text(f"{lines[0]}\n{apart}\n")
    found = as_json("validate none.csv")
    assert (found["rows"], found["groups"], len(found["skipped"])) == ([], [], 1)
    assert json.dumps(found)
