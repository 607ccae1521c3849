"""Side by side in one run: orsched under vllm beside the peers, and from 1 worker to 1,000.

python -m benchmarks.speed.fleet [--requests N] [--workers N ...] [--repeats N] [--only PART]

The profiled cost is that of the published kernels of an RTX 4090, which ORSCHED_DATA names.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orsched
from benchmarks.reproductions.fidelity_setting import kernel_profile
from benchmarks.speed import machine, peers
from benchmarks.speed.processes import Program, measure, orsched_command
from benchmarks.speed.section import Options, Section, Target
from benchmarks.speed.ten_thousand import like_vllm
from orsched.common.errors import OrschedError
from orsched.instances.synthetic import peers_workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance

NAME = "fleet"
ROOT = Path(__file__).parents[2]
AFFINE, PROFILED = "orsched vllm, affine", "orsched vllm, profiled"
FIXED_NS = 590_000
"""The constant of a step that the page on fidelity fits beside these tables."""

SIZES = (10_000, 100_000)
PEERS = (peers.DYNOSIM, peers.SCHED_SIM)
FLEETS = (1, 8, 256, 1000)
FEW = 8
METHODS = ("vllm", "gittins", "vllm+dispatch=round_robin", "vllm+dispatch=fewest_requests",
           "vllm+dispatch=least_work", "vllm+dispatch=least_work+steal=true")  # fmt: skip
MOST_SLOWER, MOST_US = 1.3, 100.0


def run(options: Options) -> Section:
    """Measure both parts as a section of the bench, with fewer requests unless ``full``."""
    requests = 200 if options.tiny else 1_000_000 if options.full else 100_000
    section = Section(NAME, "vllm beside the peers, and on 1 to 1,000 workers, whole processes")
    beside_peers(section, options, (100,) if options.tiny else SIZES)
    fleets(section, options, requests, (1, 3) if options.tiny else FLEETS)
    return section


# -- beside the peers ---------------------------------------------------------------------


def beside_peers(
    section: Section, options: Options, sizes: Sequence[int], names: Sequence[str] = PEERS
) -> None:
    """Add rows of the peers and of both cost models, in turn on the same requests."""
    for requests in sizes:
        rows = _beside(requests, options, names)
        section.rows += rows
        used = {row["program"]: row.get("cpu_s") for row in rows}
        limit = used.get(peers.DYNOSIM)
        if limit is not None:
            for name in (AFFINE, PROFILED):
                what = f"{requests:,} requests, {name}, processor time beside DynoSim"
                section.targets.append(Target(what, used.get(name), limit, "s"))
    section.notes.append(
        "Whole processes in turn on the same requests, Poisson arrivals at 8 a second: start-up, "
        "load, simulate, print; orsched also bounds and checks. Simulated seconds differ by design."
    )


def _beside(requests: int, options: Options, names: Sequence[str]) -> list[dict[str, Any]]:
    folder = options.folder / f"beside-{requests}"
    folder.mkdir(exist_ok=True)
    instance = like_vllm(peers_workload(requests, seed=7))
    programs = [_ours(AFFINE, instance, folder / "affine.json")]
    try:
        worker = replace(instance.worker, cost=kernel_profile(FIXED_NS))
        profiled = instance.replace(workers=(worker,))
        programs.append(_ours(PROFILED, profiled, folder / "profiled.json"))
    except OrschedError as error:  # the data are not here
        programs.append(Program(PROFILED, [], error=str(error)))
    report = folder / "report.json"
    if options.peers:
        programs += peers.programs(instance, folder, report)
    programs = [each for each in programs if each.name in (AFFINE, PROFILED, *names)]
    measure(programs, options.repeats, folder, warm_up=int(requests <= min(SIZES)))
    return [{"requests": requests, **p.figures(), **_outcome(p, report)} for p in programs]


def _ours(name: str, instance: Instance, path: Path) -> Program:
    orsched.save_instance(instance, path)
    return Program(
        name, orsched_command("solve", str(path), "--method", "vllm", "--format", "json")
    )


def _outcome(program: Program, report: Path) -> dict[str, Any]:
    if program.error is not None:
        return {}
    if program.name in (peers.DYNOSIM, peers.SCHED_SIM):
        return peers.outcome(program, report)
    row = json.loads(program.stdout)
    return {"simulated_s": row["makespan_s"], "checked": row["checked"]}


# -- fleets -------------------------------------------------------------------------------


def fleets(
    section: Section,
    options: Options,
    requests: int,
    sizes: Sequence[int],
    names: Sequence[str] = METHODS,
) -> None:
    """Add a row a fleet under vllm, and one for each other method on the largest fleet."""
    rows = {size: _fleet("vllm", requests, size, options) for size in sizes}
    most = max(sizes)
    section.rows += rows.values()
    for name in names[1:]:
        section.rows.append(_fleet(name, requests // 10, most, options))
    for key in ("simulate_cpu_s", "check_cpu_s"):
        if rows.get(FEW, {}).get(key) and rows[most].get(key):
            ratio = rows[most][key] / rows[FEW][key]
            what = f"vllm, {key}, {most:,} workers beside {FEW}"
            section.targets.append(Target(what, ratio, MOST_SLOWER, "times"))
    for row in section.rows:
        if row.get("method") == "gittins":
            what = f"gittins, {most:,} workers, decide p99 (processor time)"
            section.targets.append(Target(what, row.get("p99_us"), MOST_US, "us"))
    section.notes.append(
        "Fleets: the peers' workload at 8 requests a second and worker, 128 clients each. One run: "
        f"generation, simulation, check; all but vllm with a tenth of the {requests:,} requests. "
        "Decisions are counted in processor time of their thread."
    )


def _fleet(name: str, requests: int, workers: int, options: Options) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.speed.cluster_run", name, str(requests), "0"]
    command += ["--workers", str(workers), "--cpu"]
    program = Program(name, command, {"PYTHONPATH": str(ROOT)})
    measure([program], 1, options.folder, warm_up=0)
    row: dict[str, Any] = {"method": name, "requests": requests, "workers": workers}
    if program.error is not None:
        return row | {"remark": program.error}
    shown = (
        "simulate_cpu_s",
        "check_cpu_s",
        "violations",
        "steps",
        "decisions",
        "p50_us",
        "p99_us",
    )
    figures = json.loads(program.stdout)
    peak = program.samples[0]["peak_mib"]
    return row | {key: figures[key] for key in shown} | {"peak_mib": peak}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000_000, help="requests of the fleets")
    parser.add_argument("--workers", type=int, nargs="+", default=list(FLEETS))
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="beside peers")
    parser.add_argument("--repeats", type=int, default=3, help="runs beside the peers")
    parser.add_argument("--only", choices=("peers", "fleets"))
    parser.add_argument("--peers", choices=PEERS, nargs="+", default=PEERS, help="which of them")
    given = parser.parse_args(arguments)
    before = machine.describe()
    print(f"{before['cpu']}, {before['cores']} cores, load {before['load_average']}", flush=True)
    with TemporaryDirectory(prefix="orsched-bench-") as folder:
        options = Options(Path(folder), given.repeats)
        if given.only != "fleets":
            for size in given.sizes:
                section = Section(NAME, "vllm beside the peers, whole processes")
                beside_peers(section, options, [size], given.peers)
                print(f"\n{section.text()}", flush=True)
        if given.only != "peers":
            section = Section(NAME, "fleets")
            fleets(section, options, given.requests, given.workers)
            print(f"\n{section.text()}", flush=True)
    print(f"load after: {machine.load()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
