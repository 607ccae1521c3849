"""Pang et al. (arXiv 2502.15763): four methods on GSM8K, and 100 generated cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.instances.synthetic import gsm8k, pang_case
from orsched.papers.reruns import Rerun, change, pick
from orsched.solving.solver import solve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.papers.reruns import Row, Values

NAMES = {
    "fcfs": "baseline", "pang-offline": "offline", "pang-online": "online",
    "pang-hybrid": "hybrid",
}  # fmt: skip
"""What the values of each method are called; others have ``orsched_`` before their names."""


def _named(method: str) -> str:
    return NAMES.get(method, f"orsched_{method}")


def _jobs(settings: Mapping[str, Any]) -> list[Row]:
    given = {name: settings[name] for name in ("case", "sigma", "cap")}
    methods = ["fcfs", *(each for each in settings["methods"] if each != "fcfs")]
    first = settings.get("first_seed", 0)
    return [
        {"method": method, **given, "seed": seed}
        for seed in range(first, first + settings["seeds"])
        for method in methods
    ]


def _instance(job: Mapping[str, Any]) -> Instance:
    generator = {"gsm8k": gsm8k, "pang-case": pang_case}[job["case"]]
    return generator(job["seed"], prefill_cap_tokens=job["cap"], prediction_sigma=job["sigma"])


def _run(job: Row) -> Row:
    row = solve(_instance(job), job["method"]).to_row()
    decision_s = row["decision_p99_s"]
    return {
        "makespan_s": row["makespan_s"],
        "utilization_%": 100 * row["slot_utilization"],
        "stages": row["prefill_stages"],
        "rounds": row["decode_rounds"],
        "tokens_per_s": row["tokens_per_s"],
        "bound_s": row["bound_s"],
        "decision_p99_ms": None if decision_s is None else 1000 * decision_s,
    }


def _values(rows: list[Row]) -> Values:
    (base,) = pick(rows, method="fcfs")
    found: Values = {"bound_s": base["bound_s"]}
    for row in rows:
        name = _named(row["method"])
        found[f"{name}_makespan_s"] = row["makespan_s"]
        found[f"{name}_utilization_%"] = row["utilization_%"]
        if row["decision_p99_ms"] is not None:
            found[f"{name}_decision_p99_ms"] = row["decision_p99_ms"]
        if row is not base:
            found[f"{name}_gain_%"] = -change(row["makespan_s"], base["makespan_s"])
            left = row["makespan_s"] - row["bound_s"]
            found[f"{name}_gap_closed_%"] = -change(left, base["makespan_s"] - row["bound_s"])
    return found


def _schedules(settings: Mapping[str, Any]) -> tuple[Instance, list[Schedule]]:
    job = _jobs(settings)[0]
    instance = _instance(job)
    return instance, [solve(instance, method).schedule for method in settings["methods"][:1]]


def _each_case(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    return [{"method": job["method"], "case": job["seed"]} | figures for job, figures in done]


def _case_values(rows: list[Row]) -> Values:
    found: Values = {"cases": len(pick(rows, method="fcfs"))}
    for method in {row["method"] for row in rows} - {"fcfs"}:
        name = _named(method)
        pairs = list(zip(pick(rows, method=method), pick(rows, method="fcfs"), strict=True))
        for column, word in (("utilization_%", "points"), ("tokens_per_s", "tokens_per_s")):
            gains = [ours[column] - base[column] for ours, base in pairs]
            found[f"{name}_gain_{word}"] = sum(gains) / len(gains)
            found[f"{name}_least_gain_{word}"] = min(gains)
    return found


def _lengths(job: Row) -> Row:
    instance = _instance({"case": "gsm8k", "cap": 2048, "sigma": None, **job})
    requests, cost = instance.requests, instance.worker.cost
    return {
        "requests": len(instance),
        "clients": instance.worker.clients,
        "prompt_mean": float(requests.prompt_tokens.mean()),
        "prompt_std": float(requests.prompt_tokens.std()),
        "output_mean": float(requests.output_tokens.mean()),
        "output_std": float(requests.output_tokens.std()),
        "stage_of_5000_tokens_ms": cost.prefill_ns([5000]) / 1e6,
        "round_of_200_clients_ms": cost.round_ns(200, 200, 1) / 1e6,
    }


def _first(rows: list[Row]) -> Values:
    return dict(rows[0])


RERUNS = {
    "methods": Rerun(_jobs, _run, _values, schedules=_schedules),
    "cases": Rerun(_jobs, _run, _case_values, _each_case),
    "lengths": Rerun(
        lambda settings: [{"seed": seed} for seed in range(settings["seeds"])], _lengths, _first
    ),
}
