"""A roofline from a data sheet: no measurement, and it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import is_number
from orsched.costs.roofline import RooflineCost

if TYPE_CHECKING:
    from orsched.calibration.gpus import Gpu
    from orsched.calibration.shapes import ModelShape

EFFICIENCY = 0.6
"""Share of the peaks that is assumed: what good engines reach, in rounds and in long prefills."""

LAYER_S = 30e-6
"""Of each layer in each step: some ten small kernels between the matrix products."""

ALL_REDUCE_S = 10e-6
"""Of each of a layer's two sums over several GPUs."""

NUMBER_BYTES = 2
"""BF16, for caches, and for weights that are not quantised."""

MEMORY_SHARE = 0.9
"""Of a GPU's memory that weights and caches may take."""

BLOCK_TOKENS = 16


class Fitting(NamedTuple):
    """What fits beside the weights.

    Attributes:
        kv_tokens: tokens in the caches.
        blocks: of ``BLOCK_TOKENS`` tokens.
    """

    kv_tokens: int
    blocks: int

    def slots(self, length: int) -> int:
        """Return how many slots of so many tokens that is."""
        return self.kv_tokens // length


def data_sheet_cost(
    gpu: Gpu,
    shape: ModelShape,
    efficiency: float = EFFICIENCY,
    memory_efficiency: float | None = None,
    tensor_parallel: int = 1,
) -> RooflineCost:
    """Return the roofline of a model on GPUs, in BF16, from their peaks alone.

    A step reads the layers and the output layer, 2 bytes a number unless they are quantised, at
    ``memory_efficiency`` (None: ``efficiency``) of the bandwidth. A token is a multiplication and
    an addition for each number in the layers, at ``efficiency`` of the peak; the output layer,
    which a prompt passes once, is left out. A token of context is read once for each token that a
    round makes. On several GPUs all of it is divided, and each layer waits for two sums.

    Raises:
        InputError: an efficiency that is no share in (0, 1], or a wrong number of GPUs.
    """
    if memory_efficiency is None:
        memory_efficiency = efficiency
    for name, share in (("efficiency", efficiency), ("memory_efficiency", memory_efficiency)):
        if not is_number(share) or not 0 < share <= 1:
            raise InputError(f"{share!r} is no share in (0, 1]", field=name, remedy="such as 0.6")
    n = whole_number(tensor_parallel, "tensor_parallel", minimum=1, maximum=1024)
    flops, bandwidth = gpu.flops * efficiency * n, gpu.bandwidth * memory_efficiency * n
    layer_s = LAYER_S + (2 * ALL_REDUCE_S if n > 1 else 0)
    return RooflineCost.from_s(
        fixed=shape.layers * layer_s,
        weights=shape.read_bytes / bandwidth,
        token=2 * shape.layer_weights / flops,
        context=shape.kv_numbers * NUMBER_BYTES / bandwidth,
        attended=shape.attended_flops / flops,
    )


def fitting(gpu: Gpu, shape: ModelShape, tensor_parallel: int = 1) -> Fitting:
    """Return what fits into the memory of GPUs beside a model's weights.

    Raises:
        InputError: the weights themselves do not fit.
    """
    room = int(gpu.memory_bytes * MEMORY_SHARE) * tensor_parallel - shape.weight_bytes
    tokens = room // (shape.kv_numbers * NUMBER_BYTES)
    if tokens < BLOCK_TOKENS:
        raise InputError(
            f"the weights of {shape.title}, {shape.weight_bytes / 1e9:.0f} GB, do not fit"
            f" onto {tensor_parallel} x {gpu.title}",
            field="tensor_parallel",
            remedy=f"at least {least_gpus(gpu, shape)} GPUs: --tensor-parallel",
        )
    return Fitting(tokens, tokens // BLOCK_TOKENS)


def least_gpus(gpu: Gpu, shape: ModelShape) -> int:
    """Return the least power of two of GPUs that hold a model and 4,096 tokens of caches."""
    needed = shape.weight_bytes + 4096 * shape.kv_numbers * NUMBER_BYTES
    count = 1
    while count * gpu.memory_bytes * MEMORY_SHARE < needed:
        count *= 2
    return count
