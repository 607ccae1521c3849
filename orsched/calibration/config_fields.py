"""The fields of a ``config.json``: which are used, change nothing, or are refused."""

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
    "mixtral": "Mixtral", "qwen3_moe": "Qwen3Moe", "gpt_oss": "GptOss", "minimax_m2": "MiniMaxM2",
    "minimax": "MiniMaxM2", "deepseek_v3": "DeepseekV3", "deepseek_v32": "DeepseekV32",
    "kimi_k2": "KimiK2", "kimi_k25": "KimiK25", "glm_moe_dsa": "GlmMoeDsa", "glm4_moe": "Glm4Moe",
    "qwen3_next": "Qwen3Next", "qwen3_5_moe": "Qwen3_5Moe", "qwen3_5_moe_text": "Qwen3_5Moe",
    "qwen3_5": "Qwen3_5", "qwen3_5_text": "Qwen3_5",
}  # fmt: skip
"""Decoders with gated feed-forward layers of three matrices: model type -> name of the class."""

TIED_BY_DEFAULT = ("gemma", "cohere")
"""Families whose output layer is the embedding unless the file says otherwise."""

USED = frozenset({
    "architectures", "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads",
    "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size", "tie_word_embeddings",
    "torch_dtype", "dtype", "quantization_config", "sliding_window", "use_sliding_window",
    "layer_types", "max_position_embeddings", "max_window_layers", "text_config", "vision_config",
    # experts
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts",
    "num_experts_per_tok", "experts_per_token", "moe_intermediate_size", "n_shared_experts",
    "shared_expert_intermediate_size", "shared_intermediate_size", "first_k_dense_replace",
    "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "mlp_only_layers",
    # compressed caches, sparse and linear attention
    "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "index_topk", "index_n_heads", "index_head_dim", "attn_output_gate", "full_attention_interval",
    "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads",
    "linear_value_head_dim", "linear_conv_kernel_dim", "attn_type_list",
})  # fmt: skip

MEASURE = (
    "measure its steps (orsched calibrate --template) or its kernels (orsched cost --from-profile)"
)
REFUSED = {
    **dict.fromkeys(
        ("audio_config", "is_encoder_decoder"),
        "a data sheet has no times of models beyond one decoder of text",
    ),
    **dict.fromkeys(
        ("quantization", "compression_config"), "this form of quantised weights is not known"
    ),
}
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
    "max_sequence_length", "model_max_length", "seq_length",
    "no_rope_layers", "no_rope_layer_interval", "rms_norm_eps", "layer_norm_eps", "norm_eps",
    "layernorm_epsilon", "hidden_act", "hidden_activation", "attention_bias", "mlp_bias",
    "qkv_bias", "use_qkv_bias", "bias", "attention_out_bias", "use_qk_norm", "qk_layernorm",
    "use_parallel_residual", "qk_head_dim", "rope_interleave", "clip_qkv",
    "embedding_multiplier", "logits_scaling",
    "residual_multiplier", "attention_multiplier", "logit_scale", "scale_emb", "scale_depth",
    "dim_model_base", "z_loss_weight",
    # which experts a token chooses, not how many
    "aux_loss_alpha", "ep_size", "n_group", "norm_topk_prob", "num_expert_group",
    "output_router_logits", "routed_scaling_factor", "router_aux_loss_coef", "scoring_func",
    "router_jitter_noise", "seq_aux", "topk_group", "topk_method", "use_grouped_topk",
    "use_routing_bias", "moe_router_use_sigmoid", "shared_moe_mode", "swiglu_limit",
    "swiglu_alpha", "initial_context_length", "attn_temperature", "qk_norm_type",
    "max_model_len", "moe_router_dtype", "indexer_rope_interleave", "index_topk_freq",
    "mamba_ssm_dtype", "output_gate_type", "attention_bias_type",
    # layers that predict further tokens: engines load them for speculation alone
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
    "num_mtp_modules", "mtp_transformer_layers", "use_mtp", "mtp_loss_weight",
    # tokens of pictures
    "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id",
    "media_placeholder_token_id", "video_placeholder", "use_unified_vision_chunk", "ignore_index",
    # training
    "initializer_range", "attention_dropout", "hidden_dropout", "residual_dropout", "resid_pdrop",
    "embd_pdrop", "gradient_checkpointing", "pretraining_tp", "use_bfloat16", "tf_legacy_loss",
})  # fmt: skip
"""Fields that change neither the sizes nor the times that a data sheet gives."""

_DTYPES = ("bfloat16", "float16", "float32")  # types that engines serve in 16 bits


def require_fields(values: dict[str, Any]) -> None:
    """Raise ``InputError`` for the first field that the shape of a model does not hold.

    A field that is null, false, 0 or empty is off.
    """
    for field, problem in REFUSED.items():
        if values.get(field):
            raise InputError(problem, field=field, remedy=MEASURE)
    _require_family(values)
    dtype = values.get("dtype") or values.get("torch_dtype")
    if dtype is not None and dtype not in _DTYPES:
        field = "dtype" if values.get("dtype") else "torch_dtype"
        raise InputError(
            f"{shown(dtype)} is not a type of 16 bits", field=field, remedy=", ".join(_DTYPES)
        )
    require_known(values, USED | IRRELEVANT, "")


def require_known(values: dict[str, Any], known: Collection[str], prefix: str) -> None:
    """Raise ``InputError`` for the first field that is on and not known."""
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
    names = {f"{name}For{what}" for name in FAMILIES.values() for what in _HEADS}
    if (kind or named) and kind not in FAMILIES and named not in names:
        raise InputError(
            f"{shown(named or kind)} is not a known decoder with gated feed-forward layers",
            field="architectures" if named else "model_type",
            remedy=f"{MEASURE}; known model types: {', '.join(FAMILIES)}",
        )


_HEADS = ("CausalLM", "ConditionalGeneration")


def layer_kinds(values: dict[str, Any], layers: int) -> list[str]:
    """Return the kind of attention of each layer: ``full``, ``window`` or ``linear``.

    Raises ``InputError`` for other kinds, or a number of them that is not that of the layers.
    """
    given, interval = values.get("layer_types"), values.get("full_attention_interval")
    if values.get("attn_type_list") and set(values["attn_type_list"]) != {1}:
        raise InputError("only 1, full attention, is known", field="attn_type_list", remedy=MEASURE)
    if given:
        kinds = [_KINDS.get(kind) if isinstance(kind, str) else None for kind in given]
        if None in kinds:
            raise InputError(
                f"layers of the type {shown(given[kinds.index(None)])} have no times here",
                field="layer_types",
                remedy=f"{', '.join(_KINDS)}; {MEASURE}",
            )
        if len(kinds) != layers:
            raise InputError(
                f"{len(kinds)} types for {layers} layers",
                field="layer_types",
                remedy="one type for each of num_hidden_layers",
            )
        return [kind or "" for kind in kinds]
    if interval:
        every = whole_number(interval, "full_attention_interval", minimum=1)
        return ["full" if (layer + 1) % every == 0 else "linear" for layer in range(layers)]
    if window_of(values) is None:
        return ["full"] * layers
    first = values.get("max_window_layers") or 0
    full = whole_number(first, "max_window_layers") if values.get("use_sliding_window") else 0
    return ["full" if layer < full else "window" for layer in range(layers)]


_KINDS = {
    "full_attention": "full", "sliding_attention": "window", "linear_attention": "linear",
    "deepseek_sparse_attention": "full",
}  # fmt: skip


def window_of(values: dict[str, Any]) -> int | None:
    """Return the tokens that layers with a window see; None where contexts are never longer."""
    window, longest = values.get("sliding_window"), values.get("max_position_embeddings")
    if not window or not values.get("use_sliding_window", True):
        return None
    window = whole_number(window, "sliding_window", minimum=1, maximum=2**30)
    if longest is not None and window >= whole_number(longest, "max_position_embeddings"):
        return None
    return window


def dense_layers(values: dict[str, Any], layers: int) -> int:
    """Return how many layers have no experts, by the rules of DeepSeek, Qwen and Llama 4."""
    first = whole_number(values.get("first_k_dense_replace") or 0, "first_k_dense_replace")
    every, interleave, freq = (
        whole_number(values.get(name) or 1, name, minimum=1)
        for name in ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq")
    )
    alone = values.get("mlp_only_layers") or []
    if not isinstance(alone, list):
        raise InputError("is not a list", field="mlp_only_layers", remedy="a list of layers")
    return sum(
        layer < first
        or layer in alone
        or (layer + 1) % every > 0
        or (layer + 1) % interleave > 0
        or layer % freq > 0
        for layer in range(layers)
    )
