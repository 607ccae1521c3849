"""Public GPUs: what their makers' data sheets promise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One accelerator by its data sheet.

    Attributes:
        name: in the catalogue.
        title: as its maker calls it.
        flops: peak of matrix products in BF16 with FP32 sums, without sparsity, a second.
        memory_bytes: of the device (GB of data sheets are 10^9).
        bandwidth: of its memory, bytes a second.
        source: where the three are from; read for this table in November 2026.
    """

    name: str
    title: str
    flops: int
    memory_bytes: int
    bandwidth: int
    source: str


def _gpu(name: str, title: str, tflops: float, gigabytes: int, gb_a_s: int, source: str) -> Gpu:
    return Gpu(name, title, round(tflops * 10**12), gigabytes * 10**9, gb_a_s * 10**9, source)


_DATA_SHEET = "NVIDIA {} data sheet, nvidia.com"

GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("a10", "NVIDIA A10", 125, 24, 600, _DATA_SHEET.format("A10 (2021)")),
        _gpu("l4", "NVIDIA L4", 121, 24, 300, _DATA_SHEET.format("L4 (2023)")),
        _gpu("l40s", "NVIDIA L40S", 362.05, 48, 864, _DATA_SHEET.format("L40S (2023)")),
        _gpu(
            "a100-40gb", "NVIDIA A100 SXM 40 GB", 312, 40, 1555, _DATA_SHEET.format("A100 (2020)")
        ),
        _gpu("a100", "NVIDIA A100 SXM 80 GB", 312, 80, 2039, _DATA_SHEET.format("A100 (2021)")),
        _gpu(
            "a100-pcie", "NVIDIA A100 PCIe 80 GB", 312, 80, 1935, _DATA_SHEET.format("A100 (2021)")
        ),
        _gpu("h100", "NVIDIA H100 SXM 80 GB", 989.5, 80, 3350, _DATA_SHEET.format("H100 (2023)")),
        _gpu(
            "h100-pcie", "NVIDIA H100 PCIe 80 GB", 756, 80, 2000, _DATA_SHEET.format("H100 (2022)")
        ),
        _gpu("h200", "NVIDIA H200 SXM", 989.5, 141, 4800, _DATA_SHEET.format("H200 (2024)")),
        _gpu("b200", "NVIDIA B200 (HGX)", 2250, 180, 8000, _DATA_SHEET.format("HGX B200 (2024)")),
        _gpu(
            "mi300x",
            "AMD Instinct MI300X",
            1307.4,
            192,
            5300,
            "AMD Instinct MI300X data sheet (2023), amd.com",
        ),
        _gpu(
            "rtx4090",
            "NVIDIA GeForce RTX 4090",
            165.2,
            24,
            1008,
            "NVIDIA Ada GPU architecture whitepaper (2022), appendix A",
        ),
        _gpu(
            "rtxpro6000",
            "NVIDIA RTX PRO 6000 Blackwell",
            503.8,
            96,
            1792,
            "NVIDIA RTX PRO Blackwell GPU architecture whitepaper (2025)",
        ),
    )
}
"""By name."""
