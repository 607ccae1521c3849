"""One million requests at 200 clients, whole process from a Parquet file."""

from __future__ import annotations

import json

import orsched
from benchmarks.speed.processes import Program, measure, orsched_command
from benchmarks.speed.section import Options, Section, Target
from orsched.instances.synthetic import uniform

NAME = "million"
METHODS = {"fcfs": [], "online": [], "hybrid": ["--iterations", "1"]}


def run(options: Options) -> Section:
    """Measure fcfs, online and one iteration of hybrid."""
    requests = 500 if options.tiny else 1_000_000
    path = options.folder / "million.parquet"
    orsched.save_instance(uniform(requests, 200, seed=0, first_token="decode"), path)
    section = Section(NAME, f"{requests:,} requests at 200 clients, whole process")
    programs = {
        method: Program(
            " ".join(["orsched", method, *more]),
            orsched_command("solve", str(path), "--method", method, *more, "--format", "json"),
        )
        for method, more in METHODS.items()
    }
    measure([programs["fcfs"]], min(3, options.repeats), options.folder)
    measure([programs["online"], programs["hybrid"]], 1, options.folder, warm_up=0)
    for program in programs.values():
        row = program.figures()
        if program.error is None:
            printed = json.loads(program.stdout)
            row |= {"gap_%": 100 * printed["gap"], "checked": printed["checked"]}
        section.rows.append(row)
    fcfs = programs["fcfs"].figures()
    section.targets = [
        Target("fcfs, wall (median)", fcfs.get("wall_median_s"), 10.0, "s"),
        Target("fcfs, peak memory", fcfs.get("peak_mib"), 1024.0, "MiB"),
    ]
    section.notes = [
        "Start-up, load from Parquet, simulate, bound, check, print. The memory of importing "
        "pyarrow counts.",
        "hybrid searches; one iteration is one candidate, planned and simulated.",
    ]
    return section
