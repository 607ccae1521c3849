"""The forward pass: from tokens and positions to hidden states.

Models of the Llama kind (Llama, Qwen 2 and 3) are walked here, layer by layer, with the weights of
the transformers model: the three projections of attention as one matrix, the two of the feed
forward part as one, angles from a table, sums within the matrix products. Every other model goes
through its own ``forward``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.runner.worker.attention import install
from orsched.runner.worker.fused import Angles, Norms, Turned, fused_for, normed
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
        return normed(x, self.weight, self.eps)


class Layer(NamedTuple):
    """Weights of a layer, [out, in]; sums of outputs share a matrix."""

    attention_norm: Norm
    projections: Tensor
    projections_bias: Tensor | None
    norms: Norms | None
    out: Any
    feed_norm: Norm
    gate_up: Tensor
    gate_up_bias: Tensor | None
    activation: Callable[[Tensor], Tensor] | None
    down: Any


class LlamaForward:
    """Walks the layers of a Llama or Qwen model."""

    def __init__(self, base: Any, attention: SlotAttention) -> None:
        config, slots = base.config, attention.slots
        self.attention, self.embedding = attention, base.embed_tokens.weight
        self.head_dim = slots.keys[0].shape[-1]
        self.scale: float = base.layers[0].self_attn.scaling
        self.angles = _angles(base, slots.length)
        self.fused = fused_for(slots, config.num_attention_heads)
        self.layers = [_layer(layer) for layer in base.layers]
        self.norm = _norm(base.norm)

    def __call__(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the hidden states after the last norm."""
        from torch.nn.functional import embedding, linear

        x = embedding(tokens, self.embedding)
        angles = self.angles if self.fused.by_position else self.angles.of(positions)
        for index, layer in enumerate(self.layers):
            found = self._attend(index, layer, layer.attention_norm(x), positions, angles)
            x = _add(x, found, layer.out)
            both = linear(layer.feed_norm(x), layer.gate_up, layer.gate_up_bias)
            x = _add(x, self._gated(layer, both), layer.down)
        return self.norm(x)

    def _gated(self, layer: Layer, both: Tensor) -> Tensor:
        if layer.activation is None:
            return self.fused.gate(both)
        gate, up = both.chunk(2, -1)
        return layer.activation(gate).mul_(up)

    def _attend(
        self, index: int, layer: Layer, x: Tensor, positions: Tensor, angles: Angles
    ) -> Tensor:
        from torch.nn.functional import linear

        heads = linear(x, layer.projections, layer.projections_bias)
        heads = heads.unflatten(1, (-1, self.head_dim))
        attention = self.attention
        keys, values = attention.slots.rows[index]
        turned = Turned(heads, positions, attention.places, keys, values, layer.norms)
        query = self.fused.turn(turned, angles)
        return attention(Heads(index, query, self.scale)).flatten(1)


def _add(x: Tensor, found: Tensor, linear: Any) -> Tensor:
    """Add what a linear layer makes of ``found``, in place."""
    if linear.bias is None:
        return x.addmm_(found, linear.weight.t())
    return x.add_(linear(found))


def _angles(base: Any, length: int) -> Angles:
    import torch

    like = base.embed_tokens.weight
    with torch.no_grad():
        cos, sin = base.rotary_emb(like, torch.arange(length, device=like.device)[None])
        half = sin.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)
    return Angles(cos[0, :, None], sin[0, :, None])


def _norm(module: Any) -> Norm:
    return Norm(module.weight, module.variance_epsilon)


def _layer(layer: Any) -> Layer:
    attend, feed = layer.self_attn, layer.mlp
    norms = None
    if hasattr(attend, "q_norm"):
        query, key = _norm(attend.q_norm), _norm(attend.k_norm)
        norms = Norms(query.weight, key.weight, query.eps)
    silu = type(feed.act_fn).__name__ in ("SiLU", "SiLUActivation")
    return Layer(
        _norm(layer.input_layernorm),
        *_merged([attend.q_proj, attend.k_proj, attend.v_proj]),
        norms,
        attend.o_proj,
        _norm(layer.post_attention_layernorm),
        *_merged([feed.gate_proj, feed.up_proj]),
        None if silu else feed.act_fn,
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
