"""Machines of the catalogue from measured steps: fit, judge by the runs beside, and write.

    python -m benchmarks.machine_presets            # print what would be written, and its errors
    python -m benchmarks.machine_presets --write    # write orsched/calibration/presets/

The measurements are not shipped: ``ORSCHED_DATA`` names the folder that holds them, a folder a
device. A machine is one entry of ``SOURCES``; docs/machines-and-calibration.md says how to add one.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import orsched
from orsched.calibration import GPUS, MODELS, fitting
from orsched.calibration.candidates import calibrate
from orsched.calibration.catalogue import PRESETS
from orsched.calibration.step_files import judge, read_measurements, read_steps
from orsched.files import save_cost


class Source(NamedTuple):
    """One machine: the files that it is made from, and what was measured.

    Attributes:
        calibration: CSV as ``orsched calibrate --measurements`` writes it, below the data folder.
        runs: pattern of the steps of runs that judge it.
        facts: title, device, date and software, as they stand in the file.
    """

    calibration: str
    runs: str
    facts: dict[str, Any]


SOURCES = {
    "h100-llama3-8b": Source(
        "h100/d_gsm8k_200slots_calibration.csv",
        "h100/d_gsm8k_200slots_*_steps.csv",
        {
            "title": "Llama 3.1 8B on NVIDIA H100 SXM 80 GB",
            "source": "orsched's own worker, orsched calibrate",
            "device": "NVIDIA H100 80GB HBM3, 700 W",
            "date": "2026-11-22",
            "software": "torch 2.11.0+cu130, transformers 5.17, bfloat16, Python 3.12",
            "measured_with": "200 slots, contexts of up to 700 tokens, stages of up to 2,048",
            "kv_tokens": fitting(GPUS["h100"], MODELS["llama3-8b"]).kv_tokens,
        },
    ),
}


def main() -> int:
    """Fit every machine; print errors of the runs; write the files if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write orsched/calibration/presets/")
    write = parser.parse_args().write
    folder = os.environ.get("ORSCHED_DATA")
    if folder is None:
        print("set ORSCHED_DATA to the folder with the measurements", file=sys.stderr)
        return 2
    for name, source in SOURCES.items():
        cost, report = made(Path(folder), source)
        print(f"{name}: {cost.model}")
        for run in report["runs"]:
            phases = ", ".join(f"{k} {v['error']:+.2%}" for k, v in run["phases"].items())
            print(f"  {run['file']}: {run['measured_s']:.2f} s, {run['error']:+.2%} ({phases})")
        if write:
            save_cost(cost, PRESETS / f"{name}.json", report)
        print_sheet(Path(folder), f"{name}-sheet", source.runs.split("/")[0])
    return 0


def print_sheet(folder: Path, name: str, device: str) -> None:
    """Print what a data sheet says of every run on the device, their sum, and policies' ratios."""
    cost, measured, predicted = orsched.machine(name).cost, {}, {}
    print(f"{name}:")
    for path in sorted((folder / device).glob("*_steps.csv")):
        run = judge(cost, path.name, read_steps(path)).to_dict()
        key = path.name.removesuffix("_steps.csv")
        measured[key], predicted[key] = run["measured_s"], run["predicted_s"]
        print(f"  {key}: {measured[key]:.2f} s, {run['error']:+.1%}")
    error = sum(predicted.values()) / sum(measured.values()) - 1
    print(f"  all: {sum(measured.values()):.1f} s, {error:+.1%}")
    for key in measured:
        other = key.replace("_hybrid", "_fcfs")
        if other != key and other in measured:
            ratios = [times[key] / times[other] for times in (measured, predicted)]
            off = 100 * (ratios[1] - ratios[0])
            print(f"  {key} by fcfs: {ratios[0]:.3f}, {ratios[1]:.3f} ({off:+.1f} points)")


def made(folder: Path, source: Source) -> tuple[orsched.CostModel, dict[str, Any]]:
    """Return the best cost model of a calibration, and the report that its file holds."""
    done = calibrate(read_measurements(folder / source.calibration))
    best = done.whole()
    assert best.cost is not None
    paths = sorted(folder.glob(source.runs))
    verdicts = [judge(best.cost, path.name, read_steps(path)).to_dict() for path in paths]
    worst = max(verdicts, key=lambda verdict: abs(verdict["error"]))
    facts = dict(source.facts)
    facts["error"] = f"sums of {len(verdicts)} runs within {abs(worst['error']):.1%}"
    report = {"machine": facts, **done.report(best.model), "runs": verdicts}
    return best.cost, report


if __name__ == "__main__":
    raise SystemExit(main())
