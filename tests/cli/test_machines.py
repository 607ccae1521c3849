"""Machines and their number: ``orsched info``, ``cost`` and ``capacity``."""

from __future__ import annotations

import json

import pytest

from orsched.calibration import machine
from orsched.calibration.catalogue import cost_words
from orsched.cli.commands import run
from orsched.data.workers import Worker
from orsched.files import load_fitted_cost, load_instance, save_instance
from tests.planning.capacity.test_capacity import heavy

PANG = (
    "machine: affine, LLaMA-65B on Ascend 910 (Pang et al.), 20 clients, "
    "1,024 blocks of 128 tokens (whole)"
)


def test_the_catalogue_is_listed(done):
    text = done("info machines")
    for word in ("pang-llama65b-ascend", "h100", "mi300x", "qwen2.5-32b", "not measured"):
        assert word in text
    rows = {row["name"]: row for row in json.loads(done("info machines --format json"))}
    assert rows["h100-llama3-8b-sheet"]["kind"] == "data sheet"
    assert rows["h100-llama3-8b-sheet"]["cost"]["model"] == "roofline"
    assert done("info machines --format csv").startswith("name,kind,title,model,source\n")
    assert "pang-llama65b-ascend" in done("info")
    assert "h200-llama3-8b-sheet" in json.loads(done("info --format json"))["machines"]


def test_one_machine_is_described(done, refused):
    text = done("info h100-8b-sheet")
    assert "data sheet" in text
    assert "2,048 prompt tokens, ms" in text
    assert json.loads(done("info pang-llama65b-ascend --format json"))["cost"]["model"] == "affine"
    refused("did you mean", "info h100-9b-sheet")


def test_a_data_sheet_is_written_and_used(tmp_path, capsys, done):
    path, requests = tmp_path / "cost.json", tmp_path / "requests.csv"
    requests.write_text("prompt_tokens,output_tokens\n10,20\n30,40\n")
    assert "kv_tokens" in done("cost --gpu h100 --model 8b -o", str(path))
    cost, report = load_fitted_cost(path)
    assert cost == machine("h100-llama3-8b-sheet").cost
    assert report is not None
    assert report["machine"]["kind"] == "data sheet"
    assert report["machine"]["kv_tokens"] == machine("h100-llama3-8b-sheet").facts["kv_tokens"]
    rows = []
    for name in (str(path), "h100-8b-sheet"):
        command = ["simulate", str(requests), "--clients", "2", "--cost", name, "--format", "json"]
        assert run(command) == 0
        captured = capsys.readouterr()
        rows.append(json.loads(captured.out)["makespan_s"])
        assert (
            "machine: roofline, Llama 3.1 8B on NVIDIA H100 SXM 80 GB (data sheet), 2 clients, "
            "26,674 blocks of 16 tokens (paged)"
        ) in captured.err
        assert "the KV cache of the machine, 26,674 blocks of 16 tokens (--memory" in captured.err
    assert rows[0] == rows[1]
    target = tmp_path / "instance.json"
    assert (
        run(["convert", str(requests), str(target), "--clients", "2", "--cost", "l4-1b-sheet"]) == 0
    )
    assert "Llama 3.2 1B on NVIDIA L4" in done("info", str(target))


def test_a_local_configuration_is_read(tmp_path, done):
    config = {
        "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 1000,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = ["cost", "--gpu", "rtx4090", "--config", str(tmp_path), "--efficiency", "0.5"]
    found = json.loads(done(*command, "--memory-efficiency", "0.8", "--format", "json"))
    assert (found["efficiency"], found["memory_efficiency"], found["gpus"]) == (0.5, 0.8, 1)
    assert found["cost"]["fixed_fs"] == 4 * 30 * 10**9


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--gpu", "h10", "--model", "8b"], "'h10' is not in the catalogue (did you mean h100"),
        (["--gpu", "h100", "--model", "9b"], "field '--model'"),
        (["--gpu", "h100"], "a model or its configuration"),
        (["--gpu", "l4", "--model", "70b", "--tensor-parallel", "2"], "--tensor-parallel"),
        (["--gpu", "l4", "--model", "8b", "--efficiency", "2"], "field '--efficiency'"),
        (["--gpu", "l4", "--model", "8b", "--length", "0"], "--length"),
        (["--gpu", "l4", "--model", "8b", "-o", "cost.txt"], "cost.txt"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(arguments, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["cost", *arguments]) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", ["solve", "simulate", "compare", "info"])
def test_every_result_says_whose_times_it_has(command, capsys, done):
    options = ["--method", "fcfs"] if command == "solve" else []
    options = ["--methods", "fcfs"] if command == "compare" else options
    assert run([command, "pang-100x20", *options]) == 0
    captured = capsys.readouterr()
    if command == "info":
        assert PANG.removeprefix("machine: ") in " ".join(captured.out.split())
    else:
        assert captured.err.splitlines().count(PANG) == 1
    rows = json.loads(done(command, "pang-100x20", *options, "--format", "json"))
    row = rows[0] if command == "compare" else rows
    assert row["machine"] == PANG.removeprefix("machine: ")


def test_seeds_say_it_once(capsys):
    command = ["compare", "gsm8k", "--seeds", "0:2", "--methods", "fcfs", "--set", "requests=20"]
    assert run(command) == 0
    assert capsys.readouterr().err.count("machine: affine, LLaMA-65B") == 1


def test_an_unknown_machine_is_one_line_with_those_like_it(tmp_path, capsys):
    requests = tmp_path / "requests.csv"
    requests.write_text("prompt_tokens,output_tokens\n10,20\n")
    assert run(["compare", str(requests), "--clients", "2", "--cost", "h100-8b-seet"]) == 2
    error = capsys.readouterr().err
    assert (
        "field '--cost': there is no machine 'h100-8b-seet' (did you mean h100-llama3-8b" in error
    )


def test_generators_take_a_machine(tmp_path, capsys, refused):
    path = tmp_path / "case.json"
    command = ["generate", "gsm8k", "--set", "requests=20", "--cost", "h100-llama3-8b"]
    assert run([*command, "-o", str(path)]) == 0
    said = "machine: linear, Llama 3.1 8B on NVIDIA H100 SXM 80 GB (measured), 200 clients"
    assert said in capsys.readouterr().err
    assert load_instance(path).worker.cost == machine("h100-llama3-8b").cost
    refused("field '--cost'", *command[:-1], "h100-llama-8b")
    refused("none.json", *command[:-1], "none.json")


def test_a_worker_file_names_a_machine(tmp_path, done):
    """And gets its memory, unless the file says another one, or none."""
    command = ["simulate", "pang-100x20", "--workers", str(tmp_path / "w.json")]
    for said, words in (
        ({}, "4 clients, 26,674 blocks of 16 tokens (paged)"),
        ({"memory": {"blocks": 90, "block_tokens": 128}}, "90 blocks of 128 tokens (whole)"),
        ({"memory": None}, "4 clients"),
    ):
        worker = {"clients": 4, "cost": "h100-llama3-8b", **said}
        (tmp_path / "w.json").write_text(json.dumps(worker))
        found = json.loads(done(*command, "--format", "json"))["machine"]
        assert "H100" in found
        assert found.endswith(words)


def test_a_data_sheet_makes_a_worker(tmp_path, capsys, done, refused):
    path = tmp_path / "w.json"
    command = ["cost", "--gpu", "h100", "--model", "8b", "--worker-file", str(path)]
    assert run(command) == 0
    assert "worker written" in capsys.readouterr().err
    worker = json.loads(path.read_text())
    assert worker["clients"] == 208  # 426,788 tokens in slots of 2,048
    assert worker["memory"]["blocks"] == 26_674
    assert run([*command, "--slots", "20"]) == 0
    assert json.loads(path.read_text())["clients"] == 20
    capsys.readouterr()
    assert (
        "H100"
        in json.loads(done("simulate pang-100x20 --workers", str(path), "--format", "json"))[
            "machine"
        ]
    )
    refused("--worker-file", "cost --gpu h100 --model 8b --slots 3")
    assert run([*command, "-o", str(path)]) == 2


def test_other_numbers_of_gpus_are_named_as_well():
    for name in ("a100x2-llama3-8b-sheet", "a100x3-llama3-8b-sheet", "h100x16-llama3-70b-sheet"):
        found = machine(name)
        assert cost_words(found.cost, 4) == found.words
        assert " x NVIDIA " in found.words


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
