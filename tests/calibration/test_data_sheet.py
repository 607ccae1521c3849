"""Rooflines from data sheets: arithmetic that can be done by hand, and shapes that are read."""

import json
from dataclasses import replace

import pytest

import orsched
from orsched import InputError, RooflineCost, Worker
from orsched.calibration import (
    GPUS,
    MODELS,
    Layout,
    config_fields,
    constants_of,
    data_sheet_cost,
    fitting,
    read_config,
)
from orsched.calibration.data_sheet import least_gpus, touched
from orsched.calibration.shapes import SHORT, ModelShape
from orsched.cli.machines import own_gpu
from orsched.costs import floor_faults, floor_of
from tests.refusals import refused

PARAMETERS = {
    # billions, as the makers' pages give them
    "llama3-1b": 1.24, "llama3-3b": 3.21, "llama3-8b": 8.03, "llama3-70b": 70.6, "llama2-7b": 6.74,
    "llama2-13b": 13.0, "llama2-70b": 69.0, "codellama-34b": 33.7, "llama-65b": 65.2,
    "mistral-7b": 7.25, "qwen2.5-7b": 7.62, "qwen2.5-14b": 14.8, "qwen2.5-32b": 32.8,
    "qwen2.5-72b": 72.7, "qwen3-32b": 32.8, "mixtral-8x7b": 46.7, "qwen3-235b": 235,
    "deepseek-v3": 671, "deepseek-r1": 671, "kimi-k2.5": 1026, "glm-5": 744, "minimax-m2.5": 229,
    "gpt-oss-120b": 116.8, "qwen3.5-397b": 397,
}  # fmt: skip
ACTIVE = {"mixtral-8x7b": 12.9, "qwen3-235b": 22, "deepseek-v3": 37, "kimi-k2.5": 32, "glm-5": 40,
          "minimax-m2.5": 10, "gpt-oss-120b": 5.1, "qwen3.5-397b": 17}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_shape_has_the_parameters_that_its_makers_count(name):
    shape = MODELS[name]
    assert shape.weights == pytest.approx(PARAMETERS[name] * 1e9, rel=0.006)
    if name in ACTIVE:
        active = (shape.layer_weights + shape.head_weights) / 1e9
        assert active == pytest.approx(ACTIVE[name], rel=0.05)


PLAIN = replace(
    constants_of(GPUS["h100"]),
    **dict.fromkeys(
        ("gemm_compute", "gemm_memory", "expert_compute", "expert_memory", "attention_compute",
         "attention_memory"), 0.5,
    ),
    **dict.fromkeys(
        ("overlap", "step_us", "request_us", "expert_layer_us", "link_us", "link_gpu_us"), 0
    ),
    **{"layer_us": 10, "link_share": 1, "uneven": 1},
)  # fmt: skip
"""Constants that leave the arithmetic to be done by hand."""


def sheet(gpu, model, layout=None, constants=PLAIN):
    shape = MODELS[model] if isinstance(model, str) else model
    return data_sheet_cost(GPUS[gpu], shape, layout, constants=constants)


def test_one_by_hand():
    """Llama 3 8B on an H100: 15.0 GB at half of 3.35 TB/s, 14 GFLOP a token at half of 989.5."""
    cost = sheet("h100", "llama3-8b")
    layers = 32 * (2 * 4096 * 128 * 40 + 3 * 4096 * 14_336)
    assert cost.weights_fs == pytest.approx(2 * layers / (0.5 * 3.35e12) * 1e15, rel=1e-9)
    head = 2 * 4096 * 128_256 / (0.5 * 3.35e12)
    assert cost.fixed_fs == pytest.approx(head * 1e15 + 32 * 10 * 10**9, rel=1e-9)
    assert cost.token_fs == pytest.approx(2 * layers / (0.5 * 989.5e12) * 1e15, rel=1e-9)
    assert cost.context_fs == pytest.approx(131_072 / (0.5 * 3.35e12) * 1e15, rel=1e-6)
    assert cost.attended_fs == pytest.approx(4 * 32 * 4096 / (0.5 * 989.5e12) * 1e15, rel=1e-4)
    assert (cost.row_fs, cost.pieces, cost.window) == (0, (), 0)


def test_what_the_longer_part_does_not_hide_comes_on_top():
    plain, mixed = sheet("h100", "llama3-8b"), replace(PLAIN, overlap=0.25)
    part = sheet("h100", "llama3-8b", constants=mixed)
    for tokens in (1, 100, 5000):
        rest = [each.round_ns(tokens, 0, 0) - plain.fixed_fs / 1e6 for each in (plain, part)]
        read, work = plain.weights_fs / 1e6, plain.token_fs * tokens / 1e6
        assert rest[1] - rest[0] == pytest.approx(min(read, work) / 4, rel=1e-4)


def test_gpus_divide_and_links_take_time_by_volume_link_and_count():
    """Two sums a layer, each 2 (n - 1) / n times the bytes of a token's 5,120 numbers."""
    whole, four = sheet("a100", "llama2-13b"), sheet("a100", "llama2-13b", Layout(tp=4))
    for name in ("weights_fs", "token_fs", "context_fs", "attended_fs"):
        assert getattr(four, name) == pytest.approx(getattr(whole, name) / 4, rel=1e-6)
    assert four.row_fs == pytest.approx(80 * 2 * 5120 * 1.5 / 300e9 * 1e15, rel=1e-6)
    slow = sheet("a100-pcie", "llama2-13b", Layout(tp=4))
    assert slow.row_fs == pytest.approx(four.row_fs * 300 / 32, rel=1e-6)
    timed = replace(PLAIN, link_us=5, link_gpu_us=1)
    later = sheet("a100", "llama2-13b", Layout(tp=4), timed)
    assert later.fixed_fs - four.fixed_fs == 80 * 9 * 10**9
    assert Layout(tp=16).link(GPUS["h100"]) == "infiniband"
    assert Layout(tp=16).link(GPUS["gb200"]) == "nvswitch"
    staged = sheet("a100", "llama2-13b", Layout(pp=4))  # its parts of a step fill four stages
    assert staged.weights_fs == whole.weights_fs
    assert staged.token_fs == pytest.approx(whole.token_fs / 4, rel=1e-6)


def test_experts_are_read_as_tokens_choose_them():
    """Mixtral: 2 of 8 for one token, 8 (1 - 0.75^x) for x; computed with 2 for each token."""
    cost, shape = sheet("h100", "mixtral-8x7b", Layout(tp=2)), MODELS["mixtral-8x7b"]
    one = 2 * shape.expert_weights / 2 / (0.5 * 3.35e12)
    bare = cost.fixed_fs + cost.weights_fs - 1e15 * 2 * one
    for tokens in (1, 2, 4, 8, 64):
        time = cost.round_ns(tokens, 0, 0) * 1e6 - cost.row_fs * tokens
        assert (time - bare) / 1e15 == pytest.approx(one * touched(8, 2, tokens), rel=1e-6)
    assert touched(8, 2, 1) == pytest.approx(2)
    assert touched(8, 8, 5) == 8
    each = 2 * shape.layer_weights / 2 / (0.5 * 989.5e12) * 1e15
    far = cost.round_ns(60_000, 0, 0) - cost.round_ns(50_000, 0, 0)
    assert far * 1e6 / 10_000 == pytest.approx(each + cost.row_fs, rel=1e-3)
    groups = sheet("h100", "mixtral-8x7b", Layout(dp=2, ep=2))
    assert groups.weights_fs == pytest.approx(2 * cost.weights_fs, rel=1e-6)
    assert groups.context_fs == pytest.approx(cost.context_fs, rel=1e-6)


def test_caches_are_read_by_their_kind():
    """Compressed ones whole on each GPU, windows up to their length, states per request."""
    cost = sheet("h200", "deepseek-v3", Layout(tp=8))
    read = 61 * 576 * 2 / (0.5 * 4.8e12)
    assert cost.context_fs == pytest.approx(read * 1e15, rel=1e-5)
    assert sheet("h200", MODELS["deepseek-v3"].stored(kv="fp8"), Layout(tp=8)).context_fs < (
        0.51 * cost.context_fs
    )
    oss = sheet("h100", "gpt-oss-120b")
    assert (oss.window, oss.window_context_fs) == (128, oss.context_fs)
    same, more = (oss.round_ns(4, 4 * c, c) for c in (128, 129))
    assert more - same == pytest.approx(4 * oss.context_fs / 1e6, abs=1.1)
    glm, qwen = sheet("b200", "glm-5", Layout(tp=8)), sheet("b200", "qwen3.5-397b", Layout(tp=8))
    assert (glm.window, glm.context_fs < glm.window_context_fs) == (2048, True)
    state = 45 * 64 * 128 * 128 * 4 * 2 / 8 / (0.5 * 8e12)
    assert qwen.request_fs == pytest.approx(state * 1e15, rel=1e-5)
    # eight heads of keys on 16 GPUs are kept twice
    wide = sheet("h100", "llama3-70b", Layout(tp=16))
    assert wide.context_fs == sheet("h100", "llama3-70b", Layout(tp=8)).context_fs


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v3", "gpt-oss-120b", "qwen3.5-397b"])
def test_floors_hold_and_dense_models_meet_theirs(name):
    """A dense model's step is the largest of its lines; experts bend the curve below it."""
    shape = MODELS[name].stored("fp8") if name == "llama3-8b" else MODELS[name]
    cost = data_sheet_cost(GPUS["b200"], shape, Layout(tp=8))
    assert floor_faults(cost, steps=50) == []
    lines, unit = floor_of(cost).lines, floor_of(cost).unit
    gaps = []
    for tokens in (1, 16, 200, 2048, 16_384):
        load = tokens, 500 * tokens, 500
        largest = max(line.of([], 0, tokens, 500 * tokens) for line in lines)
        gaps.append(1 - largest / unit / cost.round_ns(*load))
    assert min(gaps) > -1e-6
    assert (max(gaps) < 1e-6) is (shape.experts == 0)
    if shape.experts:  # one token, and many: the ends of the chord
        assert gaps[0] < 0.01
        assert max(gaps) > 0.1


@pytest.mark.parametrize(
    ("gpu", "tp", "model"),
    [("b200", 8, "llama3-8b"), ("b200", 8, "qwen3.5-397b"), ("h100", 1, "gpt-oss-120b")],
)
def test_schedules_are_checked_and_bounds_are_near(gpu, tp, model):
    """With experts as well: rounds have at most 20 requests, and the chord ends there."""
    cost = data_sheet_cost(GPUS[gpu], MODELS[model], Layout(tp=tp))
    instance = orsched.load("pang-100x20").replace(workers=Worker(20, cost, 2048))
    found = orsched.solve(instance, "hybrid")
    assert orsched.check(instance, found.schedule) == []
    assert 0 <= found.gap < 0.05


def test_types_with_peaks_of_their_own_are_faster_and_others_only_smaller():
    shape = MODELS["llama3-8b"]
    plain, fp8, int4 = (sheet("h100", shape.stored(name)) for name in ("bf16", "fp8", "int4"))
    assert fp8.token_fs == pytest.approx(plain.token_fs / 2, rel=1e-6)
    assert int4.token_fs == plain.token_fs  # products have 16 bits
    assert int4.weights_fs < fp8.weights_fs < plain.weights_fs
    assert GPUS["h100"].peak("fp4") == GPUS["h100"].flops
    assert GPUS["b200"].peak("mxfp4") == GPUS["b200"].peak("fp8")
    refused("bf16", shape.stored, "fp7")
    refused("fp8", shape.stored, None, "int4")


@pytest.mark.parametrize(("field", "wrong"), [
    ("gemm_compute", 0), ("gemm_memory", 1.01), ("attention_memory", "0.5"),
    ("layer_us", float("nan")), ("layer_us", -1), ("overlaps", 0.1),
])  # fmt: skip
def test_wrong_constants_are_named(field, wrong):
    error = refused("", constants_of, GPUS["l4"], changed={field: wrong})
    assert field in (error.field, error.problem.split("'")[-2] if "'" in error.problem else "")


def test_constants_of_a_file_and_of_an_engine_replace_those_before(tmp_path):
    path = tmp_path / "c.json"
    given = {"hopper": {"gemm_memory": 0.7, "source": "me"}, "sglang hopper": {"step_us": 1}}
    path.write_text(json.dumps(given))
    mine = constants_of(GPUS["h100"], "sglang-0.5", path=path)
    assert (mine.gemm_memory, mine.step_us) == (0.7, 1)
    assert "me" in mine.source
    assert constants_of(GPUS["l4"], "sglang", path=path).gemm_memory != 0.7
    path.write_text("[]")
    assert refused("c.json", constants_of, GPUS["l4"], path=path).file


@pytest.mark.parametrize(("layout", "field"), [({"tp": 0}, "tp"), ({"pp": 1.5}, "pp"),
                                               ({"tp": 2, "ep": 4}, "ep")])  # fmt: skip
def test_a_wrong_layout_is_named(layout, field):
    assert refused("", Layout, **layout).field == field


@pytest.mark.parametrize(("model", "layout", "words"), [
    ("llama3-8b", {"tp": 3}, "32 attention heads"), ("llama3-8b", {"pp": 33}, "33 is above 32"),
    ("llama3-3b", {"tp": 3}, "8 heads of keys"), ("qwen2.5-7b", {"tp": 7}, "4 heads of keys"),
    ("deepseek-v3", {"tp": 8, "dp": 24}, "2,048 columns of experts"),
    ("llama2-13b", {"tp": 5}, "13,824 columns"),
    ("mixtral-8x7b", {"dp": 16, "ep": 16}, "16 is above 8"),
    ("qwen3.5-397b", {"tp": 32}, "16 heads of linear"),
])  # fmt: skip
def test_what_gpus_cannot_share_evenly_is_refused(model, layout, words):
    """As an engine does, which gives each GPU as many heads and columns as the others."""
    for derive in (data_sheet_cost, fitting):
        error = refused("", derive, GPUS["gb300"], MODELS[model], Layout(**layout))
        assert error.field in layout
        assert words in error.problem


@pytest.mark.parametrize(("field", "change"), [
    ("engine", {"engine": "nope"}), ("engine", {"engine": "hopper"}), ("engine", {"engine": None}),
    ("family", {"gpu": replace(GPUS["h100"], family="nope")}), ("link", {"link": "nope"}),
    ("link", {"gpu": replace(GPUS["h100"], link="nope")}),
])  # fmt: skip
def test_a_name_without_constants_is_refused_and_has_no_default(field, change):
    given = {"gpu": GPUS["h100"], **change}
    assert refused("known", constants_of, **given).field == field
    if "link" not in change:
        given |= {"shape": MODELS["llama3-8b"]}
        assert refused("known", data_sheet_cost, **given).field == field
    assert refused("known", GPUS["h100"].peak, "bf17").field == "product"


def test_a_gpu_of_ones_own_has_five_numbers():
    own = own_gpu("tflops=400,gb=48,gb_s=1200,link_gb_s=64,like=l40s")
    assert (own.flops, own.memory_bytes, own.bandwidth) == (4e14, 48e9, 1.2e12)
    assert own.peak("fp8") == pytest.approx(4e14 * 733 / 362.05)
    for text in ("tflops=400", "tflops=0,gb=48,gb_s=1200,link_gb_s=64,like=l40s",
                 "tflops=4,gb=48,gb_s=1200,link_gb_s=64,like=x"):  # fmt: skip
        assert refused("", own_gpu, text).field == "--gpu"


def test_what_fits_beside_the_weights():
    room = fitting(GPUS["h100"], MODELS["llama3-8b"])
    assert room.kv_tokens == (72 * 10**9 - 2 * MODELS["llama3-8b"].weights) // 131_072
    assert (room.blocks, room.slots(4096)) == (room.kv_tokens // 16, room.kv_tokens // 4096)
    with pytest.raises(InputError, match="at least 2 GPUs") as caught:
        fitting(GPUS["h100"], MODELS["llama3-70b"])
    assert caught.value.field == "tp"
    # every group keeps attention and caches of its own, and its part of the experts
    shape = MODELS["deepseek-v3"]
    one, groups = (fitting(GPUS["h200"], shape, layout).kv_tokens
                   for layout in (Layout(tp=8), Layout(dp=8, ep=8)))  # fmt: skip
    assert groups > 2 * one
    # the state of a request in 45 layers: 64 heads of 128 x 128 numbers of 4 bytes
    shape = MODELS["qwen3.5-397b"]
    none, some = (fitting(GPUS["b200"], shape, Layout(tp=8), requests=n) for n in (0, 100))
    each = shape.kv_numbers * 2 * 4  # eight GPUs have four copies of two heads of keys
    assert none.state_tokens == -(-45 * 64 * 128 * 128 * 4 // each)
    assert some.kv_tokens == none.kv_tokens - 100 * none.state_tokens
    assert none.slots(1000) == none.kv_tokens // (1000 + none.state_tokens)
    for gpu in GPUS.values():
        for shape in MODELS.values():
            count = least_gpus(gpu, shape)
            assert fitting(gpu, shape, Layout(min(count, 8), -(-count // 8))).kv_tokens >= 4095


CONFIG = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14_336, "vocab_size": 128_256,
    "torch_dtype": "bfloat16",
}  # fmt: skip


WRONG = [
    ("hidden_size", None), ("hidden_size", -1), ("num_key_value_heads", 64), ("head_dim", "128"),
    ("num_local_experts", 8.5), ("kv_lora_rank", -1), ("architectures", ["GPTNeoXForCausalLM"]),
    ("model_type", "starcoder2"), ("layer_types", ["full_attention", "chunked_attention"]),
    ("layer_types", ["full_attention"] * 3), ("attn_type_list", [0, 1]),
    ("index_topk_freq", 4), ("indexer_types", ["full", "shared"]),
    ("torch_dtype", "float8_e4m3fn"), ("num_kv_shared_layers", 4), ("quantization", {"bits": 4}),
    ("quantization_config", 8),
]  # fmt: skip
WRONG_QUANTIZATION = [
    ("quant_method", "bitsandbytes"), ("quant_method", None), ("bits", None), ("group_size", 0),
    ("lm_head", True), ("dynamic", {"x": {}}), ("modules_to_not_convert", ["things"]),
    ("modules_to_not_convert", ["model.layers.3.self_attn"]), ("widths", 3),
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
    ({"text_config": {}, "vision_config": {"depth": 1}}, "vision_config.hidden_size"),
    ({"num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": 3}, "mlp_only_layers"),
    ({"num_experts": 8}, "num_experts_per_tok"), ({"kv_lora_rank": 512}, "qk_rope_head_dim"),
    ({"full_attention_interval": 4}, "linear_key_head_dim"),
    ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "X"}},
     "quantization_config.quant_algo"),
    ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}}},
     "quantization_config.config_groups"),
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
    assert shape.formats.words == "weights of 8 bits (gptq)"
    assert shape.weight_bytes == plain.layer_weights + 4 * plain.head_weights
    assert fitting(GPUS["rtx4090"], shape).kv_tokens == pytest.approx(225_000, rel=0.001)
    slow, fast = (data_sheet_cost(GPUS["rtx4090"], each) for each in (plain, shape))
    assert fast.weights_fs < slow.weights_fs
    assert fast.token_fs == slow.token_fs  # products have 16 bits
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    kept = {"quantization_config": awq | {"modules_to_not_convert": ["lm_head"]}}
    assert shape_of(QWEN_GPTQ | kept).formats.ffn.bits == 4 + 20 / 128


def test_windows_experts_and_parts_in_16_bits_are_read():
    window = {"sliding_window": 4096, "max_position_embeddings": 32_768}
    assert shape_of(CONFIG | window).windowed == 32
    some = {"use_sliding_window": True, "max_window_layers": 28}
    assert shape_of(CONFIG | window | some).windowed == 4
    mixture = MODELS["gpt-oss-120b"]
    assert (mixture.windowed, mixture.formats.attention.bits) == (18, 16)
    assert mixture.formats.experts.bits == 4.25
    kimi = MODELS["kimi-k2.5"].formats
    assert (kimi.attention.bits, kimi.ffn.bits, kimi.experts.bits) == (16, 16, 4.5)
    assert MODELS["qwen3.5-397b"].linear == 45
    assert MODELS["deepseek-v3"].dense_layers == 3
    skipped = {"quantization_config": {
        "quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8},
        "ignore": [f"model.layers.{n}.self_attn.*" for n in range(32)] + ["lm_head"],
    }}  # fmt: skip
    formats = shape_of(CONFIG | skipped).formats
    assert (formats.attention.bits, formats.ffn.bits, formats.cache_bits) == (16, 4.5, 8)
    inputs = {"num_bits": 8, "type": "int"}
    eight = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": inputs, "input_activations": inputs}}}  # fmt: skip
    assert shape_of(CONFIG | {"quantization_config": eight}).formats.ffn == (8, "int8")


def test_what_a_config_leaves_unsaid():
    """A family may tie its output layer; heads of keys are those of queries."""
    assert shape_of(CONFIG | {"model_type": "gemma"}).tied
    assert not shape_of(CONFIG).tied
    refused("vocab_size", shape_of, {key: CONFIG[key] for key in CONFIG if key != "vocab_size"})
    values = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"}
    assert shape_of(values).kv_heads == 32
    assert shape_of(values | {"head_dim": 64}).head_size == 64


def test_fields_are_of_one_kind_and_short_names_stand_for_models_of_the_catalogue():
    used, irrelevant = config_fields.USED, config_fields.IRRELEVANT
    assert not used & irrelevant
    assert not config_fields.REFUSED.keys() & (used | irrelevant)
    assert set(SHORT.values()) <= set(MODELS)
