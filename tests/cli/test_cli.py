"""The command line: what it prints, writes and exits with."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys

import pytest

import orsched
from orsched.cli import main as program
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.files import load_instance, load_schedule, save_instance
from tests.result_keys import RESULT_KEYS

ORSCHED = (sys.executable, "-m", "orsched")


def test_compare_prints_one_object_per_method(call):
    code, out, _ = call(
        "compare pang-100x20 --methods fcfs,offline,online,hybrid,hybrid@predicted --format json"
    )
    rows = json.loads(out)
    assert code == 0
    assert [list(row) for row in rows] == [[*RESULT_KEYS, "error", "machine"]] * 5
    assert [row["method"] for row in rows] == [
        "fcfs", "offline", "online", "hybrid", "hybrid@predicted",
    ]  # fmt: skip
    assert [row["information"] for row in rows][-1] == "predicted"
    assert all(row["checked"] for row in rows)
    assert all(row["bound_s"] <= row["makespan_s"] for row in rows)


def test_solve_writes_a_file_that_check_accepts(call, tmp_path):
    path = tmp_path / "s.json"
    code, out, err = call("solve pang-100x20 --method online -o", path, "--format", "json")
    row = json.loads(out)
    assert (code, list(row)) == (0, [*RESULT_KEYS, "machine"])
    assert str(path) in err
    code, out, _ = call("check pang-100x20", path)
    assert (code, out) == (0, "")
    schedule = load_schedule(path)
    assert schedule.makespan_ns == round(row["makespan_s"] * 10**9)


def test_solve_starts_from_a_schedule_that_is_given(call, refused, tmp_path):
    """The result is no worse; a schedule of another instance, and itself as output, are refused."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    call("solve pang-100x20 --method hybrid -o", first)
    options = ("--method", "windows", "--iterations", "1", "--initial", first)
    code, _, _ = call("solve pang-100x20", *options, "-o", second)
    assert code == 0
    assert load_schedule(second).makespan_ns <= load_schedule(first).makespan_ns
    code, _, err = call("solve gsm8k-llama65b", *options)
    assert code == 1
    assert "the schedule is for another instance" in err
    refused("would be overwritten", "solve pang-100x20", *options, "-o", first)


def test_check_exits_with_1_and_says_what_is_wrong(call, tmp_path):
    path = tmp_path / "s.json"
    call("solve pang-100x20 --method fcfs -o", path)
    document = json.loads(path.read_text())
    document["results"]["makespan_ns"] += 1
    path.write_text(json.dumps(document))
    code, out, _ = call("check pang-100x20", path)
    assert code == 1
    assert "makespan_ns" in out
    code, out, _ = call("check pang-100x20", path, "--format", "json")
    assert code == 1
    assert {violation["kind"] for violation in json.loads(out)} >= {"result"}
    code, out, _ = call("check pang-100x20", path, "--format", "csv")
    assert next(iter(csv.DictReader(io.StringIO(out))))["kind"]
    assert call("check two-by-two", path)[0] == 1


def test_formats_show_the_same_numbers(call):
    rows = json.loads(call("compare pang-100x20 --format json")[1])
    table = list(csv.DictReader(io.StringIO(call("compare pang-100x20 --format csv")[1])))
    assert [float(line["makespan_s"]) for line in table] == [row["makespan_s"] for row in rows]
    text = call("compare pang-100x20")[1]
    for row in rows:
        assert f"{row['makespan_s']:,.2f}" in text


def test_compare_over_seeds_prints_means(call):
    arguments = ("compare", "gsm8k", "--seeds", "0:2", "--methods", "fcfs", "--set", "requests=50")
    rows = json.loads(call(*arguments, "--set", "clients=10", "--format", "json", "--each")[1])
    mean = json.loads(call(*arguments, "--set", "clients=10", "--format", "json")[1])[0]
    assert [row["seed"] for row in rows] == [0, 1]
    assert mean["seeds"] == 2
    assert mean["makespan_s"] == (rows[0]["makespan_s"] + rows[1]["makespan_s"]) / 2


def test_pictures_traces_and_records_are_written(call, tmp_path):
    names = ("r.html", "g.png", "u.svg", "l.svg", "w.png", "t.json", "c.csv")
    paths = [tmp_path / name for name in names]
    flags = ("--report", "--gantt", "--usage", "--latency", "--timeline", "--trace", "--records")
    pairs = [part for pair in zip(flags, paths, strict=True) for part in pair]
    code, _, err = call("solve pang-100x20 --method fcfs", *pairs, "-o", tmp_path / "s.json")
    assert code == 0
    for path in paths:
        assert path.stat().st_size > 100
        assert str(path) in err
    others = [tmp_path / f"2{name}" for name in names]
    pairs = [part for pair in zip(("-o", *flags[1:]), others, strict=True) for part in pair]
    assert call("report pang-100x20", tmp_path / "s.json", *pairs)[0] == 0
    for first, second in zip(paths, others, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_report_judges_by_limits_that_are_given(call, refused, tmp_path):
    schedule, page = tmp_path / "s.json", tmp_path / "r.html"
    assert call("solve with-arrivals --method fcfs -o", schedule)[0] == 0
    assert call("report with-arrivals", schedule, "-o", page)[0] == 0
    assert 'data-field="slo-attainment"' not in page.read_text(encoding="utf-8")
    limits = ("--slo-ttft", "2", "--slo-tpot", "0.05")
    assert call("report with-arrivals", schedule, "-o", page, *limits)[0] == 0
    text = page.read_text(encoding="utf-8")
    assert 'data-field="slo-attainment" data-value="' in text
    assert "TTFT 2 s, TPOT 0.05 s" in text
    picture = tmp_path / "g.svg"
    err = refused(
        "limits are for the HTML report and the distributions",
        f"report with-arrivals {schedule} --gantt {picture}",
        *limits,
    )
    assert "add -o or --latency" in err


def test_report_refuses_an_invalid_schedule(call, refused, tmp_path):
    call("solve two-by-two --method fcfs -o", tmp_path / "s.json")
    refused(
        "another instance, 'two-by-two'",
        f"report pang-100x20 {tmp_path}/s.json -o {tmp_path}/r.html",
    )
    text = (tmp_path / "s.json").read_text()
    (tmp_path / "s.json").write_text(text.replace('"decode_rounds": ', '"decode_rounds": 1', 1))
    code, _, err = call("report two-by-two", tmp_path / "s.json", "-o", tmp_path / "r.html")
    assert code == 1
    assert "not valid" in err
    assert not (tmp_path / "r.html").exists()


def test_bound_prints_a_verified_certificate(call):
    code, out, _ = call("bound gsm8k-llama65b --format json")
    facts = json.loads(out)
    assert code == 0
    assert facts["certificate"] == "verified"
    assert facts["prefill_stages"] == 45
    document = json.loads(call("bound gsm8k-llama65b --certificate")[1])
    assert document["value_ns"] == facts["bound_ns"]
    assert "no order can help" in call("bound all-fit")[2]


def test_generate_is_the_shipped_instance(call, tmp_path):
    path = tmp_path / "i.json"
    assert call("generate gsm8k --seed 0 -o", path)[0] == 0
    assert load_instance(path).sha256 == orsched.load("gsm8k-llama65b").sha256
    code, out, _ = call("generate gsm8k --seed 1 --set requests=3")
    assert code == 0
    assert len(json.loads(out)["requests"]["prompt_tokens"]) == 3


def test_convert_round_trips_between_native_forms(call, tmp_path):
    first, second, back = tmp_path / "a.json", tmp_path / "b.parquet", tmp_path / "c.json"
    call("generate gsm8k --set requests=20 -o", first)
    assert call("convert", first, second)[0] == 0
    assert call("convert", second, back)[0] == 0
    assert first.read_bytes() == back.read_bytes()
    table = tmp_path / "r.csv"
    assert call("convert", first, table)[0] == 0
    assert call("convert", table, tmp_path / "d.json", "--clients", "3")[0] == 0
    assert load_instance(tmp_path / "d.json").requests == load_instance(first).requests
    assert load_instance(tmp_path / "d.json").name == "r"
    assert load_instance(back).name == load_instance(first).name


def test_convert_gives_a_worker_a_prefix_cache(call, refused, tmp_path):
    trace, target = tmp_path / "m.jsonl", tmp_path / "m.parquet"
    line = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [7, 8]}\n'
    trace.write_text(line * 2)
    cached = ("--memory-blocks", "90", "--prefix-cache", "task_aware")
    assert call("convert", trace, target, "--clients", "4", *cached)[0] == 0
    found = load_instance(target)
    assert found.worker.memory.to_dict() == {
        "blocks": 90,
        "block_tokens": 128,
        "allocation": "paged",
        "prefix_cache": {"eviction": "task_aware"},
    }
    assert found.requests.prefixes.block_tokens == 128
    assert found.requests.prefixes.counts.tolist() == [5, 5]  # of 600 tokens
    refused("--memory-blocks", "convert", trace, target, "--clients", "4", "--prefix-cache", "lru")
    wrong = ("--memory-blocks", "90", "--prefix-cache", "mru")
    refused("'mru' is not an eviction rule", "convert", trace, target, "--clients", "4", *wrong)
    uneven = (*cached, "--block-tokens", "100")
    refused(
        "blocks of 512 tokens, the prefix cache of worker-0 has",
        f"convert {trace} {target} --clients 4",
        *uneven,
    )


def test_convert_reads_foreign_traces(call, refused, tmp_path):
    trace = tmp_path / "azure.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
    )
    for command in (("convert",), ("data", "convert")):
        target = tmp_path / "t.json"
        code, _, err = call(*command, trace, target, "--clients", "4", "--prefill-cap", "2048")
        assert code == 0
        assert "2 of 2 requests" in err
        assert load_instance(target).requests.arrival_ns.tolist() == [0, 4_314_579_000]
    refused("--clients", "convert", trace, tmp_path / "u.json")


def test_data_lists_origin_licence_and_checksum(call, tmp_path, monkeypatch):
    monkeypatch.delenv("ORSCHED_DATA", raising=False)
    rows = json.loads(call("data list --format json")[1])
    assert len(rows) >= 10
    assert all(row["origin"] and row["licence"] and len(row["sha256"]) == 64 for row in rows)
    code, out, _ = call("data verify --directory", tmp_path, "--format", "json")
    assert code == 0
    assert {row["status"] for row in json.loads(out)} == {"missing"}
    (tmp_path / rows[0]["file"]).write_text("changed")
    assert call("data verify --directory", tmp_path)[0] == 1
    assert call("data verify")[0] == 2


def test_info_lists_and_describes(call):
    code, out, _ = call("info")
    assert code == 0
    for word in ("gsm8k-llama65b", "hybrid", "affine", "numpy"):
        assert word in out
    facts = json.loads(call("info pang-100x20 --format json")[1])
    assert (facts["requests"], facts["clients"]) == (100, 20)
    assert "hybrid" in json.loads(call("info --format json")[1])["methods"]


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("solve", "no-such-instance"), "no shipped instance"),
        (("solve", "no/such/file.json"), "no/such/file.json"),
        (("solve", "two-by-two", "--method", "best"), "unknown method"),
        (("solve", "two-by-two", "--param", "x"), "NAME=VALUE"),
        (("solve", "two-by-two", "--method", "hybrid", "--param", "gate=door"), "gate"),
        (("solve", "two-by-two", "--time-limit", "0"), "--time-limit"),
        (("solve", "two-by-two", "--iterations", "-1"), "iterations"),
        (("solve", "two-by-two", "--seed", "x"), "--seed: 'x' is not a whole number (see "),
        (("solve", "two-by-two", "--method", "fcfs", "-o", "s.txt"), "s.txt"),
        (("solve", "two-by-two", "--method", "fcfs", "--gantt", "g.gif"), "g.gif"),
        (("compare", "two-by-two", "--methods", ","), "no method"),
        (("compare", "gsm8k", "--seeds", "5:5"), "no seed"),
        (("compare", "gsm8k", "--seeds", "a:b"), "A:B"),
        (("compare", "nothing", "--seeds", "0:1"), "no generator"),
        (("compare", "two-by-two", "--each"), "--seeds"),
        (("check", "two-by-two", "missing.json"), "missing.json"),
        (("generate", "nothing"), "no generator"),
        (("generate", "gsm8k", "--set", "clients=0"), "clients"),
        (("convert", "nothing", "x.json", "--clients", "1"), "nothing"),
        (("report", "two-by-two", "missing.json"), "nothing to write"),
        (("frobnicate",), "there is no command"),
        (("simulate", "two-by-two", "--policy", "json:loads"), "json:loads"),
    ],
)
def test_bad_input_exits_with_2_and_no_traceback(
    refused, arguments, fragment, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    err = refused(fragment, *arguments)
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_infeasible_instances_name_request_and_limit(refused, tmp_path):
    path = tmp_path / "i.json"
    save_instance(
        Instance(Requests([5], [1]), Worker(1, prefill_cap_tokens=4), first_token="decode"), path
    )
    err = refused("request 0", "solve", path)
    assert "prefill_cap_tokens" in err


def test_time_limit_without_a_schedule_exits_with_3(call, monkeypatch):
    monkeypatch.setattr("orsched.solving.methods.FIRST_S", 0.0)
    code, out, err = call("solve gsm8k-llama65b --method fcfs --time-limit 1e-6")
    assert (code, out) == (3, "")
    assert "time limit" in err


def test_version():
    done = subprocess.run([*ORSCHED, "--version"], capture_output=True, text=True, check=True)
    assert orsched.__version__ in done.stdout


def test_interrupt_prints_the_incumbent_and_exits_with_130(tmp_path):
    path = tmp_path / "s.json"
    options = ("--time-limit", "600", "--format", "json", "-o", str(path))
    process = subprocess.Popen(
        [*ORSCHED, "solve", "gsm8k-llama65b", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
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
    assert row["method"] == "hybrid"
    assert row["checked"]
    assert orsched.check(orsched.load("gsm8k-llama65b"), load_schedule(path)) == []


def test_curves_of_several_schedules_are_one_picture(call, refused, tmp_path):
    for method in ("fcfs", "hybrid"):
        call("solve two-by-two --method", method, "-o", tmp_path / f"{method}.json")
    schedules = [tmp_path / "fcfs.json", tmp_path / "hybrid.json"]
    paths = ["--latency", tmp_path / "l.svg", "--timeline", tmp_path / "t.svg"]
    assert call("report two-by-two", *schedules, *paths)[0] == 0
    for name in ("l.svg", "t.svg"):
        text = (tmp_path / name).read_text()
        assert ">fcfs<" in text
        assert ">hybrid<" in text
    refused(
        "--usage, --trace and --records take one schedule",
        "report two-by-two",
        *schedules,
        "--usage",
        tmp_path / "u.svg",
    )


def test_pictures_of_a_search(call, tmp_path):
    files = [tmp_path / name for name in ("a.json", "b.json", "one.svg", "two.png")]
    a, b, one, two = files
    code, _, err = call("solve gate --method hybrid -o", a, "--history", one)
    assert code == 0, err
    assert "history written to" in err
    assert "value-0" in one.read_text()
    assert call("solve gate --method fcfs -o", b)[0] == 0
    assert call("report gate", a, b, "--history", two)[0] == 0
    assert two.read_bytes()[:4] == b"\x89PNG"
    assert call("solve gate --history", tmp_path / "x.txt")[0] == 2


SCENARIO = ["pang-100x20", "--arrivals", "poisson:rate=5", "--workers", "2", "--seed", "3"]


def main(arguments: list[str]) -> int:
    """Return the exit code of a command line."""
    with pytest.raises(SystemExit) as ended:
        program(arguments)
    return int(ended.value.code or 0)


def test_check_and_report_take_the_instance_as_it_was_simulated(tmp_path, capsys):
    schedule, instance = str(tmp_path / "s.json"), str(tmp_path / "i.parquet")
    arguments = ["simulate", *SCENARIO, "-o", schedule]
    assert main(arguments) == 0
    said = capsys.readouterr().err
    assert "note: check and report need the instance as it was simulated: --instance-output" in said
    assert main(["check", "pang-100x20", schedule]) == 1
    assert main([*arguments, "--instance-output", instance]) == 0
    assert "note:" not in capsys.readouterr().err.partition("machine:")[0]
    assert main(["check", instance, schedule]) == 0
    assert len(orsched.load(instance).workers) == 2


def test_the_same_instance_needs_no_note(tmp_path, capsys):
    assert main(["simulate", "pang-100x20", "-o", str(tmp_path / "s.json")]) == 0
    assert "as it was simulated" not in capsys.readouterr().err


def test_two_outputs_cannot_be_one_file(tmp_path, capsys):
    path = str(tmp_path / "s.json")
    assert main(["simulate", "pang-100x20", "-o", path, "--instance-output", path]) == 2
    assert "--instance-output" in capsys.readouterr().err
    assert main(["simulate", "pang-100x20", "--instance-output", str(tmp_path / "x.csv")]) == 2
