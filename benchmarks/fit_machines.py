"""Choose the constants of data-sheet machines on measured rows, and judge them on rows held out.

ORSCHED_DATA=... python -m benchmarks.fit_machines [--write] reads aic/*.csv there: aggregated
configurations on up to eight GPUs. A configuration is a GPU, model, precision, layout and engine.
By the checksum of its name one in three is held out: nothing is fitted to any of its rows. The
constants of ``FITTED`` are chosen by least squares over logarithms of TPOT and TTFT, with a loss
that is linear for large errors, from the values in the table on. No dice are thrown. Times are
those of a steady state in closed form (``steady``); rows whose requests do not all fit into memory
are left out of the fit. ``--write`` replaces ``orsched/calibration/tables/constants.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import zlib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.calibration import gpus
from orsched.calibration.data_sheet import Layout, data_sheet_cost, fitting
from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.planning.validation.errors import machine_of, precision_of
from orsched.planning.validation.served import Served, read_served

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration.gpus import Constants, Gpu
    from orsched.calibration.shapes import ModelShape
    from orsched.costs import CostModel

Table = dict[str, dict[str, Any]]

TABLE = Path(gpus.__file__).parent / "tables" / "constants.json"
BUDGET = 8192
FIRST_WAVE = 0.1  # share of the requests: those that arrive at once
HELD = 3  # one configuration in so many is held out

FAMILY = {
    "gemm_compute": (0.05, 0.92), "gemm_memory": (0.3, 0.92), "expert_compute": (0.02, 0.92),
    "expert_memory": (0.2, 0.92), "attention_compute": (0.05, 0.92),
    "attention_memory": (0.1, 0.92),
    "expert_layer_us": (0, 200),
}  # fmt: skip
ENGINE = {
    "layer_us": (0, 200), "step_us": (0, 20_000), "request_us": (0, 300), "front_end_ms": (0, 2000),
    "front_client_ms": (0, 50),
}  # fmt: skip
FITTED: dict[tuple[str, str], tuple[float, float]] = {
    **{(family, name): ends for family in ("hopper", "blackwell") for name, ends in FAMILY.items()},
    **{(engine, name): ends for engine in ("vllm", "sglang", "trtllm")
       for name, ends in ENGINE.items()},
    ("link nvswitch", "link_us"): (0, 100),
    ("link nvswitch", "link_share"): (0.05, 1),
    ("default", "overlap"): (0, 0.3),
    ("default", "uneven"): (1, 3),
}  # fmt: skip
"""Section and name of each constant that is fitted, with the least and the largest value."""


class Case(NamedTuple):
    """A configuration with its measured row."""

    row: Served
    gpu: Gpu
    shape: ModelShape
    layout: Layout
    key: str

    @property
    def held(self) -> bool:
        """Whether nothing is fitted to it."""
        return zlib.crc32(self.key.encode()) % HELD == 0


def cases(files: Sequence[Path]) -> list[Case]:
    """Return the configurations that the machines know and whose requests fit into memory."""
    found, seen = [], set()
    for file in files:
        for row in read_served(file) or ():
            layout = Layout(row.tensor, row.pipeline, row.data, row.expert)
            if row.refused or len(row.measured) < 2:
                continue
            try:
                gpu, shape, *_ = machine_of(row)
            except InputError:
                continue
            room = fitting(gpu, shape, layout).kv_tokens
            key = f"{gpu.name} {shape.name} {precision_of(row)} {layout} {row.engine}"
            same = (
                key,
                row.prompt_tokens,
                row.output_tokens,
                row.concurrency,
                *row.measured.values(),
            )
            if room < row.concurrency * (row.prompt_tokens + row.output_tokens) or same in seen:
                continue
            seen.add(same)
            found.append(Case(row, gpu, shape, layout, key))
    return found


def constants(table: Table, case: Case) -> Constants:
    """Return the constants of a case from a table, section after section."""
    family, engine = case.gpu.family, case.row.engine
    link = "infiniband" if case.layout.gpus > case.gpu.node else case.gpu.link
    names = ("default", family, f"link {link}", engine, f"{engine} {family}")
    values: dict[str, Any] = {}
    for name in names:
        values |= table.get(name, {})
    known = {item.name for item in fields(gpus.Constants)}
    return gpus.Constants(**{name: value for name, value in values.items() if name in known})


def steady(cost: CostModel, row: Served) -> tuple[float, float]:
    """Return TPOT and TTFT in seconds of requests in flight that are out of step.

    While a request yields its tokens, each of the others is prefilled once, in chunks beside the
    rounds. A first token comes after half a round and the own chunks; of the first wave, after half
    of all prompts.
    """
    clients, prompt = row.concurrency, row.prompt_tokens
    context = prompt + row.output_tokens // 2
    a_round = cost.round_ns(clients, clients * context, context)
    beside = (clients - 1, (clients - 1) * context, context if clients > 1 else 0)
    others = cost.round_ns(*beside) if clients > 1 else 0
    own, before = 0, 0
    chunk = max(1, BUDGET - clients + 1)
    count = 0
    while before < prompt:
        tokens = min(chunk, prompt - before)
        own += cost.mixed_ns([tokens], *beside, [before]) if clients > 1 else cost.prefill_ns(
            [tokens], [before]
        )  # fmt: skip
        before += tokens
        count += 1
    more = max(0, own - count * others)
    tpot = a_round + (clients - 1) * more / row.output_tokens
    ttft = a_round / 2 * (clients > 1) + own + FIRST_WAVE * (clients - 1) / 2 * more
    return tpot / NS_PER_S, ttft / NS_PER_S


def times(table: Table, every: Sequence[Case]) -> np.ndarray:
    """Return TPOT and TTFT of each case, a row each."""
    costs: dict[str, tuple[CostModel, Constants]] = {}
    found = np.empty((len(every), 2))
    for place, case in enumerate(every):
        if case.key not in costs:
            known = constants(table, case)
            cost = data_sheet_cost(case.gpu, case.shape, case.layout, case.row.engine, known)
            costs[case.key] = cost, known
        cost, known = costs[case.key]
        tpot, ttft = steady(cost, case.row)
        front_ms = known.front_end_ms + case.row.concurrency * known.front_client_ms
        found[place] = tpot, ttft + front_ms / 1000
    return found


def with_values(table: Table, values: Sequence[float]) -> Table:
    """Return the table with fitted values in it."""
    found = {name: dict(section) for name, section in table.items()}
    for (section, name), value in zip(FITTED, values, strict=True):
        found.setdefault(section, {})[name] = float(f"{value:.4g}")
    return found


def start(table: Table) -> np.ndarray:
    """Return where the search begins: the table's values, inside of their ends."""
    found = []
    for (section, name), (low, high) in FITTED.items():
        value = table.get(section, {}).get(name, table["default"].get(name, (low + high) / 4))
        found.append(min(max(value, low + 1e-3 * (high - low)), high - 1e-3 * (high - low)))
    return np.array(found)


def fit(table: Table, every: Sequence[Case], evaluations: int) -> dict[str, Any]:
    """Return the table whose constants give the least error on cases that are not held out."""
    from scipy.optimize import least_squares

    chosen = [case for case in every if not case.held]
    measured = np.array([[case.row.measured["tpot"], case.row.measured["ttft"]] for case in chosen])
    weight = np.array([1.0, 0.35])
    low, high = np.array(list(FITTED.values())).T
    first = start(table)

    def residuals(values: np.ndarray) -> np.ndarray:
        return (weight * np.log(times(with_values(table, values), chosen) / measured)).ravel()

    found = least_squares(
        residuals, first, bounds=(low, high), loss="soft_l1", f_scale=0.1, max_nfev=evaluations,
        x_scale=np.maximum(first, (high - low) / 50), diff_step=1e-2,
    )  # fmt: skip
    return with_values(table, found.x)


def recorded(table: Table, every: Sequence[Case]) -> Table:
    """Return the table with the source of what was fitted, and the errors on rows held out."""
    said = "fitted to measured rows of AIConfigurator by benchmarks.fit_machines"
    found = {name: dict(section) for name, section in table.items()}
    for section, _ in FITTED:
        names = [name for other, name in FITTED if other == section]
        words = str(found[section].get("source", "")).partition("; ")[0]
        new = said if len(names) > 3 else f"{words}; {', '.join(names)} {said}"
        found[section]["source"] = new
    found["fit"] = {"families": sorted({case.gpu.family for case in every})}
    errors = np.abs(_errors(table, every)[:, 0])
    for words, experts in (("dense", False), ("experts", True)):
        mine = [bool(c.shape.experts) is experts and c.held for c in every]
        found["fit"][words] = round(float(np.median(errors[mine])), 3)
    return found


def _errors(table: Table, every: Sequence[Case]) -> np.ndarray:
    measured = np.array([[case.row.measured["tpot"], case.row.measured["ttft"]] for case in every])
    found: np.ndarray = times(table, every) / measured - 1
    return found


def report(table: Table, every: Sequence[Case]) -> str:
    """Return the table of errors in per cent: in sample and held out, dense and with experts."""
    errors = _errors(table, every)
    lines = ["models   split     configurations  rows   TPOT %  bias %  TTFT %  bias %"]
    for words, experts in (("dense", False), ("experts", True)):
        for kind, held in (("fitted", False), ("held out", True)):
            mine = np.array([bool(c.shape.experts) is experts and c.held is held for c in every])
            keys = {case.key for case, one in zip(every, mine, strict=True) if one}
            e = errors[mine]
            m, b = 100 * np.median(np.abs(e), axis=0), 100 * np.median(e, axis=0)
            lines.append(
                f"{words:<8} {kind:<9} {len(keys):<15} {mine.sum():<6} {m[0]:<7.1f} {b[0]:<+7.1f} "
                f"{m[1]:<7.1f} {b[1]:+.1f}"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, print the errors, and write the table if asked to."""
    parser = argparse.ArgumentParser("fit_machines", description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the table of constants")
    parser.add_argument("--evaluations", type=int, default=12, help="steps of the search")
    given = parser.parse_args(arguments)
    if "ORSCHED_DATA" not in os.environ:
        raise SystemExit("ORSCHED_DATA must name the folder that holds aic/*.csv")
    every = cases(sorted((Path(os.environ["ORSCHED_DATA"]) / "aic").glob("*.csv")))
    table = json.loads(TABLE.read_text())
    if given.evaluations:
        table = fit(table, every, given.evaluations)
    print(report(table, every))
    if given.write:
        TABLE.write_text(json.dumps(recorded(table, every), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
