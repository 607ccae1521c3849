"""The method ``vllm`` beside vLLM's own scheduler, step by step; then orsched's orders in it.

python -m benchmarks.vllm.compare PYTHON_WITH_VLLM [--workloads 50] [--requests 500]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import orsched
from benchmarks.vllm import outlet, outlet_files
from benchmarks.vllm.workloads import as_case, workload
from orsched.heuristics.continuous import ContinuousBatching
from orsched.heuristics.continuous.engine_steps import as_scheduled, engine_steps
from orsched.heuristics.continuous.waiting import make_queue
from orsched.policy import Information
from orsched.simulator import simulate_policy

LEAST_EQUAL = 0.9
REAL = Path(__file__).with_name("real_scheduler.py")


def ours(instance, params):
    """Return the steps of our schedule, which the checker accepts."""
    known = Information.CLAIRVOYANT
    policy = ContinuousBatching(params, known, make_queue(instance, params, known))
    schedule = simulate_policy(instance, policy).schedule
    assert orsched.check(instance, schedule) == []
    return list(engine_steps(schedule))


def theirs(python, cases):
    """Return vLLM's answers by workload."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(
        [python, str(REAL)], input=lines, capture_output=True, text=True, check=False
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(answers) < len(cases):
        sys.exit(f"vLLM answered {len(answers)} of {len(cases)} workloads: {done.stderr[-600:]}")
    return {answer["id"]: answer for answer in answers}


def main():
    """Print one line for each workload that differs, then the outlet's tables.

    Exit 1 below 90 %, or if the outlet has a fault.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("--workloads", type=int, default=50)
    parser.add_argument("--requests", type=int, default=500, help="of the outlet's workloads")
    options = parser.parse_args()
    steps, cases = {}, []
    for seed in range(options.workloads):
        instance, params = workload(seed)
        steps[seed] = ours(instance, params)
        starts = [step.start_ns for step in steps[seed]]
        cases.append(as_case(seed, instance, params, starts))
    equal, refused, compared, preempted = 0, 0, 0, 0
    for seed, answer in theirs(options.python, cases).items():
        if "error" in answer:
            refused += 1
            print(f"workload {seed}: vLLM refuses it: {answer['error'].splitlines()[-1]}")
            continue
        mine = [(dict(step.tokens), sorted(step.preempted)) for step in steps[seed]]
        real = [
            (dict(tokens), sorted(lost))
            for tokens, lost in as_scheduled((dict(t), p) for t, p in answer["record"])
        ]
        compared += len(mine)
        preempted += sum(len(lost) for _, lost in mine)
        equal += mine == real
        if mine != real:
            at = next((k for k, (a, b) in enumerate(zip(mine, real, strict=False)) if a != b), -1)
            print(f"workload {seed}: differs at step {at} of {len(mine)}")
    run = options.workloads - refused
    print(
        f"{equal} of {run} workloads equal, {compared} steps, {preempted} preemptions", flush=True
    )
    faults = outlet.compare(options.python, options.requests) + outlet_files.check(options.python)
    sys.exit(equal < LEAST_EQUAL * options.workloads or faults > 0)


if __name__ == "__main__":
    main()
