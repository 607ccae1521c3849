"""The forward pass: from tokens and positions to hidden states.

Models of the Llama kind (Llama, Qwen 2 and 3) are walked here, layer by layer, with the weights of
the transformers model: the three projections of attention as one matrix, the two of the feed
forward part as one, angles from a table, sums within the matrix products. Every other model goes
through its own ``forward``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.runner.worker.attention import install
from orsched.runner.worker.heads import Heads

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

    from orsched.runner.worker.attention import SlotAttention

    Forward = Callable[[Tensor, Tensor], Tensor]

WALKED = ("llama", "qwen2", "qwen3")


def forward_of(model: Any, attention: SlotAttention) -> Forward:
    """Return a model's forward pass over [tokens] and their positions, one row for all requests.

    Layers attend through ``attention``. The result is [tokens, hidden size], normed.
    """
    if model.config.model_type in WALKED:
        return LlamaForward(model.base_model, attention)
    install(model, attention)
    return TransformersForward(model.base_model)


class TransformersForward:
    """The model's own forward pass."""

    def __init__(self, base: Any) -> None:
        import torch

        self.base = base
        # of four dimensions, it is left alone; the attention does not look at it
        self.no_mask = torch.zeros((1, 1, 1, 1), device=next(base.parameters()).device)

    def __call__(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the hidden states of the last layer."""
        found = self.base(
            input_ids=tokens[None],
            position_ids=positions[None],
            attention_mask=self.no_mask,
            use_cache=False,
        )
        hidden: Tensor = found.last_hidden_state[0]
        return hidden


class Norm(NamedTuple):
    """A root mean square norm, computed in float32 as the model's own is."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Return the norm over the last dimension."""
        from torch import float32
        from torch.nn.functional import rms_norm

        size = self.weight.shape
        if x.dtype == float32 or x.is_cuda:  # one kernel, whose sums are in float32
            return rms_norm(x, size, self.weight, self.eps)
        return rms_norm(x.float(), size, None, self.eps).to(x.dtype) * self.weight


class Layer(NamedTuple):
    """Weights of a layer, [out, in]; sums of outputs share a matrix."""

    attention_norm: Norm
    projections: Tensor
    projections_bias: Tensor | None
    query_norm: Norm | None
    key_norm: Norm | None
    out: Any
    feed_norm: Norm
    gate_up: Tensor
    gate_up_bias: Tensor | None
    activation: Callable[[Tensor], Tensor]
    down: Any


class LlamaForward:
    """Walks the layers of a Llama or Qwen model."""

    def __init__(self, base: Any, attention: SlotAttention) -> None:
        config, slots = base.config, attention.slots
        self.attention, self.embedding = attention, base.embed_tokens.weight
        self.head_dim = slots.keys[0].shape[-1]
        self.kv_heads = slots.keys[0].shape[-2]
        self.turned = config.num_attention_heads + self.kv_heads
        self.scale: float = base.layers[0].self_attn.scaling
        self.cos, self.sin = _angles(base, slots.length)
        self.layers = [_layer(layer) for layer in base.layers]
        self.norm = _norm(base.norm)

    def __call__(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the hidden states after the last norm."""
        from torch.nn.functional import embedding, linear

        x = embedding(tokens, self.embedding)
        cos, sin = self.cos[positions], self.sin[positions]
        for index, layer in enumerate(self.layers):
            found = self._attend(index, layer, layer.attention_norm(x), cos, sin)
            x = _add(x, found, layer.out)
            both = linear(layer.feed_norm(x), layer.gate_up, layer.gate_up_bias)
            gate, up = both.chunk(2, -1)
            x = _add(x, layer.activation(gate).mul_(up), layer.down)
        return self.norm(x)

    def _attend(self, index: int, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        import torch
        from torch.nn.functional import linear

        heads = linear(x, layer.projections, layer.projections_bias)
        heads = heads.unflatten(1, (-1, self.head_dim))
        first, value = heads[:, : self.turned], heads[:, self.turned :]
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = first[:, : -self.kv_heads], first[:, -self.kv_heads :]
            first = torch.cat([layer.query_norm(query), layer.key_norm(key)], 1)
        first = torch.addcmul(first * cos, first.roll(self.head_dim // 2, -1), sin)
        query, key = first[:, : -self.kv_heads], first[:, -self.kv_heads :]
        return self.attention(Heads(index, query, key, value, self.scale)).flatten(1)


def _add(x: Tensor, found: Tensor, linear: Any) -> Tensor:
    """Add what a linear layer makes of ``found``, in place."""
    if linear.bias is None:
        return x.addmm_(found, linear.weight.t())
    return x.add_(linear(found))


def _angles(base: Any, length: int) -> tuple[Tensor, Tensor]:
    """Return [positions, 1, head size] cosines, and sines with the signs of the halves' turn."""
    import torch

    like = base.embed_tokens.weight
    with torch.no_grad():
        cos, sin = base.rotary_emb(like, torch.arange(length, device=like.device)[None])
        half = sin.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)
    return cos[0, :, None], sin[0, :, None]


def _norm(module: Any) -> Norm:
    return Norm(module.weight, module.variance_epsilon)


def _layer(layer: Any) -> Layer:
    attend, feed = layer.self_attn, layer.mlp
    own = hasattr(attend, "q_norm")
    return Layer(
        _norm(layer.input_layernorm),
        *_merged([attend.q_proj, attend.k_proj, attend.v_proj]),
        _norm(attend.q_norm) if own else None,
        _norm(attend.k_norm) if own else None,
        attend.o_proj,
        _norm(layer.post_attention_layernorm),
        *_merged([feed.gate_proj, feed.up_proj]),
        feed.act_fn,
        feed.down_proj,
    )


def _merged(modules: list[Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the weights and biases of linear layers as one; theirs become views of them."""
    import torch

    found: list[torch.Tensor | None] = []
    for name in ("weight", "bias"):
        parts = [getattr(module, name) for module in modules]
        if parts[0] is None:
            found.append(None)
            continue
        with torch.no_grad():
            whole = torch.cat(parts)
        for module, view in zip(modules, whole.split([len(p) for p in parts]), strict=True):
            setattr(module, name, torch.nn.Parameter(view, requires_grad=False))
        found.append(whole)
    assert found[0] is not None
    return found[0], found[1]
