"""Fields of a model's ``config.json``: used, known to change nothing here, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.columns import shown, whole_number
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection

FAMILIES = {
    "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma": "Gemma",
    "phi3": "Phi3", "olmo": "Olmo", "olmo2": "Olmo2", "granite": "Granite", "cohere": "Cohere",
    "stablelm": "StableLm", "smollm3": "SmolLM3", "glm": "Glm", "glm4": "Glm4",
    "seed_oss": "SeedOss", "internlm2": "InternLM2", "baichuan": "Baichuan", "minicpm": "MiniCPM",
}  # fmt: skip
"""Decoders with gated feed-forward layers of three matrices: model type -> name of the class."""

TIED_BY_DEFAULT = ("gemma", "cohere")
"""Families whose output layer is the embedding unless the file says otherwise."""

USED = frozenset({
    "architectures", "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads",
    "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size", "tie_word_embeddings",
    "torch_dtype", "dtype", "quantization_config", "sliding_window", "use_sliding_window",
    "layer_types", "max_position_embeddings",
})  # fmt: skip

MEASURE = (
    "measure its steps (orsched calibrate --template) or its kernels (orsched cost --from-profile)"
)
REFUSED = {
    **dict.fromkeys(
        ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts",
         "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts"),
        "a data sheet has no times of models with experts",
    ),
    **dict.fromkeys(
        ("kv_lora_rank", "q_lora_rank"), "a data sheet has no times of compressed caches"
    ),
    **dict.fromkeys(
        ("text_config", "vision_config", "audio_config", "is_encoder_decoder"),
        "a data sheet has no times of models beyond one decoder of text",
    ),
    **dict.fromkeys(
        ("quantization", "compression_config"), "this form of quantised weights is not known"
    ),
    "num_nextn_predict_layers": "a data sheet has no times of layers that predict further tokens",
}  # fmt: skip
"""Fields that change sizes or times in a way that the shape does not hold, and why."""

IRRELEVANT = frozenset({
    # names and versions
    "_name_or_path", "transformers_version", "auto_map", "unsloth_fixed", "unsloth_version",
    "tokenizer_class", "_attn_implementation", "attn_implementation",
    "_from_model_config", "id2label", "label2id", "problem_type",
    "task_specific_params", "finetuning_task", "prefix", "pruned_heads", "torchscript",
    # tokens and generation
    "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id",
    "decoder_start_token_id", "max_length", "min_length", "do_sample", "early_stopping",
    "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p",
    "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
    "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens", "use_cache", "return_dict", "output_attentions",
    "output_hidden_states", "chunk_size_feed_forward",
    # positions, norms, activations and biases: below a thousandth of weights and time
    "rope_theta", "rope_scaling", "rope_parameters", "rope_interleaved", "rope_ratio",
    "rotary_dim", "partial_rotary_factor", "original_max_position_embeddings",
    "max_sequence_length", "model_max_length", "seq_length", "max_window_layers",
    "no_rope_layers", "no_rope_layer_interval", "rms_norm_eps", "layer_norm_eps", "norm_eps",
    "layernorm_epsilon", "hidden_act", "hidden_activation", "attention_bias", "mlp_bias",
    "qkv_bias", "use_qkv_bias", "bias", "attention_out_bias", "use_qk_norm", "qk_layernorm",
    "use_parallel_residual", "clip_qkv", "embedding_multiplier", "logits_scaling",
    "residual_multiplier", "attention_multiplier", "logit_scale", "scale_emb", "scale_depth",
    "dim_model_base", "z_loss_weight",
    # training
    "initializer_range", "attention_dropout", "hidden_dropout", "residual_dropout", "resid_pdrop",
    "embd_pdrop", "gradient_checkpointing", "pretraining_tp", "use_bfloat16", "tf_legacy_loss",
})  # fmt: skip
"""Fields that change neither the sizes nor the times that a data sheet gives."""

_DTYPES = ("bfloat16", "float16", "float32")
"""Types that engines serve in 16 bits."""

METHODS = ("gptq", "awq")
"""Quantised weights that are read in few bits and multiplied in 16."""

_QUANTISATION = frozenset({
    "desc_act", "sym", "damp_percent", "static_groups", "true_sequential", "model_name_or_path",
    "model_file_base_name", "version", "zero_point", "checkpoint_format", "meta", "dataset",
    "tokenizer", "batch_size", "block_name_to_quantize", "cache_block_outputs", "exllama_config",
    "max_input_length", "model_seqlen", "module_name_preceding_first_block", "pad_token_id",
    "use_cuda_fp16", "use_exllama", "backend", "format", "pack_dtype", "is_marlin_format",
    "fuse_max_seq_len", "do_fuse", "disable_exllama",
})  # fmt: skip


def require_fields(values: dict[str, Any]) -> None:
    """Raise ``InputError`` for the first field that the shape of a model does not hold.

    A field that is null, false, 0 or empty is off.
    """
    for field, problem in REFUSED.items():
        if values.get(field):
            raise InputError(problem, field=field, remedy=MEASURE)
    _require_family(values)
    _require_full_attention(values)
    dtype = values.get("dtype") or values.get("torch_dtype")
    if dtype is not None and dtype not in _DTYPES:
        field = "dtype" if values.get("dtype") else "torch_dtype"
        raise InputError(
            f"{shown(dtype)} is not a type of 16 bits", field=field, remedy=", ".join(_DTYPES)
        )
    _require_known(values, USED | IRRELEVANT, "")


def _require_known(values: dict[str, Any], known: Collection[str], prefix: str) -> None:
    for field, value in values.items():
        if value and field not in known:
            raise InputError(
                "it is not known whether this field changes sizes or times",
                field=f"{prefix}{field}",
                remedy="remove it if it changes neither, else give --model with a shape of the "
                "catalogue",
            )


def _require_family(values: dict[str, Any]) -> None:
    kind, classes = values.get("model_type"), values.get("architectures")
    named = classes[0] if isinstance(classes, list) and classes else None
    known = kind in FAMILIES or named in {f"{name}ForCausalLM" for name in FAMILIES.values()}
    if (kind or named) and not known:
        raise InputError(
            f"{shown(named or kind)} is not a known decoder with gated feed-forward layers",
            field="architectures" if named else "model_type",
            remedy=f"{MEASURE}; known model types: {', '.join(FAMILIES)}",
        )


def _require_full_attention(values: dict[str, Any]) -> None:
    """Refuse windows that are shorter than the longest context: caches and reads stop growing."""
    window, longest = values.get("sliding_window"), values.get("max_position_embeddings")
    if window and values.get("use_sliding_window", True):
        window = whole_number(window, "sliding_window", minimum=1)
        if longest is None or window < whole_number(longest, "max_position_embeddings"):
            raise InputError(
                f"a data sheet has no times of attention over the last {window} tokens",
                field="sliding_window",
                remedy=f"set it to null for contexts of up to {window} tokens; or {MEASURE}",
            )
    kinds = values.get("layer_types") or ()
    other = [kind for kind in kinds if kind != "full_attention"]
    if other:
        raise InputError(
            f"a data sheet has no times of layers of the type {shown(other[0])}",
            field="layer_types",
            remedy=MEASURE,
        )


def layer_bits(values: dict[str, Any]) -> tuple[float, str]:
    """Return the bits of a number in the layers' matrices, and the method in words.

    GPTQ and AWQ store a scale of 16 bits and a zero point for each group of numbers; embeddings
    and the output layer stay in 16 bits. Raises ``InputError`` for other quantised weights.
    """
    given = values.get("quantization_config")
    if not given:
        return 16, ""
    at = "quantization_config"
    if not isinstance(given, dict):
        raise InputError(f"{shown(given)} is not an object", field=at, remedy="null, or an object")
    method = given.get("quant_method")
    if method not in METHODS:
        raise InputError(
            f"weights quantised by {shown(method)} are not known here",
            field=f"{at}.quant_method",
            remedy=f"the known methods are {' and '.join(METHODS)}; {MEASURE}",
        )
    used = {"quant_method", "bits", "group_size"}
    if given.get("modules_to_not_convert") == ["lm_head"]:
        used.add("modules_to_not_convert")
    for field in ("lm_head", "dynamic", "modules_to_not_convert", "modules_in_block_to_quantize"):
        if given.get(field) and field not in used:
            raise InputError(
                "layers of several widths are not known here", field=f"{at}.{field}", remedy=MEASURE
            )
    _require_known(given, used | _QUANTISATION, f"{at}.")
    bits = whole_number(given.get("bits"), f"{at}.bits", minimum=2, maximum=8)
    group = given.get("group_size")
    whole = group in (None, -1)  # one group for each column
    size = 0 if whole else whole_number(group, f"{at}.group_size", minimum=1)
    return bits + ((16 + bits) / size if size else 0), f"weights of {bits} bits ({method})"
