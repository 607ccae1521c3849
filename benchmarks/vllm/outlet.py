"""orsched's orders inside vLLM's own scheduler, and plans as its priorities.

python -m benchmarks.vllm.outlet PYTHON_WITH_VLLM [--requests 500]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import orsched
from orsched.costs import AffineCost
from orsched.files import save_cost
from orsched.heuristics.continuous import ContinuousBatching, ContinuousParams
from orsched.heuristics.continuous.params import make_queue
from orsched.runner.vllm_outlet import priorities
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

MOST_APART = 0.01
"""How far the mean finish step may be from that of vLLM's ``priority`` with true lengths."""

ROOT = Path(__file__).resolve().parents[2]
CLASS = "orsched.runner.vllm_outlet.OrderedScheduler"
STEP_S, BUDGET, BLOCK_TOKENS, LIMIT = 0.05, 2048, 16, 2000
COST = AffineCost(
    prefill_fixed_ns=50_000_000,
    prefill_token_ns=100_000,
    round_fixed_ns=50_000_000,
    round_client_ns=100_000,
)

WORKLOADS = {
    "burst": {"clients": 128, "blocks": 8192, "async": False},
    "burst, ahead": {"clients": 128, "blocks": 8192, "async": True},
    "arrivals, ahead": {"clients": 64, "blocks": 8192, "async": True, "per_step": 0.25},
    "few blocks, ahead": {"clients": 128, "blocks": 1024, "async": True},
    "few blocks, arrivals": {"clients": 64, "blocks": 600, "async": True, "per_step": 0.25},
}
"""``per_step``: mean arrivals a step; ``async``: vLLM plans one step ahead, as its engine does."""

ORDERS = (
    ("vLLM fcfs", "fcfs", None),
    ("vLLM priority, true lengths", "priority", None),
    ("plan's rank as priority", "priority", None),
    ("orsched fcfs", "fcfs", {"order": "fcfs"}),
    ("orsched sjf", "priority", {"order": "sjf"}),
    ("orsched sjf, victims as fcfs", "fcfs", {"order": "sjf"}),
    ("orsched ssjf, predictions off by 40 %", "priority", {"order": "ssjf"}),
    ("orsched gittins, the same", "priority", {"order": "gittins", "information": "predicted"}),
    (
        "orsched gittins, the same, aging 1,000",
        "priority",
        {"order": "gittins", "information": "predicted", "aging": 1000},
    ),
    ("orsched gittins, no information", "priority", {"order": "gittins"}),
    ("orsched fcfs, prefill_first", "fcfs", {"order": "fcfs", "gate": "prefill_first"}),
    ("orsched fcfs, waited_time", "fcfs", {"order": "fcfs", "gate": "waited_time"}),
    ("orsched fcfs, idle_cost", "fcfs", {"order": "fcfs", "gate": "idle_cost"}),
)
"""Name, vLLM's scheduling policy, and the settings of our class (None: vLLM's own)."""

CLAIRVOYANT = ("plan's rank as priority", "orsched sjf")

TWINS = {"orsched fcfs": "vLLM fcfs", "orsched sjf": "vLLM priority, true lengths"}
"""Orders under which each request must finish in the same step as with vLLM's own queue."""


def make_requests(count, per_step, seed=0):
    """Return rows with log-normal lengths (means 68 and 345), and predictions that are off."""
    rng = random.Random(seed)
    rows, step = [], 0.0
    for _ in range(count):
        step += rng.expovariate(per_step) if per_step else 0.0
        output = min(LIMIT, max(1, round(rng.lognormvariate(5.53, 0.8))))
        rows.append(
            {
                "prompt": min(1000, max(1, round(rng.lognormvariate(3.9, 0.8)))),
                "output": output,
                "arrival": int(step),
                "predicted": max(1, round(output * rng.lognormvariate(0, 0.4))),
                "priority": 0,
            }
        )
    return rows


def plan_ranks(rows, setting):
    """Return the ranks of a plan: the same engine simulated with all lengths known."""
    memory = orsched.BlockMemory(setting["blocks"] - 1, BLOCK_TOKENS, "paged")
    requests = orsched.Requests(
        [row["prompt"] for row in rows],
        [row["output"] for row in rows],
        arrival_ns=[round(row["arrival"] * STEP_S * 1e9) for row in rows],
    )
    worker = orsched.Worker(setting["clients"], COST, memory=memory)
    instance = orsched.Instance(requests, worker, "prefill", output_limit_tokens=LIMIT)
    params = ContinuousParams(policy="priority", priority="length", max_num_batched_tokens=BUDGET)
    known = Information.CLAIRVOYANT
    policy = ContinuousBatching(params, known, make_queue(instance, params, known))
    schedule = simulate_policy(instance, policy).schedule
    assert orsched.check(instance, schedule) == []
    return priorities(instance, schedule)


def make_cases(count, folder):
    """Return one case for each workload and order; the cost of steps is written into a folder."""
    cases, cost = [], Path(folder, "cost.json")
    save_cost(COST, cost)
    for workload, setting in WORKLOADS.items():
        rows = make_requests(count, setting.get("per_step"))
        ranks = plan_ranks(rows, setting)
        place = range(count)  # rows are in order of arrival
        lengths = [row["output"] for row in rows]
        guesses = [row["predicted"] for row in rows]
        keys = {
            "vLLM fcfs": place,
            "orsched fcfs": place,
            "plan's rank as priority": ranks,
            "orsched ssjf, predictions off by 40 %": list(zip(guesses, place, strict=True)),
            "orsched gittins, the same": None,
            "orsched gittins, the same, aging 1,000": None,
            "orsched gittins, no information": None,
        }
        for name, policy, settings in ORDERS:
            gated = settings is not None and "gate" in settings
            order = {**settings, "cost": str(cost)} if gated else settings
            by_length = list(zip(lengths, place, strict=True))
            reference = place if gated else keys.get(name, by_length)
            sent = {"vLLM priority, true lengths": lengths, "plan's rank as priority": ranks}
            own = sent.get(name, [0] * count)
            cases.append(
                {
                    "id": [workload, name],
                    "gated": gated,
                    "policy": policy,
                    "scheduler_cls": None if order is None else CLASS,
                    "additional_config": {} if order is None else {"orsched": order},
                    "async": setting["async"],
                    "clients": setting["clients"],
                    "blocks": setting["blocks"] - 1,
                    "block_tokens": BLOCK_TOKENS,
                    "budget": BUDGET,
                    "threshold": 0,
                    "chunked": True,
                    "reserve": True,
                    "max_len": LIMIT + 1002,
                    "step_s": STEP_S,
                    "reference": None if reference is None else list(reference),
                    "requests": [{**row, "priority": p} for row, p in zip(rows, own, strict=True)],
                }
            )
    return cases


def in_vllm(python, module, lines=""):
    """Run a module of this folder in the environment with vLLM; orsched is on its path."""
    return subprocess.run(
        [python, "-m", f"benchmarks.vllm.{module}"],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def check_engine(python):
    """Print what vLLM's engine core did with our class; return the number of faults."""
    done = in_vllm(python, "outlet_engine")
    shown = [line for line in done.stdout.splitlines() if line.startswith("vLLM's engine core")]
    print("\n".join(shown) or f"vLLM's engine core failed: {done.stderr[-900:]}")
    return int(done.returncode != 0)


def run(python, cases):
    """Return vLLM's answers by workload and order."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = in_vllm(python, "outlet_scheduler", lines)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(answers) < len(cases):
        sys.exit(f"vLLM answered {len(answers)} of {len(cases)} cases: {done.stderr[-900:]}")
    return {tuple(answer["id"]): answer for answer in answers}


def faults(case, answer, own, same):
    """Yield what is wrong with an answer; ``own`` is that of vLLM's priority with true lengths.

    ``same``: it has the finish steps of its twin; None if it has no twin.
    """
    name = case["id"][1]
    if len(answer["finish"]) != len(case["requests"]):
        yield f"{len(answer['finish'])} of {len(case['requests'])} finished"
    if answer["misplaced"]:
        yield f"{answer['misplaced']} of {answer['admitted']} admitted out of order"
    if answer["left_in_registry"]:
        yield "requests that are done are not forgotten"
    if case["scheduler_cls"] and answer["class"] != "OrderedScheduler":
        yield f"the class was {answer['class']}"
    if case["gated"] and answer["mixed"]:
        yield f"{answer['mixed']} of {answer['stages']} stages have a round beside them"
    if name in CLAIRVOYANT and abs(mean(answer) / mean(own) - 1) > MOST_APART:
        yield "mean finish step is not that of vLLM's priority with true lengths"
    if same is False:
        yield "requests finish in other steps than with vLLM's own queue"


def mean(answer):
    """Return the mean finish step."""
    return sum(answer["finish"]) / len(answer["finish"])


def compare(python, count):
    """Print one line for each workload and order; return the number of faults."""
    with tempfile.TemporaryDirectory() as folder:
        cases, wrong = make_cases(count, folder), 0
        answers = run(python, cases)
    head = ("order", "steps", "mean finish", "to priority", "preempted", "stages", "equal")
    line = "{:38} {:>6} {:>12} {:>12} {:>10} {:>7} {:>6}"
    for workload in WORKLOADS:
        print(f"\n{workload}: {count} requests\n" + line.format(*head))
        for case in cases:
            if case["id"][0] != workload:
                continue
            name, answer = case["id"][1], answers[tuple(case["id"])]
            if "error" in answer:
                print(f"{name}: {answer['error']}")
                wrong += 1
                continue
            own = answers[workload, "vLLM priority, true lengths"]
            twin = answers.get((workload, TWINS.get(name)))
            same = None if twin is None else twin.get("finish") == answer["finish"]
            apart = f"{mean(answer) / mean(own) - 1:+.2%}"
            shown = {True: "yes", False: "no", None: ""}[same]
            figures = (answer["steps"], f"{mean(answer):.1f}", apart, answer["preemptions"])
            figures += (answer["stages"], shown)
            print(line.format(name, *figures))
            for fault in faults(case, answer, own, same):
                print(f"  WRONG: {fault}")
                wrong += 1
    print(f"\n{len(cases)} runs on vLLM's scheduler, {wrong} faults", flush=True)
    return wrong + check_engine(python)


def main():
    """Exit with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("--requests", type=int, default=500)
    options = parser.parse_args()
    sys.exit(compare(options.python, options.requests) > 0)


if __name__ == "__main__":
    main()
