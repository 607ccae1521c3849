"""Gates of orsched in vLLM's own loop on a CPU, beside vLLM's scheduler: stages and makespan.

The engine is first measured, and the gates get the model that is fitted to it. Requests are the
first of GSM8K with a quarter of their answers' tokens, all at time 0; runs are interleaved.

python -m benchmarks.vllm.engine_gates [--requests 192] [--slots 8] [--model small] [--repeats 5]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.vllm.driven_engine import Stock, open_engine, settings_of
from benchmarks.vllm.engine_passes import BUDGET, make_instance
from orsched.calibration.candidates import calibrate
from orsched.files import save_cost
from orsched.runner.measuring import measure_worker
from orsched.runner.vllm_worker.device import VllmDevice

CLASS = "orsched.runner.vllm_outlet.OrderedScheduler"
KINDS = {
    "vLLM's own: prompts beside rounds": None,
    "stages apart, as soon as a client is free": {"order": "fcfs", "gate": "prefill_first"},
    "stages apart, gate waited_time": {"order": "fcfs", "gate": "waited_time"},
    "stages apart, gate idle_cost": {"order": "fcfs", "gate": "idle_cost"},
}


def measured_cost(instance, settings, path):
    """Write the affine model of the engine's steps, and return it."""
    with open_engine(VllmDevice, settings) as device:
        found = measure_worker(device, BUDGET, repeats=2, like=instance.requests)
    cost = calibrate(found.steps).candidate("affine").cost
    save_cost(cost, path)
    return cost


def stages(passes, prompts):
    """Return how many passes process prompts, and how many of these beside a round."""
    done, found, mixed = [0] * len(prompts), 0, 0
    for each in passes:
        begun = [row for row in each if done[row] < prompts[row]]
        found += bool(begun)
        mixed += 0 < len(begun) < len(each)
        for row, tokens in each.items():
            done[row] += tokens
    return found, mixed


def main():
    """Print the table; exit 1 if answers differ, or a stage that is apart has a round beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=192)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--model", default="small")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="on a CPU")
    options = parser.parse_args()
    instance = make_instance(options.requests, slots=options.slots)
    prompts = instance.requests.prompt_tokens.tolist()
    runs = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        path = Path(folder, "cost.json")
        usual = settings_of(instance, options.model, options.threads)
        cost = measured_cost(instance, usual, path)
        print(f"cost of a step as measured: {cost}")
        engines = {}
        for kind, order in KINDS.items():
            more = {} if order is None else {
                "scheduler_cls": CLASS,
                "additional_config": {"orsched": {**order, "cost": str(path)}},
            }  # fmt: skip
            settings = settings_of(instance, options.model, options.threads, **more)
            engines[kind] = ends.enter_context(open_engine(Stock, settings, BUDGET))
        for repeat in range(options.repeats + 1):
            for kind, engine in engines.items():
                run = engine.run(instance)
                if repeat:
                    runs[kind].append(run)
    print(f"\n{options.requests} requests, {options.slots} slots, model {options.model}\n")
    print("| scheduler | passes | stages | beside a round | makespan s | spread s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    wrong, first = 0, runs[next(iter(KINDS))][0].tokens
    for kind, some in runs.items():
        times = [run.taken_ns / 1e9 for run in some]
        found, mixed = stages(some[0].passes, prompts)
        wrong += some[0].tokens != first or bool(mixed and KINDS[kind])
        print(
            f"| {kind} | {len(some[0].passes):,} | {found} | {mixed} | {median(times):.2f} "
            f"| {min(times):.2f} to {max(times):.2f} |"
        )
    print(f"\n{wrong} faults")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
