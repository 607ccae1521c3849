"""What planning on scenarios is worth: the values of the stochastic solution and of information.

python -m benchmarks.stochastic [--seeds 10] [--fresh 40]

Small instances, all requests at 0: log-normal lengths whose spread differs by request (0.1 or 1, as
predicted). Three plans are searched by the same moves: on the mean lengths alone (EV), on 32 drawn
scenarios (``sample_average``), and on each fresh scenario itself (perfect information). All are
valued on the same fresh scenarios, which none of the first two has seen:

    value of the stochastic solution   VSS  = mean of EV - mean of sample_average
    value of perfect information       EVPI = mean of sample_average - mean of perfect information

in per cent of the mean of EV, with 95 % intervals over the seeds (Student). The second table has
paged memory that is short, and the chance constraint at several risks.
"""

from __future__ import annotations

import argparse
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.arguments import count
from benchmarks.speed.section import table
from orsched import AffineCost, Instance, Requests, Worker
from orsched.heuristics.sample_average.policy import Plan
from orsched.heuristics.sample_average.scenarios import draw_scenarios, mean_scenario
from orsched.heuristics.sample_average.search import Scenarios, first_plans, neighbours
from orsched.instances.streams import stream
from orsched.memory import BlockMemory
from orsched.objectives import objective_named
from orsched.policy import Information
from orsched.simulator import simulate_policy
from orsched.study.confidence import mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.columns import IntColumn

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
SIZES = ((8, 2), (12, 3), (20, 4))
OBJECTIVES = ("makespan", "jct_mean")
LIMIT, LONGEST = 1000, 500
"""Most tokens of an answer, and of a prompt."""
SCENARIOS, MOVES = 32, 150
MS = 10**6


def problem(requests: int, clients: int, seed: int, blocks: int | None = None) -> Instance:
    """Return an instance whose lengths are their medians; only the quantiles are planned with.

    The output limit is such that each request alone fits into the memory.
    """
    limit = LIMIT if blocks is None else min(LIMIT, 16 * blocks - LONGEST)
    draws = stream("stochastic", seed)
    center, spread = draws.normal(4.6, 0.5, requests), draws.choice([0.1, 1.0], requests)
    z = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
    logs = center[:, None] + spread[:, None] * z
    quantiles = np.clip(np.rint(np.exp(logs)), 1, limit).astype(int)
    prompts = np.clip(draws.lognormal(4.5, 0.6, requests), 8, LONGEST).astype(int)
    column = Requests(
        prompts, quantiles[:, 2], predicted_quantiles=quantiles, quantile_levels=LEVELS
    )
    memory = None if blocks is None else BlockMemory(blocks, 16, "paged")
    cost = AffineCost(20 * MS, MS // 10, 20 * MS, MS)
    return Instance(
        column, Worker(clients, cost, None, memory), output_limit_tokens=limit, first_token="decode"
    )


def search(instance: Instance, lengths: IntColumn, objective: str, seed: int, risk: float) -> Plan:
    """Return the plan of the least mean over some lengths that a number of moves find."""
    known = draw_scenarios(instance, SCENARIOS, seed)
    scenarios = Scenarios(
        instance, lengths, objective_named(objective), Information.PREDICTED, risk, known
    )
    best, value = None, None
    for plan in first_plans(instance, lengths):
        found = scenarios.value(plan, None if value is None else value.total - 1)
        if found is not None:
            best, value = plan, found
    assert best is not None
    assert value is not None
    changes = neighbours(best, seed)
    for _ in range(MOVES):
        plan = next(changes)(best)
        found = scenarios.value(plan, value.total)
        if found is not None:
            best, value = plan, found
    return best


def means(
    instance: Instance, plans: Sequence[Plan], fresh: IntColumn, objective: str, seed: int
) -> list[float]:
    """Return the mean of the objective, in seconds, of each plan on fresh scenarios."""
    wanted, known = objective_named(objective), draw_scenarios(instance, SCENARIOS, seed)
    scenarios = Scenarios(instance, fresh, wanted, Information.PREDICTED, 0.05, known)
    found = []
    for plan in plans:
        value = scenarios.value(plan)
        assert value is not None
        found.append(float(scenarios.times.value_ns(value.total)) / len(fresh) / 1e9)
    return found


def worth(size: tuple[int, int], objective: str, seeds: range, fresh: int) -> dict[str, str]:
    """Return a row of the first table."""
    rows = []
    for seed in seeds:
        instance = problem(*size, seed)
        drawn = draw_scenarios(instance, SCENARIOS, seed)
        unseen = draw_scenarios(instance, fresh, seed + 10**6)
        plans = [
            search(instance, lengths, objective, seed, 0.05)
            for lengths in (mean_scenario(drawn), drawn)
        ]
        ev, saa = means(instance, plans, unseen, objective, seed)
        few = unseen[:: max(1, fresh // 20)]
        known = [
            means(
                instance, [search(instance, row[None], objective, seed, 0.05)], row[None],
                objective, seed,
            )[0]
            for row in few
        ]  # fmt: skip
        on_few = means(instance, plans[1:], few, objective, seed)[0]
        perfect = float(np.mean(known)) * saa / on_few  # of all, by those that were planned for
        rows.append((ev, saa, 100 * (ev - saa) / ev, 100 * (saa - perfect) / ev))
    ev, saa = np.mean([row[:2] for row in rows], axis=0)
    return {
        "requests x clients": f"{size[0]} x {size[1]}", "objective": objective,
        "EV s": f"{ev:.2f}", "sample_average s": f"{saa:.2f}",
        "VSS %": _shown([row[2] for row in rows]), "EVPI %": _shown([row[3] for row in rows]),
    }  # fmt: skip


def chance(risk: float, seeds: range, fresh: int) -> dict[str, str]:
    """Return a row of the second table: one plan by risk, with memory for half of the clients."""
    objective, rows = objective_named("jct_mean"), []
    for seed in seeds:
        instance = problem(16, 6, seed, blocks=80)
        drawn = draw_scenarios(instance, SCENARIOS, seed)
        order = Plan(tuple(np.argsort(drawn.mean(axis=0), kind="stable").tolist()), "prefill_first")
        unseen = draw_scenarios(instance, fresh, seed + 10**6)
        scenarios = Scenarios(instance, unseen, objective, Information.PREDICTED, risk, drawn)
        total, evictions = 0.0, 0
        for each in scenarios.instances:
            schedule = simulate_policy(each, scenarios.policy(order)).schedule
            total += float(schedule.request_times(each)["finish_ns"].mean()) / 1e9 / fresh
            evictions += int((schedule.work.stay > 0).sum())
        rows.append((total, evictions / fresh / len(instance)))
    jct, evicted = zip(*rows, strict=True)
    return {
        "risk": f"{risk:g}", "mean JCT s": _shown(jct),
        "evictions a request": f"{np.mean(evicted):.3f}",
    }  # fmt: skip


def _shown(values: Sequence[float]) -> str:
    found = mean_interval(list(values))
    if found.low is None or found.high is None:
        return f"{found.mean:.2f}"
    return f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=count, default=10)
    parser.add_argument("--fresh", type=count, default=40)
    options = parser.parse_args(arguments)
    seeds = range(options.seeds)
    rows = [worth(size, name, seeds, options.fresh) for size in SIZES for name in OBJECTIVES]
    print("\n".join(table(rows)), flush=True)
    risks = [chance(risk, seeds, options.fresh) for risk in (0.0, 0.05, 0.2, 0.5, 1.0)]
    print("\n" + "\n".join(table(risks)), flush=True)


if __name__ == "__main__":
    main()
