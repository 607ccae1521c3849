"""A roofline from a data sheet: no measurement, and it says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import is_number
from orsched.costs.roofline import RooflineCost

if TYPE_CHECKING:
    from orsched.calibration.shapes import ModelShape


@dataclass(frozen=True)
class Gpu:
    """One accelerator by its data sheet."""

    name: str  # in the catalogue
    title: str  # as its maker calls it
    flops: int  # a second: peak of matrix products in BF16 with FP32 sums, without sparsity
    memory_bytes: int  # of the device (GB of data sheets are 10^9)
    bandwidth: int  # of its memory, bytes a second
    source: str  # of the three numbers; read for this table in November 2026


_SHEET = "NVIDIA {} data sheet, nvidia.com"

_ROWS: tuple[tuple[str, str, float, int, int, str], ...] = (
    # name, title, teraflops in BF16, gigabytes, gigabytes a second, source
    ("a10", "NVIDIA A10", 125, 24, 600, _SHEET.format("A10 (2021)")),
    ("l4", "NVIDIA L4", 121, 24, 300, _SHEET.format("L4 (2023)")),
    ("l40s", "NVIDIA L40S", 362.05, 48, 864, _SHEET.format("L40S (2023)")),
    ("a100-40gb", "NVIDIA A100 SXM 40 GB", 312, 40, 1555, _SHEET.format("A100 (2020)")),
    ("a100", "NVIDIA A100 SXM 80 GB", 312, 80, 2039, _SHEET.format("A100 (2021)")),
    ("a100-pcie", "NVIDIA A100 PCIe 80 GB", 312, 80, 1935, _SHEET.format("A100 (2021)")),
    ("h100", "NVIDIA H100 SXM 80 GB", 989.5, 80, 3350, _SHEET.format("H100 (2023)")),
    ("h100-pcie", "NVIDIA H100 PCIe 80 GB", 756, 80, 2000, _SHEET.format("H100 (2022)")),
    ("h200", "NVIDIA H200 SXM", 989.5, 141, 4800, _SHEET.format("H200 (2024)")),
    ("b200", "NVIDIA B200 (HGX)", 2250, 180, 8000, _SHEET.format("HGX B200 (2024)")),
    ("mi300x", "AMD Instinct MI300X", 1307.4, 192, 5300,
     "AMD Instinct MI300X data sheet (2023), amd.com"),
    ("rtx4090", "NVIDIA GeForce RTX 4090", 165.2, 24, 1008,
     "NVIDIA Ada GPU architecture whitepaper (2022), appendix A"),
    ("rtxpro6000", "NVIDIA RTX PRO 6000 Blackwell", 503.8, 96, 1792,
     "NVIDIA RTX PRO Blackwell GPU architecture whitepaper (2025)"),
)  # fmt: skip

GPUS = {
    name: Gpu(name, title, round(tflops * 10**12), gb * 10**9, gb_s * 10**9, source)
    for name, title, tflops, gb, gb_s, source in _ROWS
}
"""By name."""


EFFICIENCY = 0.6
"""Share of the peaks that is assumed: what good engines reach, in rounds and in long prefills."""

LAYER_S = 30e-6  # of each layer in each step: some ten small kernels between the matrix products
ALL_REDUCE_S = 10e-6  # of each of a layer's two sums over several GPUs
NUMBER_BYTES = 2  # BF16, for caches, and for weights that are not quantised
MEMORY_SHARE = 0.9  # of a GPU's memory that weights and caches may take

BLOCK_TOKENS = 16


class Fitting(NamedTuple):
    """What fits beside the weights."""

    kv_tokens: int  # tokens in the caches
    blocks: int  # of ``BLOCK_TOKENS`` tokens

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
    round makes. On several GPUs all of it is divided, and each layer waits for two sums. Raises
    ``InputError`` for an efficiency outside (0, 1], or a wrong number of GPUs.
    """
    if memory_efficiency is None:
        memory_efficiency = efficiency
    for name, share in (("efficiency", efficiency), ("memory_efficiency", memory_efficiency)):
        if not is_number(share) or not 0 < share <= 1:
            raise InputError(
                f"{share!r} is not a share in (0, 1]", field=name, remedy="such as 0.6"
            )
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
    """Return what fits into GPUs beside a model's weights; ``InputError`` if those do not fit."""
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
