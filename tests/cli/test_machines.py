"""Machines and their number: ``orsched info``, ``cost`` and ``capacity``."""

import json
from pathlib import Path

import pytest

from orsched.calibration import machine
from orsched.calibration.catalogue import cost_words
from orsched.data.workers import Worker
from orsched.files import load_fitted_cost, load_instance, save_instance
from tests.planning.capacity.test_capacity import heavy

PANG = (
    "affine, LLaMA-65B on Ascend 910 (Pang et al.), 20 clients, 1,024 blocks of 128 tokens (whole)"
)


def test_the_catalogue_is_listed(done, as_json):
    text = done("info machines")
    for word in ("pang-llama65b-ascend", "h100", "mi300x", "qwen2.5-32b", "not measured"):
        assert word in text
    rows = {row["name"]: row for row in as_json("info machines")}
    assert rows["h100-llama3-8b-sheet"]["kind"] == "data sheet"
    assert rows["h100-llama3-8b-sheet"]["cost"]["model"] == "roofline"
    assert done("info machines --format csv").startswith("name,kind,title,model,source\n")
    assert "pang-llama65b-ascend" in done("info")
    assert "h200-llama3-8b-sheet" in as_json("info")["machines"]


def test_one_machine_is_described(done, as_json):
    text = done("info h100-8b-sheet")
    assert "data sheet" in text
    assert "2,048 prompt tokens, ms" in text
    assert as_json("info pang-llama65b-ascend")["cost"]["model"] == "affine"


def test_a_data_sheet_is_written_and_used(call, done):
    Path("r.csv").write_text("prompt_tokens,output_tokens\n10,20\n30,40\n")
    assert "kv_tokens" in done("cost --gpu h100 --model 8b -o cost.json")
    cost, report = load_fitted_cost("cost.json")
    sheet = machine("h100-llama3-8b-sheet")
    assert cost == sheet.cost
    assert report["machine"]["kind"] == "data sheet"
    assert report["machine"]["kv_tokens"] == sheet.facts["kv_tokens"]
    found = []
    for name in ("cost.json", "h100-8b-sheet"):
        code, out, err = call(f"simulate r.csv --clients 2 --cost {name} --format json")
        assert code == 0
        found.append(json.loads(out)["makespan_s"])
        assert f"machine: {sheet.words}, 2 clients, 26,674 blocks of 16 tokens (paged)" in err
        assert "the KV cache of the machine, 26,674 blocks of 16 tokens (--memory" in err
    assert found[0] == found[1]
    done("convert r.csv i.json --clients 2 --cost l4-1b-sheet")
    assert "Llama 3.2 1B on NVIDIA L4" in done("info i.json")


def test_a_local_configuration_is_read(as_json):
    config = {
        "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 1000,
    }  # fmt: skip
    Path("config.json").write_text(json.dumps(config))
    command = "cost --gpu rtx4090 --config . --constant layer_us=30 --constant step_us=100"
    found = as_json(f"{command} --constant gemm_memory=1 --weights fp8")
    assert (found["weights"], found["gpus"]) == ("weights in fp8", 1)
    output = round(2 * 64 * 1000 / 1.008e12 * 1e15)
    assert found["cost"]["fixed_fs"] - output - 220 * 10**9 < 10**9
    own = "cost --gpu tflops=400,gb=48,gb_s=1200,link_gb_s=64,like=l40s --config . --tp 2 --pp 2"
    assert as_json(own)["layout"] == "TP 2, PP 2"
    assert machine("h100x2-8b-fp8-sheet").title.startswith("Llama 3.1 8B (weights in fp8) on 2 x")


@pytest.mark.parametrize(
    "command", ["solve --method fcfs", "simulate", "compare --methods fcfs", "info"]
)
def test_every_result_says_whose_times_it_has(command, call, as_json):
    code, out, err = call(f"{command} pang-100x20")
    assert code == 0
    if command == "info":
        assert PANG in " ".join(out.split())
    else:
        assert err.splitlines().count(f"machine: {PANG}") == 1
    rows = as_json(f"{command} pang-100x20")
    assert (rows[0] if isinstance(rows, list) else rows)["machine"] == PANG


def test_generators_take_a_machine(call):
    code, _, err = call("generate gsm8k --set requests=20 --cost h100-llama3-8b -o case.json")
    assert code == 0
    of = "measured; sums of 4 runs within 2.8%"
    said = f"machine: roofline, Llama 3.1 8B on NVIDIA H100 SXM 80 GB ({of}), 200 clients"
    assert said in err
    assert load_instance("case.json").worker.cost == machine("h100-llama3-8b").cost


@pytest.mark.parametrize(("said", "words"), [
    ({}, "4 clients, 26,674 blocks of 16 tokens (paged)"),
    ({"memory": {"blocks": 90, "block_tokens": 128}}, "90 blocks of 128 tokens (whole)"),
    ({"memory": None}, "4 clients"),
])  # fmt: skip
def test_a_worker_file_names_a_machine(as_json, said, words):
    """And gets its memory, unless the file says another one, or none."""
    Path("w.json").write_text(json.dumps({"clients": 4, "cost": "h100-llama3-8b", **said}))
    found = as_json("simulate pang-100x20 --workers w.json")["machine"]
    assert "H100" in found
    assert found.endswith(words)


def test_a_data_sheet_makes_a_worker(call, done, as_json):
    code, _, err = call("cost --gpu h100 --model 8b --worker-file w.json")
    assert (code, "worker written" in err) == (0, True)
    worker = json.loads(Path("w.json").read_text())
    assert worker["clients"] == 208  # 426,788 tokens in slots of 2,048
    assert worker["memory"]["blocks"] == 26_674
    done("cost --gpu h100 --model 8b --worker-file w.json --slots 20")
    assert json.loads(Path("w.json").read_text())["clients"] == 20
    assert "H100" in as_json("simulate pang-100x20 --workers w.json")["machine"]


@pytest.mark.parametrize(
    "name", ["a100x2-llama3-8b-sheet", "a100x8-llama3-8b-sheet", "h100x16-llama3-70b-sheet"]
)
def test_other_numbers_of_gpus_are_named_as_well(name):
    found = machine(name)
    assert cost_words(found.cost, 4) == found.words
    assert " x NVIDIA " in found.words


CAPACITY = "capacity i.json --slo-ttft 0.5 --slo-tpot 0.05"


@pytest.fixture
def instance():
    save_instance(heavy(40), "i.json")


def test_json_is_one_object_which_verify_takes(instance, call, done):
    out = done(f"{CAPACITY} --format json --plot p.svg --jobs 1")
    found = json.loads(out)
    assert list(found)[:9] == [
        "workers", "lower_bound_workers", "lower_bounds", "attainment", "attainment_low",
        "attainment_high", "ttft_p99_s", "tpot_p99_s", "bulk_tokens_per_s",
    ]  # fmt: skip
    assert {"simulations", "certificate"} <= set(found)
    assert "proven too few" in Path("p.svg").read_text()
    Path("found.json").write_text(out)
    few = found["lower_bound_workers"] - 1
    said = f"proven: fleets of weight {few} or less are too small ([1] each)\n"
    assert done("capacity i.json --verify found.json") == said
    found["lower_bound_workers"] += 1
    Path("found.json").write_text(json.dumps(found))
    code, out, err = call("capacity i.json --verify found.json")
    assert (code, out, "lower_bound_workers is" in err) == (1, "", True)


def test_columns_and_sort_decide(instance, done, as_json):
    asked = f"{CAPACITY} --folder kept --jobs 1 --sort -workers"
    lines = done(f"{asked} --columns workers,ttft_p99_s").splitlines()
    head = lines.index("workers  TTFT p99 s")
    workers = [int(line.split()[0]) for line in lines[head + 2 :]]
    assert len(workers) > 1
    assert workers == sorted(workers, reverse=True)
    assert [row["workers"] for row in as_json(asked)["curve"]] == workers


def test_text_begins_with_a_sentence_and_goes_on_in_the_folder(instance, done):
    out = done(f"{CAPACITY} --folder kept --jobs 1")
    assert " workers suffice (measured: attainment " in out.splitlines()[0]
    assert " cannot (proven)" in out.splitlines()[0]
    assert done(f"{CAPACITY} --folder kept --jobs 1") == out


def test_a_mix_of_worker_files(instance, as_json):
    Path("w.json").write_text(json.dumps(Worker(8).to_dict()))
    machines = "--machine own=instance:2 --machine other=w.json:1.5"
    found = as_json(f"{CAPACITY} {machines} --max-workers 8")
    assert set(found["fleet"]) == {"own", "other"}
    assert found["lower_bound_price"] <= found["price"]


@pytest.mark.parametrize(("line", "code", "said"), [
    ("capacity i.json --slo-ttft 0.001", 2, "no number of workers can keep an attainment of 0"),
    (f"{CAPACITY} --time-limit 0.001", 3, "time limit"),
    (f"{CAPACITY} --max-workers 1", 2, "no fleet of at most 1 workers"),
])  # fmt: skip
def test_what_goes_wrong_is_said_in_a_line(instance, call, line, code, said):
    found, out, err = call(line)
    assert (found, out) == (code, "")
    assert said in err
    assert "Traceback" not in err


def test_json_of_limits_that_none_can_keep_is_an_object_too(instance, call):
    code, out, err = call("capacity i.json --slo-ttft 0.001 --format json")
    found = json.loads(out)
    assert (code, found["workers"]) == (2, None)
    assert "first is request 0" in found["infeasible"]
    assert "first is request 0" in err


def test_tune_prints_the_best_its_gain_and_lines_for_engines(instance, done, as_json):
    asked = "tune i.json --slo-ttft 0.5 --slo-tpot 0.05 --jobs 1 --runs 6 --search clients=2,4"
    asked += " --search max_num_batched_tokens=16,256 --search long_prefill_token_threshold=0"
    lines = done(f"{asked} -o knobs.svg").splitlines()
    assert lines[0].split()[:3] == ["what", "clients", "max_num_batched_tokens"]
    assert "vllm serve MODEL --max-num-seqs 4 --max-num-batched-tokens 256" in lines[-2]
    assert lines[-1].startswith("python -m sglang.launch_server ")
    assert Path("knobs.svg").stat().st_size > 1000
    found = as_json(asked)
    assert found["best"]["settings"] == {"clients": 4, "max_num_batched_tokens": 256}
    assert found["flags"]["vllm"] == lines[-2]
    assert found["best"]["value"] <= found["bound"]["value"]


@pytest.mark.parametrize(("words", "says"), [
    ("--search clients", "is not KNOB=A,B"), ("--search clients=", "is not KNOB=A,B"),
    ("--search clients=2 --search clients=3", "clients is given twice"),
    ("--search seats=2", "unknown knob 'seats'"), ("--policies no-such", "no-such"),
])  # fmt: skip
def test_wrong_knobs_are_named(instance, call, words, says):
    code, out, err = call(f"tune i.json --slo-ttft 1 --jobs 1 {words}")
    assert (code, out) == (2, "")
    assert says in err
