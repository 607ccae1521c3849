"""The forward pass: from tokens and positions to hidden states.

Models of the Llama kind (Llama, Qwen 2 and 3) are walked here, layer by layer, with the weights of
the transformers model: the three projections of attention as one matrix, the two of the feed
forward part as one, angles from a table, sums within the matrix products. Every other model goes
through its own ``forward``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import warn

from orsched.runner.worker.attention import install
from orsched.runner.worker.kernels import compiles
from orsched.runner.worker.layout import Heads

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

    from orsched.runner.worker.attention import SlotAttention
    from orsched.runner.worker.layout import Slots

    Forward = Callable[[Tensor, Tensor], Tensor]


HEADS = 8  # heads of a program that turns
BLOCK = 1024  # columns of a program that gates

TOLERANCE = 0.07
"""Of numbers below 8 in bfloat16 that are rounded once here and some times in the plain version."""


class Norms(NamedTuple):
    """Weights, [head size] each, of the norms of queries and of keys."""

    query: Tensor
    key: Tensor
    eps: float


class Turned(NamedTuple):
    """What a layer's projections become, and where from."""

    projected: Tensor  # [tokens, heads, head size], queries, then keys, then values
    positions: Tensor  # [tokens]
    places: Tensor  # [tokens] rows of the caches
    keys: Tensor  # the caches of the layer
    values: Tensor
    norms: Norms | None  # of queries and keys, if the model has them


class Angles(NamedTuple):
    """[positions, 1, head size] cosines, and sines with the signs of the halves' turn."""

    cos: Tensor
    sin: Tensor

    def of(self, positions: Tensor) -> Angles:
        """Return those of some tokens."""
        return Angles(self.cos[positions], self.sin[positions])


def turn(what: Turned, angles: Angles) -> Tensor:
    """Norm, turn, and write keys and values to the caches; return [tokens, heads, head size].

    The plain version: some ten kernels. It takes the angles of the tokens, not of all positions.
    """
    import torch

    kv = what.keys.shape[1]
    first, value = what.projected[:, :-kv], what.projected[:, -kv:]
    query, key = first[:, :-kv], first[:, -kv:]
    if what.norms is not None:
        query = normed(query, what.norms.query, what.norms.eps)
        key = normed(key, what.norms.key, what.norms.eps)
        first = torch.cat([query, key], 1)
    cos, sin = angles
    first = torch.addcmul(first * cos, first.roll(cos.shape[-1] // 2, -1), sin)
    what.keys.index_copy_(0, what.places, first[:, -kv:])
    what.values.index_copy_(0, what.places, value)
    return first[:, :-kv]


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the root mean square norm over the last dimension, computed in float32."""
    from torch import float32
    from torch.nn.functional import rms_norm

    size = weight.shape
    if x.dtype == float32 or x.is_cuda:  # one kernel, whose sums are in float32
        return rms_norm(x, size, weight, eps)
    return rms_norm(x.float(), size, None, eps).to(x.dtype) * weight


def fused_turn(what: Turned, angles: Angles) -> Tensor:
    """Do what ``turn`` does in one kernel, which finds the angles in those of all positions."""
    import torch

    from orsched.runner.worker.triton_kernels import turn as kernel

    tokens, heads, size = what.projected.shape
    kv = what.keys.shape[1]
    query = torch.empty(
        (tokens, heads - 2 * kv, size), dtype=what.projected.dtype, device=what.projected.device
    )
    weights = what.norms or Norms(angles.cos, angles.cos, 0.0)  # not looked at without norms
    kernel[(tokens, -(-heads // HEADS))](
        what.projected,
        angles.cos,
        angles.sin,
        what.positions,
        what.places,
        query,
        what.keys,
        what.values,
        weights.query,
        weights.key,
        weights.eps,
        QUERIES=heads - 2 * kv,
        KEYS=kv,
        HALF=size // 2,
        HEADS=HEADS,
        NORMED=what.norms is not None,
        num_warps=2,
    )
    return query


def gate(both: Tensor) -> Tensor:
    """Return the SiLU of the first half of the columns times the second."""
    from torch.nn.functional import silu

    first, second = both.chunk(2, -1)
    return silu(first).mul_(second)


def fused_gate(both: Tensor) -> Tensor:
    """Do what ``gate`` does in one kernel."""
    from orsched.runner.worker.triton_kernels import gate as kernel

    tokens, size = both.shape[0], both.shape[1] // 2
    found = both.new_empty((tokens, size))
    kernel[(tokens, -(-size // BLOCK))](both, found, size, BLOCK=BLOCK, num_warps=4)
    return found


class Fused(NamedTuple):
    """The kernels that a model's layers use."""

    turn: Callable[[Turned, Angles], Tensor] = turn
    gate: Callable[[Tensor], Tensor] = gate
    by_position: bool = False  # whether ``turn`` takes the angles of all positions


def fused() -> Fused:
    """Return the fused kernels."""
    return Fused(fused_turn, fused_gate, True)


def fusible(slots: Slots) -> bool:
    """Return whether the kernels can be compiled for the caches' device, type and head size."""
    size = slots.keys[0].shape[-1]
    return compiles(slots) and size >= 16 and size & (size - 1) == 0


def fused_for(slots: Slots, queries: int) -> Fused:
    """Return the fused kernels where they are there and agree with the plain ones."""
    if not fusible(slots):
        return Fused()
    try:
        if agrees(fused(), slots, queries):
            return fused()
        reason = "they compute otherwise on this device"
    except Exception as error:  # a compiler's own
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    warn(f"steps are slower without fused kernels: {reason}", RuntimeWarning, stacklevel=2)
    return Fused()


def agrees(kernels: Fused, slots: Slots, queries: int) -> bool:
    """Return whether kernels compute what the plain ones do, on random numbers."""
    import torch

    cache = slots.keys[0]
    kv, size, tokens = cache.shape[2], cache.shape[3], 5
    numbers = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=numbers).to(cache)

    angle = random(7, 1, size // 2)
    angles = Angles(torch.cat([angle.cos()] * 2, -1), torch.cat([-angle.sin(), angle.sin()], -1))
    at = torch.tensor([3, 0, 6, 1, 3], device=cache.device)
    rows = torch.tensor([4, 9, 0, 2, 11], device=cache.device)
    projected = random(tokens, queries + 2 * kv, size)
    for norms in (None, Norms(random(size), random(size), 1e-6)):
        found = []
        for each in (kernels, Fused()):
            keys, values = cache.new_zeros((2, 12, kv, size))
            what = Turned(projected, at, rows, keys, values, norms)
            query = each.turn(what, angles if each.by_position else angles.of(at))
            found.append(torch.cat([query.flatten(), keys.flatten(), values.flatten()]).float())
        if not float((found[0] - found[1]).abs().max()) <= TOLERANCE:
            return False
    both = random(tokens, 2 * 1500)
    worst = (kernels.gate(both).float() - gate(both).float()).abs().max()
    return bool(worst <= TOLERANCE)


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
