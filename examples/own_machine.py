"""A machine of your own, from a CSV file of measured steps.

On the command line the same is

    orsched calibrate --from examples/data/measurements.csv -o mine.json
    orsched compare examples/data/requests.csv --clients 64 --cost mine.json

A row is one step: its phase, the requests in it, their prompt tokens, and how long it took.
`orsched calibrate --template` prints such a file to fill in.
"""

from pathlib import Path

import orsched
from orsched.calibration.candidates import calibrate
from orsched.calibration.step_files import read_measurements
from orsched.files import save_cost

DATA = Path(__file__).parent / "data"
OUT = Path("example-out")

# Every model is fitted to three rows of four and judged by the others, which it has not seen.
measured = read_measurements(DATA / "measurements.csv")
found = calibrate(measured, ["affine", "levels", "profiled"])
for candidate in found.candidates:
    if candidate.cost is None:
        print(f"{candidate.model:9} {candidate.notes[0]}")
    else:
        print(f"{candidate.model:9} {candidate.errors['all']['mean']:.2%} mean error")

cost = found.whole("affine").cost  # fitted to all rows
OUT.mkdir(exist_ok=True)
save_cost(cost, OUT / "mine.json", found.report("affine"))

# The fitted machine beside one of the catalogue (`orsched.machines()`), on the same requests.
for name, machine in (("mine", cost), ("a100-llama3-8b-sheet", "a100-llama3-8b-sheet")):
    instance = orsched.load(DATA / "requests.csv", clients=64, cost=machine)
    result = orsched.simulate(instance, "vllm", slo=orsched.SLO(ttft_s=2, tpot_s=0.05))
    print(f"{name:20} TTFT p99 {result.ttft_p99_s:6.2f} s, attainment {result.slo_attainment:.1%}")
