"""Named machines: a model on a device, and the cost model of the two."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.calibration.data_sheet import (
    BLOCK_TOKENS,
    Layout,
    data_sheet_cost,
    fitting,
    least_gpus,
    unshared,
)
from orsched.calibration.gpus import GPUS, constants_of, fit_error
from orsched.calibration.shapes import MODELS, SHORT
from orsched.calibration.weight_formats import FORMATS
from orsched.common.columns import whole_number
from orsched.common.errors import InputError, nearest
from orsched.common.units import NS_PER_S
from orsched.costs import AffineCost
from orsched.data.memory import BlockMemory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orsched.calibration.gpus import Gpu
    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker


MEASURED, PAPER, DATA_SHEET = "measured", "paper", "data sheet"
SUFFIX = "-sheet"
PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True)
class Machine:
    """A model on a device under a name that every option for a cost model takes.

    Attributes:
        name: such as ``h100-llama3-8b`` or ``h100-llama3-8b-sheet``.
        kind: ``measured``, from steps that a device took; ``paper``, as its authors give it;
            ``data sheet``, derived from peaks, with no measurement.
        title: model and device in words.
        cost: its cost model.
        source: where the numbers are from.
        facts: more of it: device, date, software and error of measurements; ``kv_tokens``, the
            tokens that fit into its KV cache.
    """

    name: str
    kind: str
    title: str
    cost: CostModel
    source: str
    facts: dict[str, Any] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return f"Machine {self.name}: {self.words}"

    @property
    def memory(self) -> BlockMemory | None:
        """Its KV cache as paged memory, in the blocks of its engine; None where it is not known."""
        return memory_of(self.facts)

    @property
    def words(self) -> str:
        """What it is in one line: ``roofline, Llama 3.1 8B on NVIDIA H100 (data sheet)``."""
        kind = self.source if self.kind == PAPER else self.kind
        error = f"; {self.facts['error']}" if "error" in self.facts else ""
        return f"{self.cost.model}, {self.title} ({kind}{error})"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "title": self.title,
            "model": self.cost.model,
            "source": self.source,
            **self.facts,
            "cost": {"model": self.cost.model, **self.cost.to_dict()},
        }


PANG = Machine(
    "pang-llama65b-ascend",
    PAPER,
    "LLaMA-65B on Ascend 910",
    AffineCost(),
    "Pang et al.",
    {
        "device": "8 Ascend devices",
        "reference": "arXiv:2502.15763, section V-A",
        "kv_tokens": 131_072,
        "block_tokens": 128,
    },
)
"""The default of instances: what Pang et al. measured."""


@cache
def machines() -> tuple[Machine, ...]:
    """Return the machines of the catalogue: measured ones, those of papers, of data sheets.

    Of the last there is one for each GPU and model, on the least power of two of GPUs that hold it;
    ``machine`` knows more, such as ``h100x4-llama3-8b-sheet`` or ``h100-llama3-8b-fp8-sheet``.

    >>> "h100-llama3-8b" in {each.name for each in orsched.machines()}
    True
    """
    pairs = ((gpu, shape) for gpu in GPUS.values() for shape in MODELS.values())
    sizes = ((gpu.name, least_gpus(gpu, shape), shape.name) for gpu, shape in pairs)
    return (*measured(), *(_sheet(*size) for size in sizes if size[1] <= 8))


def measured() -> tuple[Machine, ...]:
    """Return the machines that were measured: by orsched, and in papers."""
    return (*_presets(), PANG)


def sheets_of(count: int) -> Iterator[Machine]:
    """Yield the data-sheet machines on so many GPUs, without models that they cannot hold."""
    for gpu in GPUS.values():
        for shape in MODELS.values():
            if least_gpus(gpu, shape) <= count and not unshared(shape, Layout(tp=count)):
                yield _sheet(gpu.name, count, shape.name)


@cache
def machine(name: str) -> Machine:
    """Return a machine by its name.

    Raises:
        InputError: there is none of that name; the message names those that are like it.

    >>> type(orsched.machine("a100-llama3-8b-sheet").cost).__name__
    'RooflineCost'
    """
    for found in measured():
        if found.name == name:
            return found
    for gpu, count, model, weights in _cuts(name):
        shape = MODELS[model].stored(weights)
        return _sheet(gpu, count or least_gpus(GPUS[gpu], shape), model, weights)
    near = _near(name)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError(
        f"unknown machine {name!r}", field="cost", remedy=f"{hint}orsched info machines"
    )


def _near(name: str) -> list[str]:
    """Return names that one may have meant: first of all that of the data sheet."""
    if _cuts(name + SUFFIX):
        return [machine(name + SUFFIX).name]
    return nearest(name, [each.name for each in machines()], most=3)


def _cuts(name: str) -> list[tuple[str, int | None, str, str | None]]:
    """Return (GPU, number of GPUs or None, model, format of weights or None) of a sheet's name."""
    found = []
    for gpu in GPUS:  # names have dashes
        rest = re.fullmatch(rf"{re.escape(gpu)}(?:x([1-9]\d{{0,2}}))?-(.+){SUFFIX}", name)
        if rest is None:
            continue
        count = None if rest[1] is None else int(rest[1])
        for weights in (None, *FORMATS):
            model = rest[2] if weights is None else rest[2].removesuffix(f"-{weights}")
            if SHORT.get(model, model) in MODELS and (weights is None or model != rest[2]):
                found.append((gpu, count, SHORT.get(model, model), weights))
    return found


@cache
def _sheet(gpu_name: str, count: int, model: str, weights: str | None = None) -> Machine:
    gpu, shape, layout = GPUS[gpu_name], MODELS[model].stored(weights), Layout(tp=count)
    room, kept = fitting(gpu, shape, layout), f"-{weights}" if weights else ""
    several = f"{count} x " if count > 1 else ""
    words = f" ({shape.formats.words})" if weights and shape.formats.words else ""
    error = {"error": said} if (said := fit_error(gpu, bool(shape.experts))) else {}
    return Machine(
        f"{gpu_name}{f'x{count}' if count > 1 else ''}-{model}{kept}{SUFFIX}",
        DATA_SHEET,
        f"{shape.title}{words} on {several}{gpu.title}",
        data_sheet_cost(gpu, shape, layout),
        f"{gpu.source}; {shape.source}; constants: {constants_of(gpu).source}",
        {"gpus": count, "kv_tokens": room.kv_tokens, **error},
    )


@cache
def _presets() -> tuple[Machine, ...]:
    """Return the measured machines: a cost-model file each, whose report says of what."""
    from orsched.files import load_fitted_cost

    found = []
    for path in sorted(PRESETS.glob("*.json")):
        cost, report = load_fitted_cost(path)
        facts = dict((report or {}).get("machine", {}))
        title, source = str(facts.pop("title", path.stem)), str(facts.pop("source", ""))
        found.append(Machine(path.stem, MEASURED, title, cost, source, facts))
    return tuple(found)


def memory_of(facts: Mapping[str, Any]) -> BlockMemory | None:
    """Return the paged memory that the facts of a machine state, None where they state none.

    Those are ``kv_tokens``, and ``block_tokens`` where blocks do not have 16 tokens; raises
    ``InputError`` for a number that is none.
    """
    tokens, size = facts.get("kv_tokens"), facts.get("block_tokens", BLOCK_TOKENS)
    if tokens is None:
        return None
    size = whole_number(size, "fit.machine.block_tokens", minimum=1)
    tokens = whole_number(tokens, "fit.machine.kv_tokens", minimum=size)
    return BlockMemory(tokens // size, size, "paged")


def _sheet_of(cost: Any) -> tuple[Any, ...] | None:
    """Return GPU, count, model, weights of a machine's name, or of a cost model that is one's."""
    if cost is None:
        return None
    named = isinstance(cost, (str, os.PathLike))
    name = os.fspath(cost) if named else next((m.name for m in _known() if m.cost == cost), "")
    return next(iter(_cuts(name) or _cuts(name + SUFFIX)), None)


def gpu_of(cost: CostModel | str | os.PathLike[str] | None) -> Gpu | None:
    """Return the GPU of a machine, None where it is not known."""
    return None if (found := _sheet_of(cost)) is None else GPUS[found[0]]


def kv_tokens_at(cost: CostModel | str | os.PathLike[str] | None, share: float) -> int | None:
    """Return the tokens that fit into a share of a machine's memory; without a data sheet those
    that it states, or None."""
    if (found := _sheet_of(cost)) is not None:
        gpu, shape = GPUS[found[0]], MODELS[found[2]].stored(found[3])
        return fitting(gpu, shape, Layout(tp=found[1] or least_gpus(gpu, shape)), share).kv_tokens
    memory = read_machine(cost)[1] if isinstance(cost, (str, os.PathLike)) else None
    return None if memory is None else memory.tokens


def read_cost(source: str | os.PathLike[str], base: Path | None = None) -> CostModel:
    """Return the cost model of ``read_machine``."""
    return read_machine(source, base)[0]


def read_machine(
    source: str | os.PathLike[str], base: Path | None = None
) -> tuple[CostModel, BlockMemory | None]:
    """Return cost model and memory of a machine's name, or of a cost-model file.

    What has a suffix ``.json`` or a folder in it, or is a file, is a file; its path is from
    ``base``. The memory is None where the machine, or the report in the file, does not state it.
    Raises ``InputError`` where there is neither, or the file is wrong.
    """
    text = os.fspath(source)
    path = Path(text) if base is None else base / text
    if not (text.endswith(".json") or os.path.split(text)[0] or os.path.isfile(path)):
        found = _read[text] = machine(text)
        return found.cost, found.memory
    from orsched.files import load_fitted_cost

    if base is not None and not os.path.exists(path):
        raise InputError(
            f"cost-model file {str(path)!r} does not exist",
            field="cost",
            remedy="give its path from the worker file, a machine (orsched info machines), or "
            "the cost model itself",
        )
    cost, report = load_fitted_cost(path)
    facts = (report or {}).get("machine")
    if (cost, words := error_words(report or {})) not in _fitted:
        _fitted.append((cost, words))
    try:
        return cost, memory_of(facts) if isinstance(facts, dict) else None
    except InputError as error:
        raise error.located(file=str(path)) from None


_read: dict[str, Machine] = {}  # of weights in other formats, too, which are not listed
_fitted: list[tuple[CostModel, str]] = []  # of files that were read, with the errors they state


def error_words(report: Mapping[str, Any]) -> str:
    """Return the error that the report of a fit states, in words; "" where it states none."""
    try:
        if "fit" not in report:
            mean, worst = (100 * float(report["errors"]["all"][name]) for name in ("mean", "worst"))
            return f"held-out steps are missed by {mean:.1f} % on average, {worst:.1f} % at most"
        run, held = report["fit"], report["fit"].get("errors_not_fitted")
        found = (held or run["errors"]).items()
        shown = ", ".join(f"{name} {100 * float(error):+.1f} %" for name, error in found)
        return f"errors on {'requests not fitted to' if held else 'the run fitted to'}: {shown}"
    except (KeyError, TypeError, ValueError, AttributeError):  # no such report, or another's
        return ""


_TOKENS = 2000


def cost_words(cost: CostModel, clients: int = 1) -> str:
    """Return the machine of the catalogue that has this cost model, or what the model says.

    A cost model without a name is described by two times: of a prefill, and of a round over all
    clients with contexts of 500 tokens. Where it was fitted, the error of the fit is beside it.
    """
    for found in _known() if cost.model == "roofline" else measured():
        if found.cost == cost:
            return found.words
    limit = cost.prefill_limit
    tokens = _TOKENS if limit is None else min(_TOKENS, limit)
    stage = cost.prefill_ns([tokens]) * 1000 / NS_PER_S
    error = next((f" ({words})" for known, words in _fitted if words and known == cost), "")
    active = max(1, clients)
    a_round = cost.round_ns(active, 500 * active, 500) * 1000 / NS_PER_S
    of = f"a round of {active}" if active > 1 else "a round"
    times = f"{_ms(stage)} for {tokens:,} prompt tokens, {_ms(a_round)} for {of}"
    return f"{cost.model}, {times}{error}"


def _known() -> Iterator[Machine]:
    """Yield the machines that were read, those of the catalogue, and other numbers of GPUs."""
    yield from tuple(_read.values())
    yield from machines()
    for count in (2, 4, 8, 16):
        yield from sheets_of(count)


def _ms(time_ms: float) -> str:
    """Return a time in milliseconds; a short one in nanoseconds, which it is a whole number of."""
    if time_ms < 0.001:
        return f"{round(time_ms * 1_000_000)} ns"
    return f"{time_ms:,.0f} ms" if time_ms >= 100 else f"{time_ms:.3g} ms"


def machine_words(instance: Instance) -> str:
    """Return in a line which cost model the times of an instance are of, its clients and memory.

    Such as ``affine, LLaMA-65B on Ascend 910 (Pang et al.), 200 clients, 1,024 blocks of 128 tokens
    (whole)``; equal workers once, and no memory where none limits.
    """
    kinds = Counter(_words(worker) for worker in instance.workers)
    return "; ".join(f"{n} x {words}" if n > 1 else words for words, n in kinds.items())


def _words(worker: Worker) -> str:
    clients = f"{worker.clients:,} client{'s' if worker.clients != 1 else ''}"
    words = f"{cost_words(worker.cost, worker.clients)}, {clients}"
    words += f", {worker.engine.partition('+')[0]}" if worker.engine else ""
    return words if worker.memory is None else f"{words}, {worker.memory.words}"
