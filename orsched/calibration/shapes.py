"""Shapes of public models, from their published ``config.json``, and what a token costs in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from orsched.common.columns import shown, whole_number
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


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

_DTYPES = ("bfloat16", "float16", "float32")  # types that engines serve in 16 bits
METHODS = ("gptq", "awq")  # quantised weights that are read in few bits and multiplied in 16

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


_FIELDS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocabulary": "vocab_size",
}
_MOST = 2**24


@dataclass(frozen=True)
class ModelShape:
    """A decoder of the LLaMA family: gated feed-forward layers, grouped heads of keys.

    Sizes are those of ``config.json``.
    """

    name: str  # in the catalogue
    title: str  # as its makers call it
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    head_size: int  # numbers of a head
    tied: bool = False  # whether the output layer is the embedding
    source: str = ""  # where the numbers are from
    layer_bits: float = 16  # bits of a number in the layers' matrices; all else has 16

    @property
    def layer_weights(self) -> int:
        """Numbers in the layers' matrices: what every token is multiplied with."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.ffn)

    @property
    def head_weights(self) -> int:
        """Numbers in the output layer."""
        return self.hidden * self.vocabulary

    @property
    def weights(self) -> int:
        """All numbers; those of norms and biases, below a thousandth, are left out."""
        return self.layer_weights + self.head_weights * (1 if self.tied else 2)

    @property
    def read_bytes(self) -> int:
        """Bytes of the layers and the output layer, which every step reads."""
        return round(self.layer_weights * self.layer_bits / 8) + 2 * self.head_weights

    @property
    def weight_bytes(self) -> int:
        """Bytes of all numbers."""
        return self.read_bytes + (0 if self.tied else 2 * self.head_weights)

    @property
    def kv_numbers(self) -> int:
        """Numbers that a token leaves in the caches."""
        return 2 * self.layers * self.kv_heads * self.head_size

    @property
    def attended_flops(self) -> int:
        """Arithmetic of one token attending to one other, in all layers."""
        return 4 * self.layers * self.heads * self.head_size

    @classmethod
    def from_config(cls, values: dict[str, Any], name: str, source: str) -> Self:
        """Read a ``config.json`` of the LLaMA family (also Mistral, Qwen 2 and 3).

        Every field is used, known to change nothing (``config_fields.IRRELEVANT``), or refused.
        """
        require_fields(values)
        bits, weights = layer_bits(values)
        found = {}
        for own, theirs in _FIELDS.items():
            if theirs not in values:
                raise InputError(
                    "the field is missing",
                    field=theirs,
                    remedy="give the config.json of a decoder of the LLaMA family",
                )
            found[own] = whole_number(values[theirs], theirs, minimum=1, maximum=_MOST)
        heads = found["heads"]
        given = values.get("num_key_value_heads")
        kv_heads = heads if given is None else given
        size = values.get("head_dim") or found["hidden"] // heads
        tied = values.get("model_type") in TIED_BY_DEFAULT
        return cls(
            name=name,
            title=name,
            kv_heads=whole_number(kv_heads, "num_key_value_heads", minimum=1, maximum=heads),
            head_size=whole_number(size, "head_dim", minimum=1, maximum=_MOST),
            tied=bool(values.get("tie_word_embeddings", tied)),
            source=f"{source}, {weights}" if weights else source,
            layer_bits=bits,
            **found,
        )


def read_config(path: Path) -> ModelShape:
    """Return the shape of a model's ``config.json``, or its folder's; raises as ``from_config``."""
    from orsched.files.text import locating, parse_json, read_text

    file = path / "config.json" if path.is_dir() else path
    with locating(file):
        values = parse_json(read_text(file))
        if not isinstance(values, dict):
            raise InputError("is not an object", remedy="give a model's config.json")
        return ModelShape.from_config(values, file.resolve().parent.name, "config.json")


_ROWS = (
    # name, title, repository, layers, hidden, heads, kv_heads, ffn, vocabulary, tied
    ("llama3-1b", "Llama 3.2 1B", "meta-llama/Llama-3.2-1B", 16, 2048, 32, 8, 8192, 128_256, True),
    ("llama3-3b", "Llama 3.2 3B", "meta-llama/Llama-3.2-3B", 28, 3072, 24, 8, 8192, 128_256, True),
    ("llama3-8b", "Llama 3.1 8B", "meta-llama/Llama-3.1-8B",
     32, 4096, 32, 8, 14_336, 128_256, False),
    ("llama3-70b", "Llama 3.1 70B", "meta-llama/Llama-3.1-70B",
     80, 8192, 64, 8, 28_672, 128_256, False),
    ("llama2-7b", "Llama 2 7B", "meta-llama/Llama-2-7b-hf",
     32, 4096, 32, 32, 11_008, 32_000, False),
    ("llama2-13b", "Llama 2 13B", "meta-llama/Llama-2-13b-hf",
     40, 5120, 40, 40, 13_824, 32_000, False),
    ("llama-65b", "LLaMA 65B", "huggyllama/llama-65b", 80, 8192, 64, 64, 22_016, 32_000, False),
    ("mistral-7b", "Mistral 7B v0.3", "mistralai/Mistral-7B-v0.3",
     32, 4096, 32, 8, 14_336, 32_768, False),
    ("qwen2.5-7b", "Qwen 2.5 7B", "Qwen/Qwen2.5-7B", 28, 3584, 28, 4, 18_944, 152_064, False),
    ("qwen2.5-14b", "Qwen 2.5 14B", "Qwen/Qwen2.5-14B", 48, 5120, 40, 8, 13_824, 152_064, False),
    ("qwen2.5-32b", "Qwen 2.5 32B", "Qwen/Qwen2.5-32B", 64, 5120, 40, 8, 27_648, 152_064, False),
    ("qwen2.5-72b", "Qwen 2.5 72B", "Qwen/Qwen2.5-72B", 80, 8192, 64, 8, 29_568, 152_064, False),
)  # fmt: skip

MODELS = {
    name: ModelShape(
        name, title, *(layers, hidden, heads, kv_heads, ffn, vocabulary), hidden // heads, tied,
        f"config.json of {source}, huggingface.co, November 2026",
    )
    for name, title, source, layers, hidden, heads, kv_heads, ffn, vocabulary, tied in _ROWS
}  # fmt: skip
"""By name."""

SHORT = {
    "1b": "llama3-1b",
    "3b": "llama3-3b",
    "8b": "llama3-8b",
    "13b": "llama2-13b",
    "70b": "llama3-70b",
}
"""The names of the runner's presets, and sizes, stand for these models."""
