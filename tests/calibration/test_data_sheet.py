"""Rooflines from data sheets: arithmetic that can be done by hand, and shapes that are read."""

import json

import pytest

from orsched import InputError, RooflineCost
from orsched.calibration import GPUS, MODELS, data_sheet_cost, fitting, read_config, shapes
from orsched.calibration.data_sheet import least_gpus
from orsched.calibration.shapes import SHORT, ModelShape
from tests.refusals import refused

PARAMETERS = {
    # billions, as the makers' pages give them
    "llama3-1b": 1.24, "llama3-3b": 3.21, "llama3-8b": 8.03, "llama3-70b": 70.6, "llama2-7b": 6.74,
    "llama2-13b": 13.0, "llama-65b": 65.2, "mistral-7b": 7.25, "qwen2.5-7b": 7.62,
    "qwen2.5-14b": 14.8, "qwen2.5-32b": 32.8, "qwen2.5-72b": 72.7,
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_shape_has_the_parameters_that_its_makers_count(name):
    assert MODELS[name].weights == pytest.approx(PARAMETERS[name] * 1e9, rel=0.006)


def test_one_by_hand():
    """Llama 3 8B on an H100: 15.0 GB at 60 % of 3.35 TB/s, 14 GFLOP a token at 60 % of 989.5."""
    cost = data_sheet_cost(GPUS["h100"], MODELS["llama3-8b"])
    layers = 32 * (2 * 4096 * 128 * 40 + 3 * 4096 * 14_336)
    read = 2 * (layers + 4096 * 128_256)
    assert cost.weights_fs == pytest.approx(read / (0.6 * 3.35e12) * 1e15, rel=1e-9)
    assert cost.token_fs == pytest.approx(2 * layers / (0.6 * 989.5e12) * 1e15, rel=1e-9)
    assert cost.context_fs == pytest.approx(131_072 / (0.6 * 3.35e12) * 1e15, rel=1e-6)
    assert cost.attended_fs == pytest.approx(4 * 32 * 4096 / (0.6 * 989.5e12) * 1e15, rel=1e-4)
    assert cost.fixed_fs == 32 * 30 * 10**9


def test_efficiency_and_gpus_divide_and_the_bandwidth_has_its_own():
    gpu, shape = GPUS["a100"], MODELS["llama2-13b"]
    whole = data_sheet_cost(gpu, shape, 1.0)
    half = data_sheet_cost(gpu, shape, 0.5)
    slow = data_sheet_cost(gpu, shape, 1.0, 0.5)
    four = data_sheet_cost(gpu, shape, 1.0, tensor_parallel=4)
    for name, slower in (("weights_fs", 2), ("context_fs", 2), ("token_fs", 1), ("attended_fs", 1)):
        factors = [getattr(each, name) / getattr(whole, name) for each in (half, slow, four)]
        assert factors == pytest.approx([2, slower, 1 / 4])
    assert half.fixed_fs == whole.fixed_fs < four.fixed_fs


@pytest.mark.parametrize(("field", "arguments"), [
    ("efficiency", (0.0,)), ("efficiency", (1.01,)), ("efficiency", ("0.5",)),
    ("memory_efficiency", (0.5, float("nan"))), ("tensor_parallel", (0.5, 0.5, 0)),
    ("tensor_parallel", (0.5, 0.5, 1.5)),
])  # fmt: skip
def test_wrong_assumptions_are_named(field, arguments):
    assert refused("", data_sheet_cost, GPUS["l4"], MODELS["llama3-8b"], *arguments).field == field


def test_what_fits_beside_the_weights():
    room = fitting(GPUS["h100"], MODELS["llama3-8b"])
    assert room.kv_tokens == (72 * 10**9 - 2 * MODELS["llama3-8b"].weights) // 131_072
    assert (room.blocks, room.slots(4096)) == (room.kv_tokens // 16, room.kv_tokens // 4096)
    with pytest.raises(InputError, match="at least 2 GPUs") as caught:
        fitting(GPUS["h100"], MODELS["llama3-70b"])
    assert caught.value.field == "tensor_parallel"
    for gpu in GPUS.values():
        for shape in MODELS.values():
            count = least_gpus(gpu, shape)
            assert fitting(gpu, shape, count).kv_tokens >= 4095
            if count > 1:
                half = (count // 2) * gpu.memory_bytes * 0.9
                assert half < 2 * (shape.weights + 4096 * shape.kv_numbers)


CONFIG = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14_336, "vocab_size": 128_256,
    "torch_dtype": "bfloat16",
}  # fmt: skip


WRONG = [
    ("hidden_size", None), ("hidden_size", -1), ("num_key_value_heads", 64), ("head_dim", "128"),
    ("num_local_experts", 8), ("kv_lora_rank", 512), ("architectures", ["GPTNeoXForCausalLM"]),
    ("model_type", "starcoder2"), ("layer_types", ["full_attention", "linear_attention"]),
    ("torch_dtype", "float8_e4m3fn"), ("num_kv_shared_layers", 4), ("quantization", {"bits": 4}),
    ("quantization_config", 8),
]  # fmt: skip
WRONG_QUANTIZATION = [
    ("quant_method", "fp8"), ("quant_method", None), ("bits", None), ("group_size", 0),
    ("lm_head", True), ("dynamic", {"x": {}}), ("modules_to_not_convert", ["mlp"]),
    ("kv_cache_scheme", {"bits": 8}),
]  # fmt: skip


def test_a_config_is_the_shape_of_the_catalogue(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    shape, known = read_config(tmp_path), MODELS["llama3-8b"]
    assert read_config(tmp_path / "config.json") == shape
    for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "head_size"):
        assert getattr(shape, name) == getattr(known, name)
    assert data_sheet_cost(GPUS["h100"], shape) == data_sheet_cost(GPUS["h100"], known)
    assert isinstance(data_sheet_cost(GPUS["h100"], shape), RooflineCost)


@pytest.mark.parametrize(("change", "field"), [
    *(({field: wrong}, field) for field, wrong in WRONG),
    ({"text_config": {}, "vision_config": {"depth": 1}}, "vision_config"),
    ({"sliding_window": 4096, "max_position_embeddings": 32_768}, "sliding_window"),
    *(({"quantization_config": {"quant_method": "gptq", "bits": 4, field: wrong}},
       f"quantization_config.{field}") for field, wrong in WRONG_QUANTIZATION),
])  # fmt: skip
def test_a_wrong_config_names_its_field(tmp_path, change, field):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    assert refused(r"config\.json", read_config, tmp_path).field == field


def shape_of(values):
    return ModelShape.from_config(values, "x", "y")


@pytest.mark.parametrize("change", [
    {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_experts": 0},
    {"sliding_window": 131_072, "use_sliding_window": False, "max_window_layers": 28},
    {"sliding_window": 262_144, "max_position_embeddings": 131_072},
    {"sliding_window": None, "layer_types": ["full_attention"] * 32, "new_switch": False},
    {"rope_scaling": {"factor": 8.0}, "eos_token_id": [1, 2], "temperature": 0.6},
    {"dtype": "float16", "quantization_config": None},
])  # fmt: skip
def test_fields_that_change_nothing_are_known(change):
    assert shape_of(CONFIG | change) == shape_of(CONFIG)


QWEN_GPTQ = {
    "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18_944,
    "vocab_size": 152_064, "quantization_config": {"bits": 8, "quant_method": "gptq"},
    "torch_dtype": "float16",
}  # fmt: skip
"""Of a public report (vllm #22291): 8.7 GB of weights, about 225,000 tokens on 24 GB."""


def test_weights_of_few_bits_leave_more_room_and_are_read_faster():
    shape = shape_of(QWEN_GPTQ)
    plain = MODELS["qwen2.5-7b"]
    assert shape.source == "y, weights of 8 bits (gptq)"
    assert shape.weight_bytes == plain.layer_weights + 4 * plain.head_weights
    assert fitting(GPUS["rtx4090"], shape).kv_tokens == pytest.approx(225_000, rel=0.001)
    slow, fast = (data_sheet_cost(GPUS["rtx4090"], each) for each in (plain, shape))
    assert fast.weights_fs < slow.weights_fs
    assert fast.token_fs == slow.token_fs  # products have 16 bits
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    kept = {"quantization_config": awq | {"modules_to_not_convert": ["lm_head"]}}
    assert shape_of(QWEN_GPTQ | kept).layer_bits == 4 + 20 / 128


def test_what_a_config_leaves_unsaid():
    """A family may tie its output layer; heads of keys are those of queries."""
    assert shape_of(CONFIG | {"model_type": "gemma"}).tied
    assert not shape_of(CONFIG).tied
    refused("vocab_size", shape_of, {key: CONFIG[key] for key in CONFIG if key != "vocab_size"})
    values = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"}
    assert shape_of(values).kv_heads == 32
    assert shape_of(values | {"head_dim": 64}).head_size == 64


def test_fields_are_of_one_kind_and_short_names_stand_for_models_of_the_catalogue():
    assert not shapes.USED & shapes.IRRELEVANT
    assert not shapes.REFUSED.keys() & (shapes.USED | shapes.IRRELEVANT)
    assert set(SHORT.values()) <= set(MODELS)
