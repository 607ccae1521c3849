"""Measured vLLM runs beside their simulation, fitted by one recipe; each left out once.

python -m benchmarks.reproductions.fidelity

Needs ``ORSCHED_DATA``. Two runs of vLLM servers are fitted on their first 150 requests and scored
on all and on the rest; choices of the recipe are made by the one run and scored on the other; runs
of an H100 are predicted by what was measured without them. All simulated schedules of vLLM runs
pass the checker.
"""

from __future__ import annotations

import argparse
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

import orsched
from benchmarks.reproductions import fidelity_setting as setting
from benchmarks.reproductions.fidelity_families import Affine, Knots
from benchmarks.reproductions.fidelity_little import little_load
from benchmarks.reproductions.fidelity_runs import left_out
from benchmarks.reproductions.findings import Findings
from benchmarks.speed.section import table
from orsched.calibration import fit_run
from orsched.calibration.recipe import TimesOfShape
from orsched.data.schedule import PREFILL
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration import MeasuredRun, RunFit, Times
    from orsched.costs import CostModel

GOALS = {"makespan": 5.0, "mean TPOT": 5.0, "mean TTFT": 10.0}
"""Per cent."""

POWERS = {1.0: "sum", 1.5: "power 1.5", 3.0: "power 3", 16.0: "larger"}
KNOTS = ((1, 2048), (128, 2048), (1, 128, 2048))


@lru_cache(maxsize=8)
def measured(recorded: setting.Recorded) -> MeasuredRun:
    """Return a run, read once."""
    return recorded.read()


def fitted(recorded: setting.Recorded, base: Any, **options: Any) -> RunFit:
    """Fit a run by the recipe on its first requests."""
    options = {"requests": setting.FITTED, **options}
    return fit_run(measured(recorded), recorded.server, base, **options)


def checked(recorded: setting.Recorded, found: RunFit) -> None:
    """Hold the simulated schedule against every rule."""
    instance, schedule, _ = measured(recorded).simulate(found.cost, recorded.server)
    violations = orsched.check(instance, schedule)
    if violations:
        raise AssertionError(violations[:3])


def shown(name: str, seconds: float) -> str:
    """Return a figure as text."""
    return f"{1e3 * seconds:.2f} ms" if name == "mean TPOT" else f"{seconds:.2f} s"


def compared(found: RunFit) -> list[dict[str, Any]]:
    """Return a row a figure: measured, simulated, errors of all requests and of the rest."""
    every, rest = found.errors(), found.errors(rest=True)
    return [
        {
            "figure": name,
            "measured": shown(name, value),
            "simulated": shown(name, found.simulated[name]),
            "error": f"{100 * every[name]:+.1f} %",
            "requests 150 to 299 only": f"{100 * rest[name]:+.1f} %",
        }
        for name, value in found.measured.items()
    ]


def one_recipe(report: Findings) -> RunFit:
    """Fit and score the runs; return the fit of the RTX 4090's profile."""
    profile = None
    for recorded, base, by in (
        (setting.RTX_4090, setting.RTX_4090.shape, "the model's shape"),
        (setting.RTX_PRO, setting.RTX_PRO.shape, "the model's shape"),
        (setting.RTX_4090, setting.kernel_profile(), "a profile of kernels"),
    ):
        report.head(f"{recorded.name}, by {by}")
        offset = measured(recorded).offset_ns
        print(f"clocks: engine times + {offset / 1e6:.3f} ms")
        found = profile = fitted(recorded, base)
        checked(recorded, found)
        for constant in found.constants:
            print(f"fitted: {constant.text()}")
        print("\n".join(table(compared(found))))
        for rest, which in ((False, "all"), (True, "rest")):
            errors = found.errors(rest=rest)
            for name, goal in GOALS.items():
                off = 100 * errors[name]
                report.claim(f"{name}, {which}, within {goal:g} %: {off:+.2f} %", abs(off) <= goal)
    assert profile is not None
    return profile


def parts(report: Findings, run: MeasuredRun, cost: CostModel) -> None:
    """Print where the error of the RTX 4090 run can come from."""
    report.head("RTX 4090 by its profile: parts of the error")
    instance, schedule, times = run.simulate(cost, setting.RTX_4090.server)
    true = run.times
    late = (true.first[0] - times.first[0]) / 1e9
    print(f"warm-up: the first token of request 0 comes {late:+.3f} s later than simulated")
    # From request 13 on requests wait, so that measured and simulated steps hold the same.
    ends = [(found.first[40] - found.first[13]) / 1e9 for found in (true, times)]
    print("from the first token of request 13 to that of request 40, all steps but one full:")
    print(f"{ends[0]:.3f} s, simulated {ends[1]:.3f} s ({100 * (ends[1] / ends[0] - 1):+.1f} %)")
    print("\n".join(table(budget(run, instance, schedule, times))))
    prefill, cached = instance.worker.cost.prefill, Timeline(instance, schedule).cached
    behind = 0.0
    for row in np.flatnonzero(schedule.work.phase == PREFILL).tolist():
        chunk, before = int(schedule.work.tokens[row]), int(cached[row])
        behind += float(prefill.at(chunk, before) - prefill.at(chunk, 0)) / 1e9
    print(f"attention of chunks to what is cached before them: {behind:.3f} s")
    print("\nms a round while no request waits")
    print("\n".join(table(tail_rounds(instance))))


def budget(run: MeasuredRun, instance: Any, schedule: Any, times: Times) -> list[dict[str, Any]]:
    """Divide the makespan, as measured and as simulated.

    The log gives tokens a second and requests running, so rounds; the cost model gives the time
    of these rounds and of the prompts, and what is left of the makespan was prefilled again.
    """
    log, cost = setting.timeline(setting.RTX_4090), instance.worker.cost
    running, cached = (
        (column + np.append(0.0, column[:-1])) / 2
        for column in (log["running"], log["kv_cache_pct"] / 100 * setting.CACHE_TOKENS)
    )
    logged = log["gen_throughput"] / np.maximum(running, 1)
    round_s = [
        cost.round_ns(max(1, round(n)), round(context), 0) / 1e9
        for n, context in zip(running.tolist(), cached.tolist(), strict=True)
    ]
    token_s = (cost.mixed_ns([1000, 1000], 30, 30_000, 0) - cost.round_ns(30, 30_000, 0)) / 2e12
    steps, work = schedule.steps, schedule.work
    again = (work.phase == PREFILL) & (work.stay > 0)
    rounds = int(steps.rounds[steps.phase != PREFILL].sum())
    prompts_s = float(run.requests.prompt_tokens.sum() * token_s)
    found = []
    for name, count, rounds_s, end in (
        ("measured", float(logged.sum()), float(logged @ np.array(round_s)), run.times.last),
        ("simulated", rounds, None, times.last),
    ):
        makespan = int(end.max()) / 1e9
        again_s = float(work.tokens[again].sum() * token_s)
        if rounds_s is None:
            rounds_s = makespan - prompts_s - again_s
        else:
            again_s = makespan - prompts_s - rounds_s
        row = {"": name, "makespan s": makespan, "rounds": count, "rounds s": rounds_s}
        row |= {"prompts s": prompts_s, "again s": again_s, "again tokens": again_s / token_s}
        found.append({k: v if isinstance(v, str) else round(v, 1) for k, v in row.items()})
    return found


def tail_rounds(instance: Any) -> list[dict[str, Any]]:
    """Compare rounds after the last admission: requests running over tokens a second."""
    log, cost = setting.timeline(setting.RTX_4090), instance.worker.cost
    tokens = setting.CACHE_TOKENS
    found = []
    for k in range(1, len(log["running"])):
        running = (log["running"][k - 1] + log["running"][k]) / 2
        steady = log["running"][k - 1] - log["running"][k] <= 1 and running >= 8
        if log["waiting"][k - 1 : k + 1].any() or log["prompt_throughput"][k] or not steady:
            continue
        context = tokens * (log["kv_cache_pct"][k - 1] + log["kv_cache_pct"][k]) / 200
        measured = 1e3 * running / log["gen_throughput"][k]
        predicted = cost.round_ns(round(running), round(context), 0) / 1e6
        row = {"second": k + 1, "running": running, "cached": round(context)}
        found.append(row | {"measured": round(measured, 2), "simulated": round(predicted, 2)})
    return found


def choices(recorded: setting.Recorded) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return what the recipe could have been, by name: the cost models, and the options."""
    clients = recorded.server.clients
    bases: dict[str, Any] = {"shape": recorded.shape}
    for power, name in POWERS.items():
        bases[f"shape, {name}"] = TimesOfShape(recorded.shape, clients, power)
    bases["affine"] = Affine()
    bases |= {f"dense at {', '.join(map(str, knots))}": Knots(clients, *knots) for knots in KNOTS}
    return {
        f"{name}; {weighting}": (base, {"weighting": weighting})
        for name, base in bases.items()
        for weighting in ("seconds", "relative")
    }


def firmness(report: Findings) -> dict[str, dict[str, RunFit]]:
    """Print what other fits would have said of both runs; return those on the first 150."""
    report.head("other fits: errors of requests 150 to 299, per cent")
    fits: dict[str, dict[str, RunFit]] = {}
    rows = []
    for count in (75, 100, 125):
        row: dict[str, Any] = {"cost model; weights": "shape; seconds", "requests": count}
        for recorded in setting.RECORDED:
            row |= _errors(recorded, fitted(recorded, recorded.shape, requests=count))
        rows.append(row)
    for name in choices(setting.RTX_4090):
        row = {"cost model; weights": name, "requests": setting.FITTED}
        fits[name] = {}
        for recorded in setting.RECORDED:
            base, options = choices(recorded)[name]
            fits[name][recorded.name] = found = fitted(recorded, base, **options)
            row |= _errors(recorded, found)
        rows.append(row)
    print("\n".join(table(rows)))
    return fits


def _errors(recorded: setting.Recorded, found: RunFit) -> dict[str, str]:
    """Return the errors in the goals' figures of what was not fitted to."""
    errors = found.errors(rest=True)
    text = " / ".join(f"{100 * errors[name]:+.1f}" for name in GOALS)
    return {recorded.name.partition(",")[0]: text}


def worst(found: RunFit) -> float:
    """Return the largest error by its goal, over the requests that were not fitted to."""
    errors = found.errors(rest=True)
    return max(abs(100 * errors[name]) / goal for name, goal in GOALS.items())


def leave_one_out(report: Findings, fits: dict[str, dict[str, RunFit]]) -> None:
    """Choose the cost model and the weights by the other runs, and score the run left out."""
    report.head("each vLLM run left out: the recipe chosen by the other")
    rows = []
    for recorded in setting.RECORDED:
        others = [other.name for other in setting.RECORDED if other != recorded]
        chosen = min(fits, key=lambda name: max(worst(fits[name][other]) for other in others))
        for name, why in ((chosen, "by the other run"), ("shape; seconds", "the recipe")):
            errors = fits[name][recorded.name].errors(rest=True)
            row = {"left out": recorded.name, "chosen": why, "cost model; weights": name}
            row |= {figure: f"{100 * errors[figure]:+.1f} %" for figure in GOALS}
            rows.append(row)
    print("\n".join(table(rows)))
    for weighting in ("seconds", "relative"):
        report.head(f"each run of an H100 left out: weights {weighting}")
        rows = left_out(weighting)
        print("\n".join(table(rows)))
        errors = [abs(float(row["error %"])) for row in rows]
        inside = sum(error <= 5 for error in errors)
        print(
            f"{inside} of {len(errors)} within 5 %, mean {np.mean(errors):.1f} %, "
            f"worst {max(errors):.1f} %"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; what does not hold is printed, and is no error."""
    parser = argparse.ArgumentParser(prog="fidelity", description=__doc__.splitlines()[0])
    parser.parse_args(arguments)
    report = Findings()
    profile = one_recipe(report)
    parts(report, measured(setting.RTX_4090), profile.cost)
    leave_one_out(report, firmness(report))
    report.head("little load, simulated by the profile, 0.6 ms of host and noise; shape; seconds")
    print("\n".join(table(little_load(measured(setting.RTX_4090).requests))))
    print(f"\n{report.misses} goals are missed" if report.misses else "\nall goals are met")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
