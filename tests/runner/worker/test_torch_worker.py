"""The torch worker yields the tokens of transformers' ``generate``, whatever else it serves."""

import random

import numpy as np
import pytest
import torch
import transformers

from benchmarks.reproductions import tokens
from benchmarks.reproductions.tokens import FAMILIES, TOLERANCES, differences, generated
from orsched import AffineCost, BlockMemory, Instance, Requests, Worker, check
from orsched.runner.devices.device import TorchDevice
from orsched.runner.devices.processes import ProcessDevice
from orsched.runner.devices.settings import WorkerSettings
from orsched.runner.loop.live import execute_policy
from orsched.runner.worker import model_folder
from orsched.runner.worker.language_model import PRESETS, load_model, preset_config, shape_of
from orsched.runner.worker.layout import Chunk
from tests.refusals import refused
from tests.runner.loop.spec import build
from tests.runner.torch_workers import torch_worker

VOCABULARY, LIMIT, SEED = 512, 24, 7
SETTINGS = WorkerSettings("tiny", slots=3, length=64, dtype="float64", seed=2, threads=1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.full)])
def test_tokens_are_those_of_generate_in_double_precision(family, seed):
    _, differing = differences(family, "float64", seed)
    assert differing == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_in_fewer_digits_tokens_differ_only_where_logits_nearly_tie(family, dtype):
    case, differing = differences(family, dtype, seed=1)
    assert [each for each in differing if each.margin >= TOLERANCES[dtype]] == []
    assert len(differing) <= len(case.outputs) // 2


@pytest.mark.full
def test_the_table_counts_every_sequence_that_differs(capsys):
    rows, where = tokens.measure(["tiny", "tiny-gpt-neo"], list(TOLERANCES), seeds=4)
    assert [row["sequences"] for row in rows] == [32] * 6
    assert all(row["within"] for row in rows)
    assert sum(row["differ"] for row in rows) == len(where)
    assert tokens.main(["--families", "tiny", "--dtypes", "float64", "--seeds", "1"]) == 0
    assert "differ" in capsys.readouterr().out


def test_one_forward_pass_a_step_however_many_requests_are_in_it():
    worker = torch_worker("tiny", slots=6, length=64)
    worker.prefill([Chunk(slot, 0, [1 + slot] * (3 + slot), True) for slot in range(5)])
    assert worker.forward_passes == 1
    worker.decode(range(5), rounds=10)
    assert worker.forward_passes == 11
    worker.step([Chunk(5, 0, [7, 8], True)], range(5))
    assert worker.forward_passes == 12
    assert [len(worker.take(slot, 3 + slot)) for slot in range(5)] == [12] * 5
    assert len(worker.take(5, 2)) == 1


def test_wrong_arguments_say_what_there_is():
    refused("unknown model", torch_worker, "huge")
    refused("positions", torch_worker, "tiny-gpt2", length=5000)
    refused("slots", torch_worker, "tiny", slots=0)
    refused("unknown type", torch_worker, "tiny", dtype="int8")


def by_generate(requests, counts):
    """Return what transformers yields for the random prompt of each request."""
    plain, found = load_model("tiny", "cpu", "float64", 2), []
    for request, (size, count) in enumerate(zip(requests.prompt_tokens, counts, strict=True)):
        prompt = np.random.default_rng([SEED, request]).integers(VOCABULARY, size=size).tolist()
        found.append(generated(plain, prompt, count)[0])
    return found


def ends_where_generate_would(spec, rule, device):
    """Run a policy until requests say that they are done; return what was done."""
    rng = random.Random(rule)
    requests = Requests([rng.randint(1, 30) for _ in range(8)], [1] * 8)
    problem = Instance(requests, Worker(3, AffineCost()), rule, output_limit_tokens=LIMIT)
    found = by_generate(requests, [LIMIT] * 8)
    ends = {tokens[3 + 2 * request] for request, tokens in enumerate(found[:6])}
    more = {"seed": SEED, "vocabulary": VOCABULARY, "end_of_sequence": ends}
    done = execute_policy(problem, build(problem, spec), device, **more)
    firsts = [next((i for i, token in enumerate(row) if token in ends), LIMIT) for row in found]
    assert done.tokens == [row[: 1 + end] for row, end in zip(found, firsts, strict=True)]
    assert check(done.instance, done.schedule, times="measured") == []
    return done


@pytest.mark.parametrize("rule", ["decode", "prefill"])
@pytest.mark.parametrize("spec", ["fcfs", "vllm@none+max_num_batched_tokens=10", "static@none"])
def test_requests_end_where_generate_would(rule, spec):
    device = TorchDevice(torch_worker("tiny", slots=3, length=64, dtype="float64", seed=2))
    done = ends_where_generate_would(spec, rule, device)
    lengths = [len(each) for each in done.tokens]
    assert len(set(lengths)) > 3
    assert done.instance.requests.output_tokens.tolist() == lengths


def test_requests_end_in_another_process():
    device = ProcessDevice(SETTINGS, faults={9: "kill"})
    try:
        done = ends_where_generate_would("fcfs", "decode", device)
    finally:
        device.close()
    assert [event["what"] for event in done.events] == ["lost", "restarted"]


@pytest.mark.parametrize("rule", ["decode", "prefill"])
def test_a_policy_with_evictions_and_chunks_yields_the_tokens_of_generate(rule):
    rng, evictions = random.Random(5), []
    outputs = [rng.randint(1, 20) for _ in range(8)]
    requests = Requests([rng.choice((1, rng.randint(2, 30))) for _ in outputs], outputs)
    worker = Worker(4, AffineCost(), memory=BlockMemory(14, 4, "paged"))
    instance = Instance(requests, worker, first_token=rule)
    policy = build(instance, "vllm@none+max_num_batched_tokens=10+watermark_blocks=0")
    device = TorchDevice(torch_worker("tiny", slots=4, length=64, dtype="float64", seed=2))

    def observe(view, step):
        evictions.extend(step.preempt)

    done = execute_policy(instance, policy, device, SEED, VOCABULARY, observe)
    assert done.tokens == by_generate(requests, outputs)
    assert evictions
    assert check(instance, done.schedule, times="measured") == []


def saved(folder, rope):
    """Save a small Llama model with everything that a configuration may change; return its path."""
    arguments = PRESETS["tiny"][1] | {
        "attention_bias": True, "mlp_bias": True, "hidden_act": "gelu", "head_dim": 24,
        "max_position_embeddings": 256, "rope_parameters": {"rope_theta": 500.0} | rope,
    }  # fmt: skip
    config = transformers.AutoConfig.for_model("llama", **arguments)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = transformers.AutoModelForCausalLM.from_config(config)
        for name, weights in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(weights, std=0.05)
            elif name.endswith("proj.weight"):
                torch.nn.init.normal_(weights, std=0.2)
    model.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("rope", [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 64},
    {"rope_type": "dynamic", "factor": 2.0},
], ids=lambda rope: rope["rope_type"])  # fmt: skip
def test_a_model_from_a_folder_yields_the_tokens_of_generate(tmp_path, rope):
    _, differing = differences(saved(tmp_path, rope), "float64", 6)
    assert differing == []


def test_angles_that_depend_on_other_requests_are_refused(tmp_path):
    factors = {"rope_type": "longrope", "short_factor": [1.0] * 12, "long_factor": [2.0] * 12}
    config = {"original_max_position_embeddings": 64, "factor": 4.0}
    refused("longrope", torch_worker, saved(tmp_path, factors | config), slots=1, length=64)


def test_merged_weights_stay_those_of_the_model():
    worker = torch_worker("tiny-qwen2", slots=1, length=16)
    plain = load_model("tiny-qwen2", "cpu", "float32").named_parameters()
    for (name, found), (_, expected) in zip(worker.model.named_parameters(), plain, strict=True):
        assert torch.equal(found, expected), name
    first = worker.model.model.layers[0].self_attn
    whole = worker.forward.layers[0].projections
    assert first.q_proj.weight.data_ptr() == whole.data_ptr()
    assert len(whole) == sum(len(p.weight) for p in (first.q_proj, first.k_proj, first.v_proj))


# parameters as the model cards and the sizes of the published weights say; heads of keys and their
# size make the cache: 32, 128 and 800 KiB a token in two bytes a number
PUBLISHED = {"1b": (1_235_814_400, 32), "8b": (8_030_261_248, 128), "13b": (13_015_864_320, 800)}


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_a_preset_has_as_many_parameters_as_the_model(name):
    parameters, kib_a_token = PUBLISHED[name]
    config = preset_config(name)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert sum(each.numel() for each in model.parameters()) == parameters
    shape = shape_of(config)
    assert 2 * 2 * shape.layers * shape.kv_heads * shape.head_dim == kib_a_token * 1024


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_is_of_a_family_that_is_tested(name):
    config = preset_config(name)
    assert config.model_type in model_folder.FAMILIES
    assert shape_of(config).positions >= 4096
