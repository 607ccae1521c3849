"""GPUs by their data sheets, and the shares of their peaks that kernels reach."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, known_names
from orsched.common.scalars import is_number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PRODUCTS = ("bf16", "fp8", "int8", "mxfp4", "fp4")  # types that matrices are multiplied in
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
        if product not in PRODUCTS:
            remedy = known_names(product, PRODUCTS)
            raise InputError(f"unknown type {product!r}", field="product", remedy=remedy)
        if product == "mxfp4":
            product = "fp8" if "fp4" in peaks else "bf16"
        return peaks.get(product, self.flops)


UNITS = {
    "tflops": ("flops", 10**12),
    "gb": ("memory_bytes", 10**9),
    "gb_s": ("bandwidth", 10**9),
    "link_gb_s": ("link_bandwidth", 10**9),
}
"""The numbers of a data sheet: what they are here, and their unit."""


def _gpu(name: str, row: dict[str, Any]) -> Gpu:
    sizes = {own: round(row.pop(given) * unit) for given, (own, unit) in UNITS.items()}
    narrow = tuple((kind, round(peak * 10**12)) for kind, peak in row.pop("narrow").items())
    return Gpu(name, narrow=narrow, **row, **sizes)


GPUS = {
    name: _gpu(name, row)
    for name, row in json.loads(TABLES.joinpath("gpus.json").read_text("utf-8")).items()
}
"""By name."""


@dataclass(frozen=True)
class Constants:
    """Shares of peaks, and times, of kernels and of the host.

    Attributes:
        gemm_compute, gemm_memory, expert_compute, expert_memory: shares of the peaks that matrix
            products reach, without and with experts.
        attention_compute, attention_memory: the same of attention in prompts and in rounds.
        overlap: share of the shorter of reading and computing that the longer does not hide.
        uneven: time of the fullest group of experts by that of an average one.
        layer_us, expert_layer_us: small kernels of a layer, and what one with experts adds.
        eager_layer_us: least time of a layer in a step with prompts, which the host launches.
        step_us, request_us: the host in each step, and for each request of a round.
        front_end_ms, front_client_ms: outside of all steps, and for each request in flight.
        memory_share: share of the memory that weights and caches may take.
        link_us, link_gpu_us, link_share: of an operation over GPUs: its time, what each GPU adds,
            and the share of the link's bandwidth.
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
    request_us: float
    front_end_ms: float
    front_client_ms: float
    memory_share: float
    link_us: float
    link_gpu_us: float
    link_share: float
    source: str = ""

    def __post_init__(self) -> None:
        for item in fields(self):
            value, share = (
                getattr(self, item.name),
                item.name.endswith(("compute", "memory", "share")),
            )
            most, least = (1, 1e-6) if share else (10**6, 0)
            if item.name != "source" and not (is_number(value) and least <= value <= most):
                wanted = "a share in (0, 1]" if share else "a number from 0 to 1,000,000"
                problem = f"{value!r} is not {wanted}"
                raise InputError(problem, field=item.name, remedy="such as 0.6")


def _table(path: Path | None) -> dict[str, Any]:
    """Return the table of the package, with the sections of a file in place of its own."""
    if path is None:
        return _SHIPPED
    from orsched.files.text import locating, parse_json, read_text

    with locating(path):
        given = parse_json(read_text(path))
        if not isinstance(given, dict) or not all(isinstance(v, dict) for v in given.values()):
            raise InputError("is not an object of objects", remedy="as tables/constants.json")
        return _SHIPPED | given


_SHIPPED: dict[str, Any] = json.loads(TABLES.joinpath("constants.json").read_text("utf-8"))


def _require_known(gpu: Gpu, engine: str, link: str, table: dict[str, Any]) -> None:
    """Raise ``InputError`` for a name of a family, a link or an engine that has no constants."""
    families = dict.fromkeys(each.family for each in GPUS.values())
    links = [name.removeprefix("link ") for name in table if name.startswith("link ")]
    others = {"default", "fit", *families}
    engines = [name for name in table if " " not in name and name not in others]
    for what, name, known in (
        ("engine", engine, engines),
        ("link", link, links),
        ("family", gpu.family, ["", *families, *table]),
    ):
        if name not in known:
            shown = families if what == "family" else known
            raise InputError(
                f"unknown {what} {name!r}", field=what, remedy=known_names(name, shown)
            )


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
    single constants. Raises ``InputError`` for an unknown name, or a wrong value.
    """
    table, link = _table(path), link or gpu.link
    engine = str(engine).split("-")[0]
    _require_known(gpu, engine, link, table)
    names = ("default", gpu.family, f"link {link}", engine, f"{engine} {gpu.family}")
    values: dict[str, Any] = {}
    sources: list[str] = []
    for name in names:
        section = dict(table.get(name, {}))
        sources += [f"{name}: {section.pop('source')}"] if "source" in section else []
        values |= section
    values |= changed or {}
    known = [item.name for item in fields(Constants) if item.name != "source"]
    for name in values.keys() - set(known):
        near = known_names(name, known)
        raise InputError(f"unknown constant {name!r}", field="constant", remedy=near)
    return Constants(**values, source="; ".join(sources))


def fit_error(gpu: Gpu, experts: bool) -> str:
    """Return how far data-sheet machines of a GPU's family were off, in words; "" if not known."""
    fit, kind = _SHIPPED["fit"], "experts" if experts else "dense"
    words = f"TPOT of held-out rows missed by {100 * fit[kind]:.1f} % in the median"
    return words if gpu.family in fit["families"] else ""
