"""What a run on a device leaves behind for others: measured rows, steps of runs, a machine's file.

The steps are CSV as ``orsched calibrate --judge`` reads it; docs/run.md says how to contribute
the files.
"""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orsched.calibration.observed import step_contents
from orsched.calibration.step_files import judge, read_steps, write_measurements
from orsched.data.schedule import DECODE, MIXED, PREFILL
from orsched.files import save_cost
from orsched.files.document import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.calibration.candidates import Calibration
    from orsched.calibration.measurements import Measurements
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

PHASES = {PREFILL: "prefill", DECODE: "decode", MIXED: "mixed"}
COLUMNS = (
    "phase", "start_ns", "end_ns", "rounds", "active", "context_sum", "context_max", "prompts",
    "tokens", "longest", "cached", "attended",
)  # fmt: skip


def write_steps(instance: Instance, trace: Schedule, path: Path) -> None:
    """Write one line a step or run of rounds, with what was in it."""
    steps = step_contents(instance, trace)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    columns = [getattr(steps, name).tolist() for name in COLUMNS[1:]]
    for phase, *rest in zip(steps.phase.tolist(), *columns, strict=True):
        writer.writerow([PHASES[phase], *rest])
    write_text(path, text.getvalue())


def write_rows(steps: Measurements, path: Path) -> None:
    """Write what was measured, as ``orsched calibrate --measurements`` does."""
    write_measurements(steps, path)


def write_machine(
    found: Calibration, facts: dict[str, Any], runs: list[Path], path: Path
) -> dict[str, Any]:
    """Write the best cost model as a machine's file, judged by runs; return what stands in it."""
    best = found.candidate()
    assert best.cost is not None
    verdicts = [judge(best.cost, run.name, read_steps(run)).to_dict() for run in runs]
    worst = max((abs(verdict["error"]) for verdict in verdicts), default=None)
    machine = dict(facts) | {"date": datetime.now(UTC).date().isoformat()}
    if worst is not None:
        machine["error"] = f"sums of {len(verdicts)} runs within {worst:.1%}"
    report = {"machine": machine, **found.report(best.model), "runs": verdicts}
    save_cost(best.cost, path, report)
    return report
