"""The torch worker yields the tokens of transformers' ``generate``, in whatever slots."""

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
from orsched.runner.worker import kernels, model_folder
from orsched.runner.worker.language_model import PRESETS, load_model, preset_config, shape_of
from orsched.runner.worker.layout import Chunk, Run, runs_of
from orsched.runner.worker.torch_worker import in_waves
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


@pytest.mark.full
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
    pytest.param({"rope_type": "linear", "factor": 4.0}, marks=pytest.mark.full),
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


PACKED, SCATTERED = (0, 1, 2, 3, 4), (18, 3, 11, 4, 7)
PROMPTS = ([1, 2, 3], [9] * 20, [4, 5], [6] * 11, [8] * 3)


def served(slots, graphs, family="tiny"):
    """Return tokens, rows of each forward pass, and graphs that were replayed."""
    worker = torch_worker(family, 20, 40, dtype="float64", graphs=graphs)
    worker.prepare()
    rows, keys = [], []
    forward, replay = worker.forward, worker.graphs.replay
    worker.forward = lambda tokens, at: rows.append(len(tokens)) or forward(tokens, at)
    worker.graphs.replay = lambda size: keys.append(size) or replay(size)
    worker.prefill([Chunk(at, 0, p, True) for at, p in zip(slots[:4], PROMPTS, strict=False)])
    worker.decode(slots[:4], rounds=3)
    worker.step([Chunk(slots[4], 0, PROMPTS[4], True)], slots[:3])
    worker.decode([slots[k] for k in (4, 0, 3)], rounds=8)
    tokens = [worker.take(at, len(p)).tolist() for at, p in zip(slots, PROMPTS, strict=True)]
    return tokens, rows, keys


@pytest.mark.parametrize("family", ["tiny", "tiny-gpt-neo"])
@pytest.mark.parametrize("copied", [0, 10**9], ids=["views", "copies"])
@pytest.mark.usefixtures("small_graphs")
@pytest.mark.parametrize("graphs", ["off", "rehearse"])
def test_scattered_slots_do_as_packed_ones(graphs, copied, family, monkeypatch):
    monkeypatch.setattr(kernels, "COPIED_BYTES", copied)
    packed, scattered = (served(slots, graphs, family) for slots in (PACKED, SCATTERED))
    assert packed == scattered
    if graphs == "off":
        sizes = [len(p) for p in PROMPTS]
        assert packed[1] == [sum(sizes[:4]), *[4] * 3, 3 + sizes[4], *[3] * 8]
    else:
        assert len(packed[2]) == 13


def test_neighbours_attend_in_one_call_as_far_as_the_longest_of_them():
    lengths = [3, 70, 5, 0, 120, 127, 128]
    assert runs_of([0, 1, 2, 4], lengths, 200) == (Run(0, 0, 3, 128), Run(3, 4, 1, 128))
    assert runs_of([5, 6], lengths, 200) == (Run(0, 5, 2, 192),)
    assert runs_of([6], lengths, 150) == (Run(0, 6, 1, 150),)
    assert runs_of([], lengths, 150) == ()


def test_a_slot_that_is_full_takes_no_token():
    """It would write into the first row of the next one."""
    worker = torch_worker("tiny", slots=2, length=8)
    worker.prefill([Chunk(0, 0, [1] * 7, True), Chunk(1, 0, [2] * 3, True)])
    worker.decode([0])
    refused("full", worker.decode, [0])
    assert worker.slots.lengths.tolist() == [8, 3, 0]


SIZE = 4


def worker(stored=8):
    """Return a small worker, in double precision so that no logits tie."""
    return torch_worker("tiny", 4, 64, dtype="float64", stored_blocks=stored, block_tokens=SIZE)


def prompt(seed, tokens):
    return random.Random(seed).choices(range(512), k=tokens)


def alone(tokens, rounds):
    """Return what a request yields on a worker without reuse."""
    plain = worker(stored=0)
    plain.prefill([Chunk(0, 0, tokens, True)])
    plain.decode([0], rounds)
    return plain.take(0, len(tokens)).tolist()


def test_a_stored_prefix_yields_the_tokens_of_one_that_is_computed():
    shared, reusing = prompt(1, 2 * SIZE), worker()
    first, second = shared + prompt(2, 5), shared + prompt(3, 7)
    reusing.prefill([Chunk(0, 0, first, True, saves=[(0, 5), (1, 2)])])
    reusing.release(0)
    reusing.prefill([Chunk(0, 0, prompt(4, 30), True)])  # the slot is written over
    reusing.step([Chunk(3, 2 * SIZE, second[2 * SIZE :], True, loads=[(0, 5), (1, 2)])], [0])
    reusing.decode([0, 3], 6)
    assert reusing.take(3, len(second)).tolist() == alone(second, 6)
    assert reusing.take(0, 30).tolist() == alone(prompt(4, 30), 7)
    empty = worker()  # without what was saved the tokens differ
    empty.step([Chunk(3, 2 * SIZE, second[2 * SIZE :], True, loads=[(0, 5), (1, 2)])], [])
    empty.decode([3], 6)
    assert empty.take(3, len(second)).tolist() != alone(second, 6)


def test_requests_of_one_step_share_what_the_first_of_them_computes():
    shared, reusing = prompt(1, 2 * SIZE), worker()
    texts = [shared + prompt(seed, seed) for seed in (3, 5, 6)]
    blocks = [(0, 1), (1, 0)]
    chunks = [
        Chunk(2, 0, texts[0], True, saves=blocks),
        Chunk(0, 2 * SIZE, texts[1][2 * SIZE :], True, loads=blocks),
        Chunk(1, 2 * SIZE, texts[2][2 * SIZE :], True, loads=blocks),
    ]
    assert [len(wave) for wave in in_waves(chunks)] == [1, 2]
    reusing.prefill([Chunk(3, 0, prompt(9, 9), True)])
    reusing.step(chunks, [3])
    reusing.decode([0, 1, 2, 3], 5)
    for slot, text in zip((2, 0, 1), texts, strict=True):
        assert reusing.take(slot, len(text)).tolist() == alone(text, 5)
    assert reusing.take(3, 9).tolist() == alone(prompt(9, 9), 6)


def test_a_chain_of_reuse_in_one_step_takes_a_wave_each():
    chain = [
        Chunk(0, 0, [1], False, saves=[(0, 0)]),
        Chunk(1, 4, [1], False, loads=[(0, 0)], saves=[(1, 1)]),
        Chunk(2, 8, [1], False, loads=[(0, 0), (1, 1)]),
        Chunk(3, 0, [1], False),
    ]
    assert [[chunk.slot for chunk in wave] for wave in in_waves(chain)] == [[0, 3], [1], [2]]


def test_what_a_request_that_leaves_has_cached_comes_back_with_it():
    text, reusing = prompt(7, 2 * SIZE + 1), worker()
    reusing.prefill([Chunk(0, 0, text, True)])
    reusing.decode([0], 4)
    yielded = reusing.take(0, len(text)).tolist()
    leaving = Chunk(0, 0, [], False, saves=[(0, 0), (1, 1), (2, 2)])
    assert leaving.only_saves
    reusing.save([leaving])
    reusing.release(0)
    reusing.prefill([Chunk(0, 0, prompt(4, 30), True)])
    whole = text + yielded
    again = Chunk(1, 3 * SIZE, whole[3 * SIZE :], True, loads=leaving.saves)
    reusing.step([again], [])
    reusing.decode([1], 3)
    assert yielded + reusing.take(1, len(whole)).tolist() == alone(text, 8)
