"""A cost model from a profile of kernels: which of them a step runs, and how often."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orsched.calibration.profile_tables import (
    all_reduce_points,
    all_reduce_rows,
    attention_rows,
    expert_rows,
    kernel_rows,
)
from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.costs.profiled_kernels import from_kernels

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orsched.calibration.profile_tables import KernelRow
    from orsched.calibration.shapes import ModelShape
    from orsched.costs import ProfiledCost
    from orsched.costs.profiled_kernels import AttentionRow


TABLES = ("dense", "attention", "per_sequence", "moe", "all_reduce")
_NEEDED = ("dense", "attention")
_ABOVE = 6  # folders above the tables in which ``hardware.yaml`` is looked for

LAYOUT = "DIR/tp1/dense.csv and DIR/tp1/attention.csv"


@dataclass(frozen=True)
class ProfileFiles:
    """The tables of one profile; None: not there."""

    dense: Path
    attention: Path
    per_sequence: Path | None = None
    moe: Path | None = None
    all_reduce: Path | None = None
    hardware: Path | None = None
    tensor_parallel: int = 1  # GPUs that share each layer
    unused: tuple[str, ...] = ()  # files of the layout that no cost is made of
    rounds: Path | None = None  # attention of rounds, where it has a table of its own

    def to_dict(self) -> dict[str, str]:
        """Return the tables by name, for reports."""
        found = {name: getattr(self, name) for name in (*TABLES, "hardware", "rounds")}
        return {name: str(path) for name, path in found.items() if path is not None}


def find_profile(folder: Path, tensor_parallel: int = 1) -> ProfileFiles:
    """Return the tables in a variant's folder, in one above it with no choice, or in ``tp<N>``.

    A folder with the Parquet tables of AIConfigurator has them for all numbers of GPUs.

    Raises:
        InputError: no such tables, more than one profile, or none of this tensor parallelism.
    """
    if not folder.is_dir():
        raise InputError("is not a directory", file=str(folder), remedy=LAYOUT)
    published = _published(folder, tensor_parallel)
    if published is not None:
        return published
    own = re.fullmatch(r"tp(\d+)", folder.resolve().name)
    if (folder / "dense.csv").is_file():
        if own is not None and int(own[1]) != tensor_parallel:
            raise _other(folder, tensor_parallel, [folder])
        return _tables(folder, tensor_parallel)
    variants = sorted({path.parent.parent for path in _dense(folder, "**/")})
    if len(variants) > 1:
        names = ", ".join(str(path.relative_to(folder)) for path in variants[:4])
        raise InputError(
            f"holds {len(variants)} profiles: {names}{', ...' if len(variants) > 4 else ''}",
            file=str(folder),
            remedy="give the folder of one of them",
        )
    if not variants:
        raise InputError("holds no profile", file=str(folder), remedy=LAYOUT)
    chosen = variants[0] / f"tp{tensor_parallel}"
    if not (chosen / "dense.csv").is_file():
        raise _other(folder, tensor_parallel, [path.parent for path in _dense(variants[0])])
    return _tables(chosen, tensor_parallel)


def _published(folder: Path, tensor_parallel: int) -> ProfileFiles | None:
    """Return the tables of AIConfigurator in a folder, None without one of products."""
    from orsched.calibration import published_tables as tables

    dense = tables.published_file(folder, tables.GEMM)
    if dense is None:
        return None
    attention, rounds = (
        tables.published_file(folder, pattern, needed=True)
        for pattern in (tables.CONTEXT, tables.GENERATION)
    )
    assert attention is not None
    reduce = tables.published_file(folder, tables.REDUCE)
    return ProfileFiles(
        dense, attention, all_reduce=reduce, tensor_parallel=tensor_parallel, rounds=rounds
    )


def _dense(folder: Path, above: str = "") -> list[Path]:
    return [path for path in folder.glob(f"{above}tp*/dense.csv") if path.is_file()]


def _tables(folder: Path, tensor_parallel: int) -> ProfileFiles:
    found = {name: folder / f"{name}.csv" for name in TABLES}
    for name in _NEEDED:
        if not found[name].is_file():
            raise InputError("is not there", file=str(found[name]), remedy=LAYOUT)
    known = {name: path for name, path in found.items() if path.is_file()}
    above = (parent / "hardware.yaml" for parent in folder.resolve().parents[:_ABOVE])
    unused = sorted(p.name for p in folder.glob("*.csv") if p.stem not in TABLES)
    return ProfileFiles(
        **known,
        hardware=next((path for path in above if path.is_file()), None),
        tensor_parallel=tensor_parallel,
        unused=tuple(unused),
    )


def _other(folder: Path, wanted: int, there: list[Path]) -> InputError:
    names = ", ".join(sorted(path.resolve().name for path in there))
    return InputError(
        f"has no tp{wanted}, but {names}", file=str(folder), field="tp", remedy="--tp of those"
    )


A_LAYER = {
    "layernorm": 2,
    "qkv_proj": 1,
    "qk_norm": 1,
    "rotary_emb": 1,
    "o_proj": 1,
}
"""Kernels that every layer runs, and how often: a norm is before attention and before the MLP."""

MLP = ("gate_up_proj", "act_fn", "down_proj")  # kernels of a layer without experts
A_STEP = ("embedding", "final_layernorm", "lm_head", "sampler")  # kernels that a step runs once

MOST_LAYERS = 10_000

_BYTES = 2  # of a number that is reduced, unless said otherwise: 16 bits


@dataclass(frozen=True)
class ModelFacts:
    """What a profile does not say of its model; None: not known.

    ``times_a_step``: how often a step runs a kernel, where that is not what its name says.
    """

    layers: int  # of the whole model: the profile has the times of one
    hidden: int | None = None  # numbers of a token between layers, for all-reduce times by bytes
    dense_layers: int = 0  # of a mixture of experts, layers that have none
    expert_parallel: int = 1  # groups of GPUs among which the experts are divided
    activated: int | None = None  # experts a step; None: on average, of random choices
    times_a_step: Mapping[str, int] = field(default_factory=dict)
    shape: ModelShape | None = None  # for tables by the sizes of products

    def __post_init__(self) -> None:
        whole_number(self.layers, "layers", minimum=1, maximum=MOST_LAYERS)
        whole_number(self.dense_layers, "dense_layers", maximum=self.layers)
        whole_number(self.expert_parallel, "expert_parallel", minimum=1)
        for name in ("hidden", "activated"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name, minimum=1)
        for name, times in self.times_a_step.items():
            whole_number(times, name)


def profile_cost(files: ProfileFiles, model: ModelFacts, fixed_ns: int = 0) -> ProfiledCost:
    """Return the cost of steps of the whole model, from the tables of a profile.

    A step runs the kernels of ``dense`` and ``per_sequence`` as often as their names say
    (``A_LAYER``, ``MLP``, ``A_STEP``) or ``model.times_a_step`` does, attention once a layer, and,
    on several GPUs, an all-reduce after attention and after the MLP of each layer and one after the
    embedding. The tables have nothing of the host: that is ``fixed_ns``. Raises ``InputError``: a
    table is wrong, a kernel is not known, or all-reduce times are needed and not there; names file,
    row, field and remedy.
    """
    dense, sequences, attention = _rows(files, model)
    if files.tensor_parallel > 1:
        dense += _all_reduces(files, sorted({size for _, size, _ in dense}), model)
    times = {}
    for path, rows in ((files.dense, dense), (files.per_sequence, sequences)):
        for kernel in dict.fromkeys(name for name, _, _ in rows):
            times[kernel] = _times(kernel, model, path, experts=files.moe is not None)
    _known_times(model, times)
    used = {kernel: count for kernel, count in times.items() if count}
    try:
        return from_kernels(
            [row for row in dense if row[0] in used],
            attention,
            times_a_step=used,
            layers=model.layers,
            fixed_ns=fixed_ns,
            per_sequence=[row for row in sequences if row[0] in used],
        )
    except InputError as error:
        path = files.attention if error.field in ("prefill", "decode") else files.dense
        raise error.located(file=str(path)) from None


def _rows(
    files: ProfileFiles, model: ModelFacts
) -> tuple[list[KernelRow], list[KernelRow], list[AttentionRow]]:
    """Return the rows of a profile in either layout: by tokens, by sequences, of attention."""
    if files.rounds is None:
        dense = kernel_rows(files.dense, "tokens")
        path = files.per_sequence
        sequences = [] if path is None else kernel_rows(path, "sequences")
        if files.moe is not None:
            dense += expert_rows(files.moe, model.expert_parallel, model.activated)
        return dense, sequences, attention_rows(files.attention)
    from orsched.calibration.published_tables import attention_of, product_rows

    shape, tp = model.shape, files.tensor_parallel
    if shape is None:
        problem, remedy = "these tables go by the sizes of products", "--model NAME or --config"
        raise InputError(problem, file=str(files.dense), field="model", remedy=remedy)
    if shape.experts or shape.latent or shape.linear or shape.windowed:
        problem = f"these tables have no times of all layers of {shape.title}"
        remedy = "a dense model with grouped heads of keys; or --gpu NAME"
        raise InputError(problem, file=str(files.dense), field="model", remedy=remedy)
    dense, sequences = product_rows(files.dense, shape, tp)
    return dense, sequences, attention_of(files.attention, files.rounds, shape, tp)


def _times(kernel: str, model: ModelFacts, path: Path | None, *, experts: bool) -> int:
    """Return how often a step runs a kernel."""
    if kernel in model.times_a_step:
        return model.times_a_step[kernel]
    if kernel in A_LAYER:
        return A_LAYER[kernel] * model.layers
    if kernel in MLP:
        return model.dense_layers if experts else model.layers
    if kernel == "moe":
        return model.layers - model.dense_layers
    if kernel == "all_reduce":
        return 2 * model.layers + 1
    if kernel in A_STEP:
        return 1
    raise InputError(
        f"how often a step runs the kernel {kernel!r} is not known",
        file=str(path),
        field="layer",
        remedy=f"say it: --kernel {kernel}=N for N times a step, 0 for not at all; "
        + known_names(kernel, (*A_LAYER, *MLP, *A_STEP), "known kernels: "),
    )


def _known_times(model: ModelFacts, found: Mapping[str, int]) -> None:
    for kernel in model.times_a_step:
        if kernel not in found:
            raise InputError(
                f"the profile has no kernel {kernel!r}",
                field="kernel",
                remedy=known_names(kernel, found),
            )


def _all_reduces(
    files: ProfileFiles, tokens: list[int], model: ModelFacts
) -> list[tuple[str, int, int]]:
    path = files.all_reduce or files.hardware
    if path is None:
        raise InputError(
            f"no times of all-reduce on {files.tensor_parallel} GPUs",
            file=str(files.dense.parent),
            field="all_reduce",
            remedy="put all_reduce.csv with tokens,time_us or bytes,time_us beside dense.csv, or "
            "hardware.yaml with samples above it",
        )
    token_bytes = model.hidden and model.hidden * _BYTES
    if files.rounds is not None:
        from orsched.calibration.published_tables import reduce_points

        by, points = "bytes", reduce_points(path, files.tensor_parallel)
    else:
        by, points = all_reduce_points(path)
    return all_reduce_rows(path, by, points, tokens, token_bytes)


_CONFIG = {"layers": "num_hidden_layers", "hidden": "hidden_size"}


def config_facts(path: Path) -> dict[str, int]:
    """Return layers and hidden size of any family's ``config.json``; raises ``InputError``."""
    from orsched.calibration.config_fields import dense_layers
    from orsched.files.text import locating, parse_json, read_text

    file = path / "config.json" if path.is_dir() else path
    with locating(file):
        values: Any = parse_json(read_text(file))
        if isinstance(values, dict) and isinstance(values.get("text_config"), dict):
            values = values["text_config"]
        if not isinstance(values, dict):
            raise InputError("holds no object", remedy="a model's config.json")
        found = {}
        for own, theirs in _CONFIG.items():
            if theirs not in values:
                raise InputError(
                    "the field is missing", field=theirs, remedy="add it, or give --layers N"
                )
            most = MOST_LAYERS if own == "layers" else 2**24
            found[own] = whole_number(values[theirs], theirs, minimum=1, maximum=most)
        return found | {"dense_layers": dense_layers(values, found["layers"])}
