"""Measure this machine, plan for it, run the plan on a real model, and compare the two.

On the command line, with 100 requests of a shipped instance:

    orsched calibrate --model tiny --threads 1 --slots 20 --length 640 -o cost.json
    orsched convert pang-100x20 requests.csv
    orsched convert requests.csv case.json --clients 20 --cost cost.json
    orsched run case.json --policy hybrid --model tiny --threads 1 -o run.json

It needs torch (pip install 'orsched[runner]'). The model is small and has random weights: what is
measured are the times of steps, not answers. A plan for another machine would be off by far.
"""

from pathlib import Path

import orsched
from orsched.calibration.candidates import calibrate
from orsched.runner import RunSettings, plan_against_run, run
from orsched.runner.measuring import WorkerOptions, make_device, measure_worker

SLOTS, LENGTH = 8, 192
OUT = Path("example-out")

# 1. Measure: a grid of steps, and a rehearsal with made-up requests.
options = WorkerOptions(model="tiny", device="cpu", slots=SLOTS, length=LENGTH, threads=1)
device, _ = make_device(options)
measured = measure_worker(device, most_tokens=512, repeats=3, requests=24)
cost = calibrate(measured.steps).candidate("affine").cost
print(cost)

# 2. Plan: 40 requests, all there at once, with the lengths known.
instance = orsched.Instance(
    orsched.Requests([16 + 7 * k % 90 for k in range(40)], [8 + 11 * k % 70 for k in range(40)]),
    orsched.Worker(SLOTS, cost, prefill_cap_tokens=512),
    name="forty-requests",
)
plan = orsched.solve(instance, "hybrid")
print(f"planned: {plan.makespan:.3f} s, gap {plan.gap:.1%}")

# 3. Run the plan, step by step, on the model.
settings = RunSettings(model="tiny", device="cpu", length=LENGTH, threads=1)
done = run(instance, plan.schedule, settings)
found = plan_against_run(instance, plan.schedule, done.trace)
print(f"measured: {done.trace.makespan_ns / 1e9:.3f} s, {found.makespan_error:+.1%} of the plan")
for row in found.phases:
    print(f"  {row.phase:8} {row.stages:3} stages, {row.error:+.1%}")

OUT.mkdir(exist_ok=True)
orsched.write_report(instance, [plan.schedule, done.trace], OUT / "plan_and_run.html")
