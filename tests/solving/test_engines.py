"""Engines as they are shipped: sizes by GPU, what is said otherwise, and what policies take on."""

import json

import pytest

import orsched
from orsched import InputError
from orsched.common.registry import resolve
from orsched.files import load_instance, save_instance
from orsched.solving.engines import profiles

TABLE = {"prompt_tokens": [600, 40, 900], "output_tokens": [12, 30, 5], "arrival_s": [0, 0.1, 0.1]}
SIZES = [
    ("h100-llama3-8b-sheet", "vllm-0.33", 1024, 8192),
    ("h100-llama3-8b", "vllm-0.33-offline", 1024, 16384),
    ("b200-llama3-8b-sheet", "vllm-0.33", 1024, 16384),
    ("a100-llama3-8b-sheet", "vllm-0.33", 256, 2048),
    ("l40s-llama3-8b-sheet", "vllm-0.33-offline", 256, 8192),
]


def made(engine="vllm-0.33", cost="h100-llama3-8b-sheet", **said):
    return orsched.load(TABLE, engine=engine, cost=cost, **said)


@pytest.mark.parametrize(("cost", "engine", "clients", "tokens"), SIZES)
def test_seats_and_tokens_are_by_the_gpu(cost, engine, clients, tokens):
    worker = made(engine, cost).worker
    memory = worker.memory
    assert (worker.clients, memory.block_tokens, memory.allocation) == (clients, 16, "paged")
    assert worker.settings == {
        "max_num_seqs": clients, "async_scheduling": True, "max_num_batched_tokens": tokens,
        "enable_prefix_caching": True,
    }  # fmt: skip
    assert memory.prefix_cache == orsched.PrefixCache("lru")


def test_a_share_of_memory_is_what_the_weights_leave():
    shares = [made(gpu_memory_utilization=share).worker.memory.tokens for share in (0.5, 0.7, 0.9)]
    steps = [shares[1] - shares[0], shares[2] - shares[1]]
    assert abs(steps[0] - steps[1]) <= 16  # whole blocks
    assert steps[0] > 0
    assert shares[2] < made().worker.memory.tokens
    plain = orsched.load(TABLE, clients=4, cost="h100-8b-sheet", gpu_memory_utilization=0.5)
    assert plain.worker.memory.tokens == shares[0]


def test_the_method_takes_on_the_settings_and_says_what_is_overridden():
    result = orsched.solve(made(clients=2))
    assert result.schedule.method == "vllm"
    taken = result.schedule.parameters
    assert (taken["async_scheduling"], taken["max_num_batched_tokens"]) == (True, 8192)
    assert any("overridden max_num_seqs=1024" in note for note in result.notes)
    named = orsched.solve(made(), "vllm", parameters={"max_num_batched_tokens": 64})
    assert named.schedule.parameters["max_num_batched_tokens"] == 64
    assert any("overridden max_num_batched_tokens=8192" in note for note in named.notes)
    other = orsched.simulate(made(), "gittins")
    assert other.schedule.parameters["max_num_batched_tokens"] == 8192
    assert any("without async_scheduling=true" in note for note in other.notes)


def test_workers_of_several_sizes_share_the_smaller_budget():
    workers = [made(cost=f"{gpu}-llama3-8b-sheet").worker for gpu in ("h100", "l40s")]
    both = made().replace(workers=workers)
    budget = orsched.simulate(both, "vllm").schedule.parameters["max_num_batched_tokens"]
    assert budget == 2048
    plain = both.replace(workers=(workers[0], orsched.Worker(4)))
    assert orsched.simulate(plain, "vllm").schedule.parameters["max_num_batched_tokens"] == 2048


def test_the_server_of_the_paper():
    instance = orsched.load(TABLE, engine="pang")
    shipped = orsched.load("gsm8k-llama65b")
    assert instance.worker.memory == shipped.worker.memory
    assert instance.worker.cost == shipped.worker.cost
    assert (instance.first_token, instance.worker.clients) == (shipped.first_token, 200)
    assert orsched.solve(instance).schedule.method == "fcfs"


def test_the_same_by_options_files_and_on_a_native_instance(tmp_path, monkeypatch, capsys):
    from orsched.cli.commands import run as main

    monkeypatch.chdir(tmp_path)
    rows = zip(*TABLE.values(), strict=True)
    text = "".join(f"{p},{o},{a}\n" for p, o, a in rows)
    (tmp_path / "r.csv").write_text(f"prompt_tokens,output_tokens,arrival_s\n{text}")
    said = ["--engine", "vllm-0.33", "--cost", "h100-llama3-8b-sheet", "--max-model-len", "4096"]
    assert main(["convert", "r.csv", "i.json", *said]) == 0
    instance = load_instance("i.json")
    assert instance.sha256 == made(max_model_len=4096).sha256
    save_instance(instance, "i.parquet")
    assert load_instance("i.parquet") == instance
    assert main(["simulate", "r.csv", *said, "--clients", "8", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["method"] == "vllm"
    assert "clients=8 (not 1024)" in err
    assert "overridden max_num_seqs=1024" in err
    native = orsched.load("gsm8k-llama65b", engine="vllm-0.33")
    assert native.worker.memory.tokens == orsched.load("gsm8k-llama65b").worker.memory.tokens
    assert (native.worker.caches_prefixes, native.worker.clients) == (True, 200)


def test_longer_requests_than_the_engine_takes_are_refused():
    instance = made(max_model_len=700)
    assert sum(instance.admitted().refused) == 1
    assert orsched.solve(instance).checked


@pytest.mark.parametrize(("said", "field"), [
    ({"engine": "vllm"}, "engine"), ({"engine": 3}, "engine"),
    ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
    ({"gpu_memory_utilization": float("nan")}, "gpu_memory_utilization"),
    ({"max_model_len": 0}, "max_model_len"), ({"max_model_len": 10**7}, "max_model_len"),
    ({"engine": None, "clients": 4, "max_model_len": 100}, "max_model_len"),
    ({"cost": None}, "memory_blocks"), ({"gpu_memory_utilization": 0.1}, "tp"),
])  # fmt: skip
def test_what_no_engine_has_is_refused(said, field):
    with pytest.raises(InputError) as caught:
        made(**said)
    assert caught.value.field == field


def test_each_profile_has_a_method_and_a_source():
    for profile in profiles().values():
        assert resolve("methods", profile["policy"]).name == profile["policy"]
        assert len(profile["source"]) > 20
