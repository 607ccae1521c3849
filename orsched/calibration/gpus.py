"""GPUs by their data sheets, and the shares of their peaks that kernels reach."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.common.parameters import read_pairs
from orsched.common.scalars import is_number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TABLES = files("orsched.calibration").joinpath("tables")


@dataclass(frozen=True)
class Gpu:
    """One accelerator by its data sheet."""

    name: str  # in the catalogue
    title: str  # as its maker calls it
    flops: int  # a second: peak of matrix products in BF16 with FP32 sums, without sparsity
    memory_bytes: int  # of the device (GB of data sheets are 10^9)
    bandwidth: int  # of its memory, bytes a second
    link_bandwidth: int = 0  # to other GPUs of its node, bytes a second in one direction
    family: str = ""  # whose constants hold
    link: str = "pcie"  # how GPUs of a node are joined
    node: int = 8  # GPUs that this link joins
    narrow: tuple[tuple[str, int], ...] = ()  # peaks in other types than BF16
    source: str = ""  # of the numbers; read for this table in November 2026

    def peak(self, product: str) -> int:
        """Return the peak of products in a type; in BF16 where the GPU has none in this type.

        Numbers of 4 bits with scales for 32 (MXFP4) are multiplied in FP8.
        """
        peaks = dict(self.narrow)
        if product == "mxfp4":
            product = "fp8" if "fp4" in peaks else "bf16"
        return peaks.get(product, self.flops)


def _read_gpus() -> dict[str, Gpu]:
    found = {}
    lines = TABLES.joinpath("gpus.csv").read_text("utf-8").splitlines()
    for row in csv.DictReader(lines):
        narrow = {"fp8": row["fp8_tflops"], "int8": row["int8_tops"], "fp4": row["fp4_tflops"]}
        found[row["name"]] = Gpu(
            row["name"],
            row["title"],
            round(float(row["bf16_tflops"]) * 10**12),
            int(row["memory_gb"]) * 10**9,
            int(row["memory_gb_s"]) * 10**9,
            int(row["link_gb_s"]) * 10**9,
            row["family"],
            row["link"],
            int(row["gpus_a_node"]),
            tuple((kind, round(float(peak) * 10**12)) for kind, peak in narrow.items() if peak),
            row["source"],
        )
    return found


GPUS = _read_gpus()
"""By name."""

_OWN = {
    "tflops": ("flops", 10**12),
    "gb": ("memory_bytes", 10**9),
    "gb_s": ("bandwidth", 10**9),
    "link_gb_s": ("link_bandwidth", 10**9),
}


def own_gpu(text: str) -> Gpu:
    """Return a GPU of one's own, such as ``tflops=400,gb=48,gb_s=1200,link_gb_s=64,like=l40s``.

    Those are the peak in BF16, the memory, its bandwidth, that of the link, and the GPU of the
    catalogue whose family, link and ratios of narrower types it has. Raises ``InputError``.
    """
    given = read_pairs(text.split(","), "--gpu")
    if set(given) != {*_OWN, "like"} or given["like"] not in GPUS:
        raise InputError(
            f"{text!r} does not have the five numbers of a GPU",
            field="--gpu",
            remedy="tflops=400,gb=48,gb_s=1200,link_gb_s=64,like=l40s, with a GPU of the catalogue",
        )
    like = GPUS[str(given["like"])]
    sizes: dict[str, Any] = {}
    for name, (own, unit) in _OWN.items():
        value = given[name]
        if not is_number(value) or not 0 < value < 10**9:
            raise InputError(
                f"{name} is {value!r}", field="--gpu", remedy=f"a number above 0: {name}=400"
            )
        sizes[own] = round(value * unit)
    ratio = sizes["flops"] / like.flops
    narrow = tuple((kind, round(ratio * peak)) for kind, peak in like.narrow)
    source = "given by the user"
    title = f"a GPU of {given['tflops']} TFLOP/s, {given['gb']} GB and {given['gb_s']} GB/s"
    return replace(like, name="own", title=title, narrow=narrow, source=source, **sizes)


@dataclass(frozen=True)
class Constants:
    """Shares of peaks, and times, of kernels and of the host.

    Attributes:
        gemm_compute, gemm_memory: shares of the peaks that matrix products reach.
        expert_compute, expert_memory: the same of products with experts.
        attention_compute: share of the peak in attention of prompts.
        attention_memory: share of the bandwidth in attention of rounds.
        overlap: share of the shorter of reading and computing that the longer does not hide.
        uneven: time of the fullest group of experts by that of an average one.
        layer_us, expert_layer_us: small kernels of a layer, and what one with experts adds.
        eager_layer_us: least time of a layer in a step with prompts, which the host launches.
        step_us: the host and the output in each step.
        front_end_ms: what a request waits outside of all steps; a schedule has no place for it.
        memory_share: share of the memory that weights and caches may take.
        link_us, link_gpu_us, link_share: an operation over GPUs: its time, what each GPU adds, and
            the share of the link's bandwidth.
        source: where the constants are from.
    """

    gemm_compute: float
    gemm_memory: float
    expert_compute: float
    expert_memory: float
    attention_compute: float
    attention_memory: float
    overlap: float
    uneven: float
    layer_us: float
    expert_layer_us: float
    eager_layer_us: float
    step_us: float
    front_end_ms: float
    memory_share: float
    link_us: float
    link_gpu_us: float
    link_share: float
    source: str = ""

    def __post_init__(self) -> None:
        for item in fields(self):
            value, share = getattr(self, item.name), item.name.split("_")[-1] in _SHARES
            if item.name == "source":
                continue
            if not is_number(value) or not 0 <= value <= (1 if share else 10**6):
                wanted = "a share in (0, 1]" if share else "a number from 0 to 1,000,000"
                raise InputError(
                    f"{value!r} is not {wanted}", field=item.name, remedy="such as 0.6"
                )
            if value == 0 and share:
                raise InputError(
                    "0 is not a share in (0, 1]", field=item.name, remedy="such as 0.6"
                )


_SHARES = ("compute", "memory", "share")


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        TABLES.joinpath("constants.json").read_text("utf-8")
    )
    return found


def _table(path: Path | None) -> dict[str, dict[str, Any]]:
    if path is None:
        return _shipped()
    from orsched.files.text import locating, parse_json, read_text

    with locating(path):
        given = parse_json(read_text(path))
        if not isinstance(given, dict) or not all(isinstance(v, dict) for v in given.values()):
            raise InputError("is not an object of objects", remedy="as tables/constants.json")
        return _shipped() | given


def constants_of(
    gpu: Gpu,
    engine: str = "vllm",
    link: str | None = None,
    path: Path | None = None,
    changed: Mapping[str, float] | None = None,
) -> Constants:
    """Return the constants of a GPU, an engine and a link, from the table (or one at ``path``).

    The table has sections ``default``, those of families (``hopper``), of links (``link pcie``), of
    engines (``vllm``) and of both (``vllm hopper``); a later one replaces values of those before.
    A section of the file at ``path`` takes the place of that of the table. ``changed`` replaces
    single constants. Raises ``InputError`` for a wrong name or value.
    """
    table = _table(path)
    engine = engine.split("-")[0]
    names = ("default", gpu.family, f"link {link or gpu.link}", engine, f"{engine} {gpu.family}")
    values: dict[str, Any] = {}
    sources: list[str] = []
    for name in names:
        section = dict(table.get(name, {}))
        if "source" in section:
            sources.append(f"{name}: {section.pop('source')}")
        values |= section
    values |= changed or {}
    known = [item.name for item in fields(Constants)]
    for name in values:
        if name not in known:
            raise InputError(
                f"unknown constant {name!r}", field="constants", remedy=known_names(name, known)
            )
    return Constants(**values, source="; ".join(sources))
