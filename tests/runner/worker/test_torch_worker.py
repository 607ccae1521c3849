"""The torch worker yields the tokens of transformers' ``generate``, whatever else it serves."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from orsched import Instance, Requests, Worker, check
from orsched.common.errors import InputError
from orsched.common.registry import resolve
from orsched.costs import AffineCost
from orsched.data.memory import BlockMemory
from tests.in_order import in_order

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'runner' is not installed")

from benchmarks.reproductions.tokens import (  # noqa: E402
    FAMILIES,
    TOLERANCES,
    differences,
    generated,
    main,
    measure,
)
from orsched.runner.devices.device import TorchDevice  # noqa: E402
from orsched.runner.loop.live import execute_policy  # noqa: E402
from orsched.runner.worker.language_model import PRESETS, load_model  # noqa: E402
from orsched.runner.worker.layout import Chunk  # noqa: E402
from tests.runner.torch_workers import torch_worker  # noqa: E402

VOCABULARY = 512


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.full)])
def test_tokens_are_those_of_generate_in_double_precision(family: str, seed: int) -> None:
    _, differing = differences(family, "float64", seed)
    assert differing == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_in_fewer_digits_tokens_differ_only_where_logits_nearly_tie(
    family: str, dtype: str
) -> None:
    case, differing = differences(family, dtype, seed=1)
    assert [each for each in differing if each.margin >= TOLERANCES[dtype]] == []
    assert len(differing) <= len(case.outputs) // 2


@pytest.mark.full
def test_the_table_counts_every_sequence_that_differs(capsys: pytest.CaptureFixture[str]) -> None:
    rows, where = measure(["tiny", "tiny-gpt-neo"], list(TOLERANCES), seeds=4)
    assert [row["sequences"] for row in rows] == [32] * 6
    assert all(row["within"] for row in rows)
    assert sum(row["differ"] for row in rows) == len(where)
    assert main(["--families", "tiny", "--dtypes", "float64", "--seeds", "1"]) == 0
    assert "differ" in capsys.readouterr().out


def test_one_forward_pass_a_step_however_many_requests_are_in_it() -> None:
    worker = torch_worker("tiny", slots=6, length=64)
    worker.prefill([Chunk(slot, 0, [1 + slot] * (3 + slot), True) for slot in range(5)])
    assert worker.forward_passes == 1
    worker.decode(range(5), rounds=10)
    assert worker.forward_passes == 11
    worker.step([Chunk(5, 0, [7, 8], True)], range(5))
    assert worker.forward_passes == 12
    assert [len(worker.take(slot, 3 + slot)) for slot in range(5)] == [12] * 5
    assert len(worker.take(5, 2)) == 1


def test_forward_passes_see_no_padding() -> None:
    worker, seen = torch_worker("tiny", slots=4, length=64), []
    forward = worker.forward
    worker.forward = lambda tokens, positions: (
        seen.append(len(tokens)) or forward(tokens, positions)
    )
    worker.prefill([Chunk(0, 0, [1] * 40, True), Chunk(1, 0, [2] * 3, True)])
    worker.decode([0, 1])
    assert seen == [43, 2]


def test_what_other_slots_do_changes_no_token() -> None:
    prompt = [5, 6, 7]
    alone = torch_worker("tiny", slots=1, length=64, dtype="float64")
    alone.prefill([Chunk(0, 0, prompt, True)])
    alone.decode([0], rounds=20)
    crowd = torch_worker("tiny", slots=4, length=64, dtype="float64")
    crowd.prefill([Chunk(3, 0, [1] * 30, True)])
    crowd.decode([3], rounds=5)
    crowd.prefill([Chunk(1, 0, prompt, True), Chunk(0, 0, [9] * 8, True)])
    for round_ in range(20):
        crowd.decode([1, 3] if round_ % 2 else [0, 1])
    assert crowd.take(1, 3).tolist() == alone.take(0, 3).tolist()
    assert len(alone.take(0, 3)) == 21


def test_wrong_arguments_say_what_there_is() -> None:
    with pytest.raises(InputError, match="unknown model"):
        torch_worker("huge")
    with pytest.raises(InputError, match="positions"):
        torch_worker("tiny-gpt2", length=5000)
    with pytest.raises(InputError, match="slots"):
        torch_worker("tiny", slots=0)
    with pytest.raises(InputError, match="unknown type"):
        torch_worker("tiny", dtype="int8")


@pytest.mark.parametrize("rule", ["decode", "prefill"])
def test_a_policy_with_evictions_and_chunks_yields_the_tokens_of_generate(rule: str) -> None:
    rng = random.Random(5)
    outputs = [rng.randint(1, 20) for _ in range(8)]
    instance = Instance(
        Requests([rng.choice((1, rng.randint(2, 30))) for _ in outputs], outputs),
        Worker(
            4,
            in_order(AffineCost, 25_000_000, 130_000, 29_000_000, 210_000),
            None,
            BlockMemory(14, 4, "paged"),
        ),
        first_token=rule,
    )
    method, evictions = resolve("methods", "vllm"), []
    policy = method.build(
        instance, method.information[0], {"max_num_batched_tokens": 10, "watermark_blocks": 0}, 0
    )[0]
    device = TorchDevice(torch_worker("tiny", slots=4, length=64, dtype="float64", seed=2))
    done = execute_policy(
        instance,
        policy,
        device,
        seed=7,
        vocabulary=VOCABULARY,
        observer=lambda view, step: evictions.extend(step.preempt),
    )
    plain = load_model("tiny", "cpu", "float64", 2)
    prompts = [
        np.random.default_rng([7, request]).integers(VOCABULARY, size=size).tolist()
        for request, size in enumerate(instance.requests.prompt_tokens)
    ]
    expected = [
        generated(plain, prompt, count)[0] for prompt, count in zip(prompts, outputs, strict=True)
    ]
    assert done.tokens == expected
    assert evictions
    assert check(instance, done.schedule, times="measured") == []


def saved(folder: Path, rope: dict[str, float | str]) -> str:
    """Save a small Llama model with everything that a configuration may change; return its path."""
    arguments = PRESETS["tiny"][1] | {
        "attention_bias": True,
        "mlp_bias": True,
        "hidden_act": "gelu",
        "head_dim": 24,
        "max_position_embeddings": 256,
        "rope_parameters": {"rope_theta": 500.0} | rope,
    }
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


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 4.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        {"rope_type": "dynamic", "factor": 2.0},
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_a_model_from_a_folder_yields_the_tokens_of_generate(
    tmp_path: Path, rope: dict[str, float | str]
) -> None:
    _, differing = differences(saved(tmp_path, rope), "float64", 6)
    assert differing == []


def test_angles_that_depend_on_other_requests_are_refused(tmp_path: Path) -> None:
    factors = {"rope_type": "longrope", "short_factor": [1.0] * 12, "long_factor": [2.0] * 12}
    config = {"original_max_position_embeddings": 64, "factor": 4.0}
    with pytest.raises(InputError, match="longrope"):
        torch_worker(saved(tmp_path, factors | config), slots=1, length=64)


def test_merged_weights_stay_those_of_the_model() -> None:
    worker, plain = (
        torch_worker("tiny-qwen2", slots=1, length=16),
        load_model("tiny-qwen2", "cpu", "float32"),
    )
    for (name, found), (_, expected) in zip(
        worker.model.named_parameters(), plain.named_parameters(), strict=True
    ):
        assert torch.equal(found, expected), name
    first = worker.model.model.layers[0].self_attn
    whole = worker.forward.layers[0].projections
    assert first.q_proj.weight.data_ptr() == whole.data_ptr()
    assert len(whole) == sum(len(p.weight) for p in (first.q_proj, first.k_proj, first.v_proj))
