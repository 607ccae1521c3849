"""The method ``vllm`` beside vLLM's own scheduler, step by step; then orsched's orders in it, and
that scheduler driven by orsched.

Without prefix caches, with them, and on turns of conversations that follow each other's ends: the
tokens that each request finds must be equal too. On long prompts and, where ``ORSCHED_DATA`` is
set, real traces; all of it also with asynchronous scheduling, with a prefix cache as vLLM's server
is set by default, and with random settings of the scheduler that are off by default
(``workloads.KNOBS``).

python -m benchmarks.vllm.compare PYTHON_WITH_VLLM [--workloads 50] [--requests 500]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import orsched
from benchmarks.vllm import outlet, outlet_files
from benchmarks.vllm.workloads import (
    as_case,
    long_workload,
    prefix_workload,
    trace_workload,
    turn_workload,
    with_knobs,
    workload,
)
from orsched.heuristics.continuous import ContinuousBatching
from orsched.heuristics.continuous.async_scheduling import AsyncBatching, as_scheduled, engine_steps
from orsched.heuristics.continuous.params import make_queue
from orsched.metrics.timeline import as_arrived
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

LEAST_EQUAL = 0.9
REAL = Path(__file__).with_name("real_scheduler.py")


def ours(instance, params, ahead):
    """Return the steps and the hits of our schedule, which the checker accepts, and the instance
    with the arrivals that follow from its ends."""
    known = Information.CLAIRVOYANT
    kind = AsyncBatching if ahead else ContinuousBatching
    policy = kind(params, known, make_queue(instance, params, known))
    schedule = simulate_policy(instance, policy).schedule
    assert orsched.check(instance, schedule) == []
    return list(engine_steps(schedule)), hits_of(schedule), as_arrived(instance, schedule)


def hits_of(schedule):
    """Return request -> tokens that its stays found in the prefix cache, one after the other."""
    work, hits = schedule.work, {}
    before = (-1, -1)
    for request, stay, hit in zip(work.request, work.stay, work.hit, strict=True):
        if before != (before := (int(request), int(stay))):
            hits.setdefault(before[0], []).append(int(hit))
    return hits


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


def compare(python, kind, make, count, ahead=False):
    """Print one line for each workload that differs; return whether nearly all are equal.

    ``ahead``: with asynchronous scheduling on both sides.
    """
    mine, found, cases = {}, {}, []
    for seed in range(count):
        instance, params = make(seed)
        steps, found[seed], instance = ours(instance, params, ahead)
        mine[seed] = [(dict(step.tokens), sorted(step.preempted)) for step in steps]
        case = as_case(seed, instance, params, [step.start_ns for step in steps])
        cases.append({**case, "async": ahead})
    equal, refused = 0, 0
    for seed, answer in theirs(python, cases).items():
        if "error" in answer:
            refused += 1
            print(f"workload{kind} {seed}: vLLM refuses it: {answer['error'].splitlines()[-1]}")
            continue
        record = [(dict(tokens), lost) for tokens, lost, _ in answer["record"]]
        real = [(dict(tokens), sorted(lost)) for tokens, lost in as_scheduled(record)]
        hits = {}
        for request, tokens in (each for *_, some in answer["record"] for each in some):
            hits.setdefault(request, []).append(tokens)
        same = mine[seed] == real and found[seed] == hits
        equal += same
        if not same:
            pairs = enumerate(zip(mine[seed], real, strict=False))
            at = next((step for step, (a, b) in pairs if a != b), -1)
            print(f"workload{kind} {seed}: differs at step {at} of {len(mine[seed])}")
    hits = [hit for stays in found.values() for each in stays.values() for hit in each]
    print(
        f"{equal} of {count - refused} workloads{kind} equal, "
        f"{sum(map(len, mine.values()))} steps, "
        f"{sum(len(lost) for steps in mine.values() for _, lost in steps)} preemptions, "
        f"{sum(hits)} tokens hit in {sum(hit > 0 for hit in hits)} of {len(hits)} stays",
        flush=True,
    )
    return equal >= LEAST_EQUAL * count


def driven(python):
    """Print what vLLM did where orsched drives it; return whether all was as asked."""
    done = outlet.in_vllm(python, "driven_scheduler")
    shown = [line for line in done.stdout.splitlines() if " of " in line]
    print("\n".join(shown) or f"the driven scheduler failed: {done.stderr[-900:]}", flush=True)
    return done.returncode == 0


def main():
    """Print one line for each workload that differs, then the outlet's tables.

    Exit 1 below 90 %, or if the outlet has a fault.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("--workloads", type=int, default=50)
    parser.add_argument("--requests", type=int, default=500, help="of the outlet's workloads")
    options = parser.parse_args()
    good = compare(options.python, "", workload, options.workloads)
    for said, ahead in (("", False), (" and asynchronous scheduling", True)):
        shared = f" with prefix caches{said}"
        good &= compare(options.python, shared, prefix_workload, options.workloads, ahead)
        further, make = f"{shared} and further settings", with_knobs(prefix_workload)
        good &= compare(options.python, further, make, options.workloads, ahead)
        turns = f" of conversations{said}"
        good &= compare(options.python, turns, turn_workload, options.workloads, ahead)
    kinds = {"": workload, " of long prompts": long_workload, " of traces": trace_workload}
    if "ORSCHED_DATA" not in os.environ:
        print("no workloads of traces: ORSCHED_DATA is not set")
        del kinds[" of traces"]
    for kind, make in kinds.items():
        if kind:
            good &= compare(options.python, kind, make, options.workloads)
        said = f"{kind} with asynchronous scheduling"
        good &= compare(options.python, said, make, options.workloads, ahead=True)
    good &= driven(options.python)
    faults = outlet.compare(options.python, options.requests) + outlet_files.check(options.python)
    sys.exit(not good or faults > 0)


if __name__ == "__main__":
    main()
