"""How near ``orsched.tune`` gets to the best setting of a full grid, in a tenth of its runs.

ORSCHED_DATA=... python -m benchmarks.tuning [--case NAME] [--jobs N] [--folder KEPT] [--itl FOLDER]
runs the race with the budget of a tenth of the grid, then every setting of the grid on the whole
trace, and prints a row for each case. The machine is Llama 3 8B on an H100 by data sheet, the seed
0. ``--itl`` names the folder of itl_cold72k.csv and its cost file: two cold prompts of 72,000
tokens beside a chat. ``--gains`` tunes ``vllm``, ``gittins`` and ``slack`` on four workloads, with
lengths unknown to each, at 0.9 of the throughput of ``vllm`` as shipped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

import orsched
from benchmarks.reproductions.four_workloads_setting import LIMIT, WORKLOADS, requests_of
from benchmarks.speed.section import table
from orsched.common.errors import OrschedError
from orsched.instances.arrivals import with_arrivals
from orsched.instances.datasets import data_directory
from orsched.planning.capacity.question import Given, read_question
from orsched.planning.capacity.search import Evaluation
from orsched.planning.study.drive import Store
from orsched.planning.study.pools import read_processes
from orsched.planning.tuning.race import Race
from orsched.planning.tuning.space import Space

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance

MACHINE = "h100-llama3-8b-sheet"
BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)


class Case(NamedTuple):
    """A workload, the knobs, and the limits."""

    file: str
    requests: int
    arrivals: str | None
    limits: dict[str, Any]
    search: dict[str, tuple[Any, ...]]
    cost: str = MACHINE


CASES = {
    "azure-conv": Case(
        "azure_conv_2023.csv", 3000, "replay:scale=4", {"slo_ttft": 1, "slo_tpot": 0.05},
        {"clients": (32, 64, 128, 256, 512), "max_num_batched_tokens": BUDGETS,
         "long_prefill_token_threshold": (0, 128, 256, 1024)},
    ),
    "burstgpt": Case(
        "burstgpt_head400.csv", 400, "replay:rate=12", {"slo_ttft": 1, "slo_tpot": 0.02},
        {"clients": (16, 32, 64, 128, 256), "max_num_batched_tokens": BUDGETS,
         "long_prefill_token_threshold": (0, 128, 256, 512, 1024)},
    ),
    "itl-cold72k": Case(
        "itl_cold72k.csv", 3, None, {"slo_ttft": 120, "slo_tpot": 0.06},
        {"clients": (4, 8, 16, 32, 64, 128), "max_num_batched_tokens": (128, *BUDGETS),
         "long_prefill_token_threshold": (0, 64, 128, 256, 512, 1024, 2048, 4096)},
        "itl_cold72k_cost.json",
    ),
}  # fmt: skip


def instance_of(case: Case, itl: Path | None) -> Instance:
    """Return the first requests of a case on one worker."""
    own = case.cost != MACHINE
    folder = itl if own and itl is not None else data_directory()
    cost = str(Path(folder, case.cost)) if own else case.cost
    found = orsched.load(str(Path(folder, case.file)), clients=256, cost=cost, drop_empty=True)
    return found.replace(requests=found.requests.take(range(min(case.requests, len(found)))))


def full_grid(case: Case, instance: Instance, folder: Path, jobs: int) -> tuple[Race, int]:
    """Return the race after every setting ran on the whole trace, and how many there are."""
    question = read_question(Given(instance, "vllm", arrivals=case.arrivals, **case.limits))
    space = Space(question, ["vllm"], case.search)
    settings = list(space.settings())
    with (
        Store(folder) as store,
        Evaluation(question, store, read_processes(jobs, "local", None), None, None) as evaluation,
    ):
        race = Race(space, evaluation, False, len(settings), question.arrivals)
        race.try_on(settings, race.whole)
    return race, len(settings)


def row(name: str, folder: Path, jobs: int, itl: Path | None) -> dict[str, Any]:
    """Return what the race found in a tenth of the runs beside the best of the grid."""
    case = CASES[name]
    instance = instance_of(case, itl)
    question = read_question(Given(instance, "vllm", arrivals=case.arrivals, **case.limits))
    grid = sum(1 for _ in Space(question, ["vllm"], case.search).settings())
    begin, cpu = perf_counter(), process_time()
    found = orsched.tune(
        instance, search=case.search, arrivals=case.arrivals, runs=grid // 10, jobs=jobs,
        folder=folder / f"{name}-race", **case.limits,
    )  # fmt: skip
    seconds = perf_counter() - begin
    race, settings = full_grid(case, instance, folder / f"{name}-grid", jobs)
    best = race.finished()[0]
    most = race.value(best, race.whole)[0]
    print(f"{name}: grid {best}; race {found.best.setting}", file=sys.stderr)
    return {
        "case": name,
        "grid": settings,
        "runs": round(found.runs, 1),
        "best of the grid": round(most, 4),
        "found": round(found.best.value, 4),
        "share": round(found.best.value / most, 4) if most else 1.0,
        "as shipped": round(found.default.value, 4) if found.default else None,
        "rivals": len(found.rivals),
        "bound": None if found.bound is None else round(found.bound, 4),
        "s": round(seconds),
        "setting": str(found.best.setting),
        "cpu": round(process_time() - cpu),
    }


POLICIES = ("vllm", "gittins", "slack+ttft_s={ttft_s}+tpot_s={tpot_s}")
KNOBS = {"clients": (64, 128, 256, 512), "max_num_batched_tokens": BUDGETS[1:6]}
REQUESTS, RUNS = 800, 12


def gains(name: str, folder: Path, jobs: int) -> list[dict[str, Any]]:
    """Return a row for each policy on a workload, tuned, beside ``vllm`` as shipped."""
    workload = WORKLOADS[name]
    rows = requests_of(name)
    rows = rows.take(range(min(REQUESTS, len(rows)))).replace(prefixes=None)
    case = orsched.Instance(rows, (workload.worker(),), "prefill", output_limit_tokens=LIMIT)
    at_once = orsched.solve(with_arrivals(case, "at_once"), "vllm")
    arrivals = f"replay:rate={0.9 * len(case) / at_once.makespan_s:.3f}"
    if not workload.replay:
        arrivals = arrivals.replace("replay", "poisson")
    found, base = [], None
    for text in POLICIES:
        policy = text.format(ttft_s=workload.ttft_s, tpot_s=workload.tpot_s)
        done = orsched.tune(
            case, policy, search=KNOBS, arrivals=arrivals, replications=1, maximise="goodput",
            runs=RUNS, slo_ttft=workload.ttft_s, slo_tpot=workload.tpot_s, jobs=jobs,
            folder=folder / "gains",
        )  # fmt: skip
        base = base or done.default
        for what, trial in (("as shipped", done.default), ("tuned", done.best)):
            assert trial is not None
            assert base is not None
            found.append(
                {
                    "workload": name,
                    "policy": policy.partition("+")[0],
                    "setting": what,
                    "attainment": round(trial.figures["attainment"] or 0.0, 3),
                    "goodput, 1/s": round(trial.value, 3),
                    "95 % interval": f"{trial.low:.3f} to {trial.high:.3f}",
                    "over vllm as shipped": f"{trial.value / base.value - 1:+.1%}",
                    "gain over itself, 1/s": "-" if what == "as shipped" else _ends(done.gain),
                }
            )
    return found


def _ends(gain: Any) -> str:
    return f"{gain.mean:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each case; return 1 where a setting is more than 1 % behind the grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--itl", type=Path)
    parser.add_argument("--gains", action="store_true")
    given = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    if given.gains:
        for name in WORKLOADS:
            rows += gains(name, given.folder, given.jobs)
        print("\n".join(table(rows)))
        return 0
    for name in given.case or CASES:
        try:
            rows.append(row(name, given.folder, given.jobs, given.itl))
        except OrschedError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    print("\n".join(table(rows)))
    return int(any(each["share"] < 0.99 for each in rows))


if __name__ == "__main__":
    sys.exit(main())
