"""The command line: what it prints, writes and exits with."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import orsched
from orsched.cli import main as program
from orsched.files import load_instance, load_schedule
from tests.result_keys import RESULT_KEYS

ORSCHED = (sys.executable, "-m", "orsched")


def test_compare_prints_one_object_per_method(as_json):
    methods = "fcfs,offline,online,hybrid,hybrid@predicted"
    rows = as_json("compare pang-100x20 --methods", methods)
    assert [list(row) for row in rows] == [[*RESULT_KEYS, "error", "machine"]] * 5
    assert [row["method"] for row in rows] == methods.split(",")
    assert [row["information"] for row in rows][-1] == "predicted"
    assert all(row["checked"] for row in rows)
    assert all(row["bound_s"] <= row["makespan_s"] for row in rows)


def test_solve_writes_a_file_that_check_accepts(call):
    code, out, err = call("solve pang-100x20 --method online -o s.json --format json")
    row = json.loads(out)
    assert (code, list(row)) == (0, [*RESULT_KEYS, "machine"])
    assert "s.json" in err
    assert call("check pang-100x20 s.json")[:2] == (0, "")
    assert load_schedule("s.json").makespan_ns == round(row["makespan_s"] * 10**9)
    out = call("check pang-100x20 s.json --format csv")[1]
    assert out.startswith("kind,message,")
    assert list(csv.DictReader(io.StringIO(out))) == []


def test_solve_starts_from_a_schedule_that_is_given(call, done):
    """The result is no worse; a schedule of another instance is refused."""
    done("solve pang-100x20 --method hybrid -o first.json")
    options = "--method windows --iterations 1 --initial first.json"
    done(f"solve pang-100x20 {options} -o second.json")
    assert load_schedule("second.json").makespan_ns <= load_schedule("first.json").makespan_ns
    code, _, err = call(f"solve gsm8k-llama65b {options}")
    assert (code, "the schedule is for another instance" in err) == (1, True)


def test_check_exits_with_1_and_says_what_is_wrong(call, done):
    done("solve pang-100x20 --method fcfs -o s.json")
    document = json.loads(Path("s.json").read_text())
    document["results"]["makespan_ns"] += 1
    Path("s.json").write_text(json.dumps(document))
    code, out, _ = call("check pang-100x20 s.json")
    assert (code, "makespan_ns" in out) == (1, True)
    code, out, _ = call("check pang-100x20 s.json --format json")
    assert code == 1
    assert {violation["kind"] for violation in json.loads(out)} >= {"result"}
    code, out, _ = call("check pang-100x20 s.json --format csv")
    assert next(iter(csv.DictReader(io.StringIO(out))))["kind"]
    code, out, _ = call("check pang-100x20 s.json --columns kind,field --format json")
    assert code == 1
    assert {"kind": "result", "field": "results.makespan_ns"} in json.loads(out)
    assert "kind" in call("check pang-100x20 s.json --columns kind,field")[1].splitlines()[0]
    assert call("check two-by-two s.json")[0] == 1


def test_pictures_traces_and_records_are_written(call, done):
    names = {"report": "r.html", "gantt": "g.png", "usage": "u.svg", "latency": "l.svg",
             "timeline": "w.png", "history": "h.svg", "trace": "t.json",
             "records": "c.csv"}  # fmt: skip
    flags = " ".join(f"--{flag} {name}" for flag, name in names.items())
    code, _, err = call(f"solve pang-100x20 --method fcfs {flags} -o s.json")
    assert code == 0
    again = " ".join(f"--{flag} 2{name}" for flag, name in names.items())
    done("report pang-100x20 s.json", *again.replace("--report", "-o").split())
    for name in names.values():
        assert Path(name).stat().st_size > 100
        assert name in err
        assert Path(name).read_bytes() == Path(f"2{name}").read_bytes()


def test_report_judges_by_limits_that_are_given(done, refused):
    done("solve with-arrivals --method fcfs -o s.json")
    done("report with-arrivals s.json -o r.html")
    assert 'data-field="slo-attainment"' not in Path("r.html").read_text(encoding="utf-8")
    limits = "--slo-ttft 2 --slo-tpot 0.05"
    done(f"report with-arrivals s.json -o r.html {limits}")
    text = Path("r.html").read_text(encoding="utf-8")
    assert 'data-field="slo-attainment" data-value="' in text
    assert "TTFT 2 s, TPOT 0.05 s" in text
    said = "limits are for the HTML report and the distributions"
    assert "add -o or --latency" in refused(said, f"report with-arrivals s.json --gantt g {limits}")


def test_report_refuses_an_invalid_schedule(call, done, refused):
    done("solve two-by-two --method fcfs -o s.json")
    refused("another instance, 'two-by-two'", "report pang-100x20 s.json -o r.html")
    text = Path("s.json").read_text()
    Path("s.json").write_text(text.replace('"decode_rounds": ', '"decode_rounds": 1', 1))
    code, _, err = call("report two-by-two s.json -o r.html")
    assert (code, "not valid" in err) == (1, True)
    assert not Path("r.html").exists()


def test_bound_prints_a_verified_certificate(call, done, as_json):
    facts = as_json("bound gsm8k-llama65b")
    assert facts["certificate"] == "verified"
    assert facts["prefill_stages"] == 45
    document = json.loads(done("bound gsm8k-llama65b --certificate"))
    assert document["value_ns"] == facts["bound_ns"]
    assert "no order can help" in call("bound all-fit")[2]


def test_generate_is_the_shipped_instance(done):
    done("generate gsm8k --seed 0 -o i.json")
    assert load_instance("i.json").sha256 == orsched.load("gsm8k-llama65b").sha256
    made = json.loads(done("generate gsm8k --seed 1 --set requests=3 --set name=mine"))
    assert (made["name"], len(made["requests"]["prompt_tokens"])) == ("mine", 3)


def test_convert_round_trips_between_native_forms(done):
    done("generate gsm8k --set requests=20 -o a.json")
    done("convert a.json b.parquet")
    done("convert b.parquet c.json")
    assert Path("a.json").read_bytes() == Path("c.json").read_bytes()
    done("convert a.json r.csv")
    done("convert r.csv d.json --clients 3")
    first, last = load_instance("a.json"), load_instance("d.json")
    assert (last.requests, last.name) == (first.requests, "r")
    assert load_instance("c.json").name == first.name


def test_convert_makes_a_closed_loop(done, refused):
    Path("r.csv").write_text("prompt_tokens,output_tokens,arrival_s\n" + "9,5,0\n9,5,1\n9,5,1\n")
    done("convert r.csv open.json --clients 2")
    done("convert r.csv closed.json --clients 2 --concurrency 1")
    closed = load_instance("closed.json")
    assert closed == load_instance("open.json").replace(concurrency=1)
    done("simulate open.json --concurrency 1 -o a.json")
    done("simulate closed.json -o b.json")
    done("simulate open.json -o c.json")
    one, same, other = (load_schedule(f"{name}.json") for name in "abc")
    assert one.makespan_ns == same.makespan_ns > other.makespan_ns
    for said, target in (("'--concurrency': 0 is below 1", "x.json --concurrency 0"),
                         ("write .json or .parquet", "x.csv --concurrency 2")):  # fmt: skip
        refused(said, f"convert r.csv {target} --clients 2")
        assert not Path(target.split()[0]).exists()


def test_convert_gives_a_worker_a_prefix_cache(done, refused):
    line = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [7, 8]}\n'
    Path("m.jsonl").write_text(line * 2)
    command = "convert m.jsonl m.parquet --clients 4"
    cached = "--memory-blocks 90 --prefix-cache task_aware"
    done(f"{command} {cached}")
    found = load_instance("m.parquet")
    assert found.worker.memory.to_dict() == {
        "blocks": 90, "block_tokens": 128, "allocation": "paged",
        "prefix_cache": {"eviction": "task_aware"},
    }  # fmt: skip
    assert found.requests.prefixes.block_tokens == 128
    assert found.requests.prefixes.counts.tolist() == [5, 5]  # of 600 tokens
    for said, options in (
        ("--memory-blocks", "--prefix-cache lru"),
        ("'mru' is not an eviction rule", "--memory-blocks 90 --prefix-cache mru"),
        ("blocks of 512 tokens, the prefix cache of worker-0", f"{cached} --block-tokens 100"),
    ):
        refused(said, f"{command} {options}")


def test_convert_reads_foreign_traces(call, done, refused):
    Path("azure.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    for command in ("convert", "data convert"):
        code, _, err = call(f"{command} azure.csv t.json --clients 4 --prefill-cap 2048")
        assert (code, "2 of 2 requests" in err) == (0, True)
        assert load_instance("t.json").requests.arrival_ns.tolist() == [0, 4_314_579_000]
    done("convert azure.csv r.csv --clients 2")
    done("convert r.csv i.json --clients 2")
    requests = load_instance("i.json").requests
    assert (requests.prompt_tokens.tolist(), requests.output_tokens.tolist()) == (
        [374, 396], [44, 109],
    )  # fmt: skip
    refused("--clients", "convert azure.csv u.json")


def test_data_lists_origin_licence_and_checksum(call, as_json, monkeypatch):
    monkeypatch.delenv("ORSCHED_DATA", raising=False)
    rows = as_json("data list")
    assert len(rows) >= 10
    assert all(row["origin"] and row["licence"] and len(row["sha256"]) == 64 for row in rows)
    assert {row["status"] for row in as_json("data verify --directory .")} == {"missing"}
    Path(rows[0]["file"]).write_text("changed")
    assert call("data verify --directory .")[0] == 1
    assert call("data verify")[0] == 2


def test_info_lists_and_describes(done, as_json):
    out = done("info")
    assert all(word in out for word in ("gsm8k-llama65b", "hybrid", "affine", "numpy"))
    facts = as_json("info pang-100x20")
    assert (facts["requests"], facts["clients"]) == (100, 20)
    assert "hybrid" in as_json("info")["methods"]


def test_time_limit_without_a_schedule_exits_with_3(call, monkeypatch):
    monkeypatch.setattr("orsched.solving.methods.FIRST_S", 0.0)
    code, out, err = call("solve gsm8k-llama65b --method fcfs --time-limit 1e-6")
    assert (code, out, "time limit" in err) == (3, "", True)


def test_version():
    done = subprocess.run([*ORSCHED, "--version"], capture_output=True, text=True, check=True)
    assert orsched.__version__ in done.stdout


def test_interrupt_prints_the_incumbent_and_exits_with_130():
    options = ("--time-limit", "600", "--format", "json", "-o", "s.json")
    process = subprocess.Popen(
        [*ORSCHED, "solve", "gsm8k-llama65b", *options], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    # Progress goes to standard error, after two seconds; then there is an incumbent.
    line = process.stderr.readline()
    while "best" not in line:
        assert line
        line = process.stderr.readline()
    assert "hybrid: iteration" in line
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    row = json.loads(out)
    assert (row["method"], row["checked"]) == ("hybrid", True)
    assert orsched.check(orsched.load("gsm8k-llama65b"), load_schedule("s.json")) == []


def test_curves_of_several_schedules_are_one_picture(done, refused):
    for method in ("fcfs", "hybrid"):
        done(f"solve two-by-two --method {method} -o {method}.json")
    report = "report two-by-two fcfs.json hybrid.json"
    done(f"{report} --latency l.svg --timeline t.svg")
    for name in ("l.svg", "t.svg"):
        text = Path(name).read_text()
        assert ">fcfs<" in text
        assert ">hybrid<" in text
    refused("--usage, --trace and --records take one schedule", f"{report} --usage u.svg")


def main(line: str) -> int:
    """Return the exit code of a command line."""
    with pytest.raises(SystemExit) as ended:
        program(line.split())
    return int(ended.value.code or 0)


def test_check_and_report_take_the_instance_as_it_was_simulated(capsys):
    simulate = "simulate pang-100x20 --arrivals poisson:rate=5 --workers 2 --seed 3 -o s.json"
    assert main(simulate) == 0
    said = capsys.readouterr().err
    assert "note: check and report need the instance as it was simulated: --instance-output" in said
    assert main("check pang-100x20 s.json") == 1
    assert main(f"{simulate} --instance-output i.parquet") == 0
    assert "note:" not in capsys.readouterr().err.partition("machine:")[0]
    assert main("check i.parquet s.json") == 0
    assert len(orsched.load("i.parquet").workers) == 2


def test_the_same_instance_needs_no_note_and_two_outputs_cannot_be_one_file(capsys):
    assert main("simulate pang-100x20 -o s.json") == 0
    assert "as it was simulated" not in capsys.readouterr().err
    assert main("simulate pang-100x20 -o s.json --instance-output s.json") == 2
    assert "--instance-output" in capsys.readouterr().err
    assert main("simulate pang-100x20 --instance-output x.csv") == 2
