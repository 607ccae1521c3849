"""Measured runs, and the steps of runs, against a machine that is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.calibration.catalogue import cost_words, read_machine
from orsched.calibration.runs import RUN_FORMAT, Server, read_run, recorded_settings
from orsched.calibration.step_files import judge, read_steps
from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.files.sheets import is_spreadsheet
from orsched.files.text import head_of
from orsched.instances.readers import detect
from orsched.instances.readers.bench_files import BENCHES

if TYPE_CHECKING:
    from os import PathLike

    from orsched.views.planning_charts import Row

_FIGURES = {"tpot": "mean TPOT", "ttft": "mean TTFT", "makespan": "makespan"}


def kind_of(path: str | PathLike[str]) -> str:
    """Return what a file holds: ``steps`` or requests of a ``run``; "": something else."""
    if is_spreadsheet(path):
        return ""
    lines = (line for line in head_of(Path(path)).splitlines() if not line.startswith("#"))
    header = {name.strip() for name in next(lines, "").split(",")}
    if {"phase", "start_ns", "end_ns"} <= header:
        return "steps"
    if "first_token_s" in header:
        return "run"
    try:
        form = detect(Path(path)).partition(":")[0]
    except InputError:
        return ""
    return "run" if form == RUN_FORMAT or (form in BENCHES and BENCHES[form].first) else ""


def rows_of_run(
    path: str | PathLike[str], kind: str, machine: str | None, clients: int | None
) -> list[Row]:
    """Return a row for each metric of a run, simulated with the rules of vLLM, or of its steps.

    ``clients``: the most requests at once, where no ``meta.json`` says so beside the run. Steps are
    judged by the sum of their times. Raises ``InputError`` for a wrong file, and without a machine.
    """
    if machine is None:
        remedy = "a machine of orsched info machines, or a cost-model file"
        problem = "a measured run does not name its machine"
        raise InputError(problem, file=str(path), field="--cost", remedy=remedy)
    cost, memory = read_machine(machine)
    file = Path(path)
    pairs: list[tuple[str, float, float]]
    words: dict[str, Any] = {"id": file.name, "model": cost_words(cost)}
    if kind == "steps":
        found = judge(cost, file.name, read_steps(file))
        took, said = (sum(x.values()) / NS_PER_S for x in (found.measured_ns, found.predicted_ns))
        pairs = [("makespan", took, said)]
    else:
        settings: dict[str, Any] = {}
        if memory is not None:
            settings = {"memory_blocks": memory.blocks, "block_tokens": memory.block_tokens}
        settings |= recorded_settings(file) | ({} if clients is None else {"clients": clients})
        if "clients" not in settings:
            problem = "the most requests that the server ran at once are not known"
            raise InputError(problem, file=str(path), field="--clients", remedy="--clients J")
        run = read_run(file)
        times = run.simulate(cost, Server(**settings))[2]
        measured, predicted = run.times.figures(), times.figures()
        pairs = [(name, measured[of], predicted[of]) for name, of in _FIGURES.items()]
        tokens = int(run.times.tokens.sum())
        pace = [tokens / each["makespan"] for each in (measured, predicted)]
        pairs.append(("throughput", pace[0], pace[1]))
        words |= {"pace": pace}
    return [
        {"metric": name, "measured": took, "predicted": said, "error": said / took - 1, **words}
        for name, took, said in pairs
        if took
    ]
