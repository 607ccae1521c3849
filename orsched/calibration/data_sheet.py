"""The machine of a data sheet: peaks, the shares of them that kernels reach, a model's shape."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from orsched.calibration.gpus import constants_of
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.costs.exact import to_whole_units
from orsched.costs.roofline import FS_PER_S, RooflineCost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orsched.calibration.gpus import Constants, Gpu
    from orsched.calibration.shapes import ModelShape
    from orsched.calibration.weight_formats import Format
    from orsched.costs.roofline import Pieces

BLOCK_TOKENS = 16
NUMBER_BYTES = 2  # BF16, of what GPUs send to each other
INFINIBAND = 50 * 10**9  # bytes a second: 400 Gb/s for each GPU, as in NVIDIA's DGX H100


@dataclass(frozen=True)
class Layout:
    """How GPUs share a model: ``tp * pp * dp`` of them.

    Attributes:
        tp: GPUs that share each layer.
        pp: stages of layers, one after the other; a step's tokens fill them in as many parts.
        dp: groups that have attention of their own, with their share of the requests.
        ep: groups of GPUs among which experts are divided; 1: each GPU has a part of each expert.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for item in fields(self):
            whole_number(getattr(self, item.name), item.name, minimum=1, maximum=1024)
        if self.tp * self.dp % self.ep:
            problem = f"{self.ep} groups of experts on {self.tp * self.dp} GPUs"
            raise InputError(problem, field="ep", remedy="a divisor of tp * dp")

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return self.tp * self.pp * self.dp

    def link(self, gpu: Gpu) -> str:
        """Return the name of what joins the GPUs of a stage: InfiniBand beyond a node."""
        return "infiniband" if self.tp * self.dp > gpu.node else gpu.link


def unshared(shape: ModelShape, layout: Layout) -> str:
    """Return which part of a model GPUs cannot share evenly, in words; "" where they share all.

    As in vLLM: each GPU has as many heads as the others, and as many columns of each feed-forward
    layer. More GPUs than heads of keys have copies of them, each as many.
    """
    tp, groups = layout.tp, layout.tp * layout.dp // layout.ep
    copied = shape.latent or tp % shape.kv_heads == 0
    for what, number, gpus in (
        ("attention heads", shape.heads, tp),
        ("heads of keys", 0 if copied else shape.kv_heads, tp),
        ("heads of linear attention", shape.linear_keys // max(1, shape.key_size), tp),
        ("columns of feed-forward layers", shape.ffn, tp),
        ("columns of shared experts", shape.shared_ffn, tp),
        ("columns of experts", shape.expert_ffn, groups),
    ):
        if number % gpus:
            return f"{gpus} GPUs cannot share {number:,} {what} evenly"
    return ""


def _require_shared(shape: ModelShape, layout: Layout) -> None:
    whole_number(layout.pp, "pp", minimum=1, maximum=shape.layers)
    whole_number(layout.ep, "ep", minimum=1, maximum=max(1, shape.experts))
    if problem := unshared(shape, layout):
        raise InputError(problem, field="tp", remedy="a divisor for --tp; --pp divides the layers")


class Fitting(NamedTuple):
    """What fits beside the weights."""

    kv_tokens: int  # tokens in the caches
    blocks: int  # of ``BLOCK_TOKENS`` tokens
    state_tokens: int = 0  # whose room the state of a request takes, in layers without a cache

    def slots(self, length: int) -> int:
        """Return how many slots of so many tokens that is, each with the state of a request."""
        return self.kv_tokens // (length + self.state_tokens)


class _Kind(NamedTuple):
    """Products of one kind: what a GPU reads in a step, and computes for a token of the step."""

    read: int  # femtoseconds
    token: int


def data_sheet_cost(
    gpu: Gpu,
    shape: ModelShape,
    layout: Layout | None = None,
    engine: str = "vllm",
    constants: Constants | None = None,
) -> RooflineCost:
    """Return the cost of a model's steps on GPUs, from their peaks and the constants of kernels.

    Each kind of product (around attention, feed-forward, experts) reads its weights or computes its
    tokens, whichever takes longer, and ``overlap`` of the shorter comes on top. A token is a
    multiplication and an addition for each number that it passes; the output layer, which a prompt
    passes once, is read and not computed. Of E experts ``E (1 - (1 - k/E)^x)`` are read for x
    tokens. Rounds read caches, of layers with a window up to its length. GPUs that share a layer
    sum its results twice: a time for each sum, and its bytes over the link (``Constants``).
    """
    layout = layout or Layout()
    _require_shared(shape, layout)
    link = layout.link(gpu)
    known = constants or constants_of(gpu, engine, link)
    bandwidth = gpu.bandwidth * known.gemm_memory
    parts, share = layout.dp * layout.pp, layout.tp

    def kind(numbers: int, kept: Format) -> _Kind:
        read = numbers * kept.bits / 8 / share / bandwidth
        compute = gpu.peak(kept.product) * known.gemm_compute * share * parts
        return _Kind(_fs(read), _fs(2 * numbers / compute))

    attention = kind(shape.attention_weights, shape.formats.attention)
    others = [kind(shape.ffn_weights, shape.formats.ffn)]
    if shape.formats.attention == shape.formats.ffn:
        attention, others = _Kind(*map(sum, zip(attention, others[0], strict=True))), []
    fixed_s = known.step_us / 1e6 + NUMBER_BYTES * shape.head_weights / share / bandwidth
    fixed_s += 1e-6 * shape.layers * known.layer_us
    fixed_s += 1e-6 * shape.expert_layers * known.expert_layer_us
    sums_s, row_s = _links(gpu, shape, layout, known, link)
    first, curve = _experts(gpu, shape, layout, known) if shape.experts else (0, ())
    hidden = round(known.overlap * 2**20)  # in whole numbers from here on
    return RooflineCost(
        fixed_fs=_fs(fixed_s + sums_s)
        + first
        + attention.read * hidden // 2**20
        + sum(each.read for each in others),
        weights_fs=attention.read * (2**20 - hidden) // 2**20,
        token_fs=attention.token * (2**20 - hidden) // 2**20,
        row_fs=_fs(row_s) + sum(each.token * hidden // 2**20 for each in (attention, *others)),
        pieces=_joined((curve, *(_bend(each, hidden) for each in others))),
        launch_fs=_fs(1e-6 * shape.layers * known.eager_layer_us),
        **_attention(gpu, shape, layout, known),
    )


def _fs(seconds: float) -> int:
    return to_whole_units(seconds, FS_PER_S, "cost")


def _bend(kind: _Kind, hidden: int) -> Pieces:
    """Return what products take more once they compute longer than they read."""
    if not kind.token:
        return ()
    ridge = max(1, round(kind.read / kind.token))
    return ((ridge, kind.token * (2**20 - hidden) // 2**20),)


def _experts(gpu: Gpu, shape: ModelShape, layout: Layout, known: Constants) -> tuple[int, Pieces]:
    """Return the time of experts for one token, and its pieces from there on."""
    gpus, kept = layout.tp * layout.dp, shape.formats.experts
    one = shape.expert_weights * kept.bits / 8 / gpus / (gpu.bandwidth * known.expert_memory)
    compute = gpu.peak(kept.product) * known.expert_compute * gpus
    each = 2 * shape.expert_weights * shape.chosen / compute
    uneven = known.uneven if layout.ep > 1 else 1.0

    def time_fs(tokens: int) -> float:
        x = tokens / layout.pp
        read, computed = one * touched(shape.experts, shape.chosen, x), each * x
        both = max(read, computed) + known.overlap * min(read, computed)
        return both * uneven * FS_PER_S

    return _curve(time_fs)


_KNOTS = sorted({*(2**k for k in range(17)), *(3 * 2**k for k in range(16))})
"""Tokens between which a curve is straight."""


def _curve(time_fs: Callable[[int], float]) -> tuple[int, Pieces]:
    """Return a growing curve's time at one token, and the pieces of a roofline from there on.

    ``time_fs``: femtoseconds by tokens. The pieces meet the curve at powers of 2 and one point
    between each two, rounded down; beyond the last the last slope goes on.
    """
    times = [round(time_fs(x)) for x in _KNOTS]
    slopes = (
        (a, max(0, (high - low) // (b - a)))
        for (a, low), (b, high) in pairwise(zip(_KNOTS, times, strict=True))
    )
    return times[0], tuple(slopes)


def _joined(curves: Iterable[Pieces]) -> Pieces:
    """Return the sum of curves as one; a piece that goes on as the one before is left out."""
    changes: dict[int, int] = {}
    for pieces in curves:
        before = 0
        for start, slope in pieces:
            changes[start] = changes.get(start, 0) + slope - before
            before = slope
    found: list[tuple[int, int]] = []
    slope = 0
    for start, change in sorted(changes.items()):
        slope += change
        if change:
            found.append((start, slope))
    return tuple(found)


def touched(experts: int, chosen: int, tokens: float) -> float:
    """Return how many experts some tokens choose on average, each k of them at random."""
    return experts * (1 - (1 - chosen / experts) ** tokens) if chosen < experts else experts


def _links(
    gpu: Gpu, shape: ModelShape, layout: Layout, known: Constants, link: str
) -> tuple[float, float]:
    """Return the seconds of a step that go to sums over GPUs, and those of a token."""
    tp, dp, gpus = layout.tp, layout.dp, layout.tp * layout.dp
    speed = (INFINIBAND if link == "infiniband" else gpu.link_bandwidth) * known.link_share
    token = NUMBER_BYTES * shape.hidden / layout.pp
    spread = shape.expert_layers if dp > 1 else 0  # layers whose experts take tokens of all groups
    once, row = 0.0, 0.0
    if tp > 1:
        count = 2 * shape.layers - spread
        once += count * (known.link_us + tp * known.link_gpu_us)
        row += count * token / dp * 2 * (tp - 1) / tp / speed
    if spread:
        once += 2 * spread * (known.link_us + gpus * known.link_gpu_us)
        sent = min(shape.chosen, layout.ep) * (layout.ep - 1) / layout.ep if layout.ep > 1 else dp
        row += 2 * spread * token * sent / gpus / speed
    if layout.pp > 1:
        once += (layout.pp - 1) * known.link_us
        row += (layout.pp - 1) * token / dp / speed
    return once / 1e6, row


def _attention(gpu: Gpu, shape: ModelShape, layout: Layout, known: Constants) -> dict[str, int]:
    """Return what contexts and attended tokens take, of all layers and of those with a window."""
    parts, tp = layout.dp * layout.pp, layout.tp
    bandwidth = gpu.bandwidth * known.attention_memory * parts
    compute = gpu.flops * known.attention_compute * parts * tp
    number = shape.formats.cache_bits / 8
    latent = 2 * shape.heads * (2 * shape.latent + shape.rope)  # products with compressed keys
    each = shape.token_numbers - shape.index_size
    copies = 1 if shape.latent else tp / max(1, tp / shape.kv_heads)
    read = max(each * number / copies / bandwidth, latent / compute if shape.latent else 0)
    full, windowed = shape.layers - shape.linear - shape.windowed, shape.windowed
    seconds = {
        "context_fs": full * read,
        "attended_fs": full * shape.layer_flops / compute,
        "window_context_fs": windowed * read,
        "window_attended_fs": windowed * shape.layer_flops / compute,
        "request_fs": 2 * shape.state_bytes / tp / bandwidth + known.request_us / 1e6,
    }
    if shape.index_heads:  # the index reads all of a context, attention what it chooses
        index = 2 * shape.index_heads * shape.index_size
        seconds["window_context_fs"] = seconds["context_fs"]
        seconds["window_attended_fs"] = full * latent / compute
        seconds["context_fs"] = full * max(shape.index_size / bandwidth, index / compute)
        seconds["attended_fs"] = full * index / compute
    found = {name: _fs(value) for name, value in seconds.items()}
    return found | {"window": shape.window if windowed or shape.index_heads else 0}


def fitting(
    gpu: Gpu,
    shape: ModelShape,
    layout: Layout | None = None,
    share: float | None = None,
    requests: int = 0,
) -> Fitting:
    """Return what fits into GPUs beside a model's weights; ``InputError`` if those do not fit.

    ``share`` of the memory (default: the constants' ``memory_share``) less the weights, and less
    the states that so many ``requests`` have in layers of linear attention. In vLLM these share one
    pool with the caches. GB of data sheets are 10^9 bytes, of which devices have 5 to 8 % more:
    that is left to activations.
    """
    layout = layout or Layout()
    _require_shared(shape, layout)
    room, each = _room(gpu, shape, layout, share)
    state = -(-shape.state_bytes // each)
    tokens = room // each - -(-requests // layout.dp) * state
    if tokens < BLOCK_TOKENS:
        raise InputError(
            f"the weights of {shape.title}, {shape.weight_bytes / 1e9:.0f} GB"
            f"{f', and the states of {requests:,} requests' if requests and state else ''}, do not"
            f" fit onto {layout.gpus} x {gpu.title}",
            field="tp",
            remedy=f"at least {least_gpus(gpu, shape)} GPUs: --tp or --pp",
        )
    tokens *= layout.dp
    return Fitting(tokens, tokens // BLOCK_TOKENS, state)


def _room(
    gpu: Gpu, shape: ModelShape, layout: Layout, share: float | None = None
) -> tuple[int, int]:
    """Return the bytes beside the weights in a group's GPUs, and those of a token in its caches."""
    share = constants_of(gpu).memory_share if share is None else share
    experts = round(shape.experts * shape.expert_weights * shape.formats.experts.bits / 8)
    weights = shape.weight_bytes - experts + experts // layout.dp
    copies = layout.tp if shape.latent else max(1, layout.tp / shape.kv_heads)
    each = round(shape.kv_numbers * shape.formats.cache_bits / 8 * copies)
    return int(gpu.memory_bytes * share) * layout.tp * layout.pp - weights, each


def least_gpus(gpu: Gpu, shape: ModelShape) -> int:
    """Return the least power of two of GPUs that hold a model and 4,096 tokens of caches."""
    count = 1
    while True:
        room, each = _room(gpu, shape, Layout(tp=count))
        if room >= 4096 * each:
            return count
        if count >= 1024:
            raise InputError(f"{shape.title} does not fit", field="gpu", remedy="a larger GPU")
        count *= 2
