"""Shapes of public models, from their published ``config.json``, and what a token costs in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self

from orsched.calibration.config_fields import (
    TIED_BY_DEFAULT,
    dense_layers,
    layer_kinds,
    require_fields,
    window_of,
)
from orsched.calibration.weight_formats import IN_16_BITS, Formats, read_formats, with_weights
from orsched.common.columns import whole_number
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_FIELDS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "vocabulary": "vocab_size",
}
_MOST = 2**24
STATE_BYTES = 4  # of a number in the state of linear attention, which is kept in 32 bits


@dataclass(frozen=True)
class ModelShape:
    """A decoder with gated feed-forward layers, of which some may be mixtures of experts.

    Sizes are those of ``config.json``. Attention has grouped heads of keys, or, with ``latent``,
    compressed caches. Of its layers, ``windowed`` see the last ``window`` tokens and ``linear``
    keep a state in place of a cache. With ``index_heads``, each token attends to the ``window``
    tokens that an index chooses, in all layers.
    """

    name: str  # in the catalogue
    title: str  # as its makers call it
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int  # of layers without experts
    vocabulary: int
    head_size: int  # numbers of a head
    tied: bool = False  # whether the output layer is the embedding
    source: str = ""  # where the numbers are from
    formats: Formats = IN_16_BITS
    gated: bool = False  # whether queries have a gate of their size
    latent: int = 0  # numbers of the compressed keys and values of a token
    rope: int = 0  # numbers of keys beside them
    query_rank: int = 0  # of compressed queries; 0: they are not
    value_size: int = 0  # numbers of a head's values, where caches are compressed
    window: int = 0
    windowed: int = 0
    linear: int = 0
    linear_keys: int = 0  # numbers of the keys of a linear layer, all heads
    linear_values: int = 0
    key_size: int = 0  # of a head of keys of a linear layer
    index_heads: int = 0
    index_size: int = 0
    experts: int = 0
    chosen: int = 0  # experts of a token
    expert_ffn: int = 0
    shared_ffn: int = 0  # of the experts that every token passes
    dense_layers: int = 0  # layers without experts
    more: int = 0  # numbers beyond the decoder, such as those that read pictures

    @property
    def expert_layers(self) -> int:
        """Layers that are mixtures of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def attention_weights(self) -> int:
        """Numbers in the matrices around attention, of all layers."""
        size, hidden = self.head_size, self.hidden
        if self.latent:
            query = self.heads * (size + self.rope)
            rank = self.query_rank
            queries = hidden * rank + rank * query if rank else hidden * query
            keys = hidden * (self.latent + self.rope)
            keys += self.latent * self.heads * (size + self.value_size)
            index = self.index_size * (self.index_heads * (rank or hidden) + hidden)
            full = queries + keys + index + self.heads * self.value_size * hidden
        else:
            full = hidden * size * (self.heads * (3 if self.gated else 2) + 2 * self.kv_heads)
        linear = hidden * (2 * self.linear_keys + 3 * self.linear_values)
        return (self.layers - self.linear) * full + self.linear * linear

    @property
    def ffn_weights(self) -> int:
        """Numbers of feed-forward layers that all tokens pass, and of those that choose experts."""
        dense = self.layers - self.expert_layers
        each = 3 * self.hidden * self.shared_ffn + self.hidden * self.experts
        return dense * 3 * self.hidden * self.ffn + self.expert_layers * each

    @property
    def expert_weights(self) -> int:
        """Numbers of one expert, in all layers that have experts."""
        return self.expert_layers * 3 * self.hidden * self.expert_ffn

    @property
    def layer_weights(self) -> int:
        """Numbers in the layers that every token is multiplied with: of experts the chosen ones."""
        return self.attention_weights + self.ffn_weights + self.chosen * self.expert_weights

    @property
    def head_weights(self) -> int:
        """Numbers in the output layer."""
        return self.hidden * self.vocabulary

    @property
    def weights(self) -> int:
        """All numbers; those of norms and biases, below a thousandth, are left out."""
        layers = self.attention_weights + self.ffn_weights + self.experts * self.expert_weights
        return layers + self.head_weights * (1 if self.tied else 2) + self.more

    @property
    def read_bytes(self) -> int:
        """Bytes of the layers, with all experts, and of the output layer."""
        bits = self.attention_weights * self.formats.attention.bits
        bits += self.ffn_weights * self.formats.ffn.bits
        bits += self.experts * self.expert_weights * self.formats.experts.bits
        return round(bits / 8) + 2 * self.head_weights

    @property
    def weight_bytes(self) -> int:
        """Bytes of all numbers."""
        return self.read_bytes + 2 * ((0 if self.tied else self.head_weights) + self.more)

    @property
    def kv_numbers(self) -> int:
        """Numbers that a token leaves in the caches that grow: not linear ones, nor windows."""
        growing = self.layers - self.linear - self.windowed
        return (growing or self.layers) * self.token_numbers

    @property
    def token_numbers(self) -> int:
        """Numbers that a token leaves in the cache of one layer."""
        if self.latent:
            return self.latent + self.rope + self.index_size
        return 2 * self.kv_heads * self.head_size

    @property
    def attended_flops(self) -> int:
        """Arithmetic of a prompt token attending to one other, in layers without a window."""
        return (self.layers - self.linear - self.windowed) * self.layer_flops

    @property
    def layer_flops(self) -> int:
        """Arithmetic of one token of a prompt attending to one other, in one layer."""
        values = self.value_size if self.latent else self.head_size
        return 2 * self.heads * (self.head_size + self.rope + values)

    @property
    def state_bytes(self) -> int:
        """Bytes of the state that a request has in linear layers."""
        return self.linear * self.linear_values * self.key_size * STATE_BYTES

    def stored(self, weights: str | None = None, kv: str | None = None) -> Self:
        """Return the shape with weights or caches in the format of a name; ``InputError``."""
        return replace(self, formats=with_weights(self.formats, weights, kv))

    @classmethod
    def from_config(cls, values: dict[str, Any], name: str, source: str) -> Self:
        """Read a ``config.json`` of one of the families in ``config_fields``.

        Every field is used, known to change nothing (``config_fields.IRRELEVANT``), or refused.
        """
        text = values.get("text_config")
        vision = _vision_numbers(values.get("vision_config"))
        if isinstance(text, dict):
            values = {k: v for k, v in values.items() if k != "text_config"} | text
        require_fields(values)
        found = {own: _size(values, theirs) for own, theirs in _FIELDS.items()}
        heads, layers = found["heads"], found["layers"]
        experts = _experts(values, layers)
        given = values.get("num_key_value_heads")
        kinds = layer_kinds(values, layers)
        formats = read_formats(values, layers)
        size = values.get("head_dim") or found["hidden"] // heads
        tied = values.get("model_type") in TIED_BY_DEFAULT
        sizes = _latent(values) or {
            "head_size": whole_number(size, "head_dim", minimum=1, maximum=_MOST)
        }
        whole = not experts or experts["dense_layers"]
        return cls(
            name=name,
            title=name,
            kv_heads=whole_number(
                heads if given is None else given, "num_key_value_heads", minimum=1, maximum=heads
            ),
            ffn=_size(values, "intermediate_size") if whole else 0,
            tied=bool(values.get("tie_word_embeddings", tied)),
            source=source,
            formats=formats,
            gated=bool(values.get("attn_output_gate", values.get("model_type") == "qwen3_next")),
            windowed=kinds.count("window"),
            more=vision,
            **{"window": (window_of(values) or 0) if "window" in kinds else 0, **sizes},
            **_linear(values, kinds.count("linear")),
            **experts,
            **found,
        )


def _size(values: dict[str, Any], field: str) -> int:
    if values.get(field) is None:
        remedy = "give the config.json of a known family"
        raise InputError("the field is missing", field=field, remedy=remedy)
    return whole_number(values[field], field, minimum=1, maximum=_MOST)


def _latent(values: dict[str, Any]) -> dict[str, int]:
    """Return the sizes of compressed caches, and of the index over them; none without."""
    if not values.get("kv_lora_rank"):
        return {}
    found = {
        "latent": _size(values, "kv_lora_rank"),
        "rope": _size(values, "qk_rope_head_dim"),
        "head_size": _size(values, "qk_nope_head_dim"),
        "value_size": _size(values, "v_head_dim"),
        "query_rank": _size(values, "q_lora_rank") if values.get("q_lora_rank") else 0,
    }
    if values.get("index_topk"):
        index = {"window": "topk", "index_heads": "n_heads", "index_size": "head_dim"}
        found |= {own: _size(values, f"index_{theirs}") for own, theirs in index.items()}
    return found


def _linear(values: dict[str, Any], layers: int) -> dict[str, int]:
    """Return the sizes of layers with linear attention; none without."""
    if not layers:
        return {}
    size = _size(values, "linear_key_head_dim")
    keys = size * _size(values, "linear_num_key_heads")
    numbers = _size(values, "linear_value_head_dim") * _size(values, "linear_num_value_heads")
    return {"linear": layers, "key_size": size, "linear_keys": keys, "linear_values": numbers}


_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "experts_per_token")


def _experts(values: dict[str, Any], layers: int) -> dict[str, int]:
    """Return the sizes of experts; none without."""
    field = next((name for name in _EXPERTS if values.get(name)), None)
    if field is None:
        return {}
    experts = _size(values, field)
    chosen = next((name for name in _CHOSEN if values.get(name)), _CHOSEN[0])
    own = "moe_intermediate_size" if values.get("moe_intermediate_size") else "intermediate_size"
    size = _size(values, own)
    shared = values.get("shared_expert_intermediate_size") or values.get("shared_intermediate_size")
    if not shared:
        shared = size * whole_number(values.get("n_shared_experts") or 0, "n_shared_experts")
    return {
        "experts": experts,
        "chosen": whole_number(values.get(chosen), chosen, minimum=1, maximum=experts),
        "expert_ffn": size,
        "shared_ffn": whole_number(shared, "shared_expert_intermediate_size", maximum=_MOST),
        "dense_layers": dense_layers(values, layers),
    }


_VISION = (
    ("depth", "vt_num_hidden_layers", "num_hidden_layers"),
    ("hidden_size", "vt_hidden_size"),
    ("intermediate_size", "vt_intermediate_size"),
)


def _vision_numbers(given: Any) -> int:
    """Return about how many numbers read pictures, which stay in 16 bits; 0 without."""
    if not given:
        return 0
    values = given if isinstance(given, dict) else {}
    found = [next((name for name in names if values.get(name)), names[0]) for names in _VISION]
    named = {f"vision_config.{name}": values.get(name) for name in found}
    depth, hidden, ffn = (_size(named, field) for field in named)
    return depth * hidden * (4 * hidden + 2 * ffn)


def read_config(path: Path) -> ModelShape:
    """Return the shape of a model's ``config.json``, or its folder's; raises as ``from_config``."""
    from orsched.files.text import locating, parse_json, read_text

    file = path / "config.json" if path.is_dir() else path
    with locating(file):
        values = parse_json(read_text(file))
        if not isinstance(values, dict):
            raise InputError("is not an object", remedy="give a model's config.json")
        return ModelShape.from_config(values, file.resolve().parent.name, "config.json")


def _catalogue() -> dict[str, ModelShape]:
    text = files("orsched.calibration").joinpath("tables", "models.json").read_text("utf-8")
    return {
        name: replace(
            ModelShape.from_config(given["config"], name, given["source"]), title=given["title"]
        )
        for name, given in json.loads(text).items()
    }


MODELS = _catalogue()
"""By name."""

SHORT = {
    "1b": "llama3-1b",
    "3b": "llama3-3b",
    "8b": "llama3-8b",
    "13b": "llama2-13b",
    "70b": "llama3-70b",
}
"""The names of the runner's presets, and sizes, stand for these models."""
