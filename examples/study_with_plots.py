"""A study with plots: how many workers keep the limit, by which policy?

On the command line the same grid is a TOML file:

    orsched study examples/workers.toml -o example-out/workers --plot

Every cell is one run, stored in a file of its own: stopped at any time, the same call goes on.
`orsched capacity` answers the same question with a proof of how few workers cannot do it.
"""

from pathlib import Path

import orsched
from orsched.planning.study import over_seeds, run, save_plots

TRACE = Path(__file__).parent / "data" / "requests.csv"
OUT = Path("example-out") / "study"
LIMIT_S = 2.0

instance = orsched.load(TRACE, clients=64, cost="a100-llama3-8b-sheet")
done = run(
    {
        "name": "workers",
        "instances": [instance],
        "arrivals": ["gamma:rate=12,cv=2"],  # twice the rate of the file, in bursts
        "workers": [1, 2, 3],
        "seeds": "0:3",
        "policies": ["vllm", "gittins"],
        "slo": {"ttft_s": LIMIT_S, "tpot_s": 0.05},
        "plots": [{"x": "workers", "y": "ttft_ns_p99"}, {"x": "workers", "y": "slo_attainment"}],
    },
    folder=OUT,
    jobs=2,
)
for (policy, workers), p99 in over_seeds(done.rows, "ttft_ns_p99", ["policy", "workers"]):
    enough = "enough" if p99.mean < LIMIT_S * 1e9 else ""
    print(f"{policy:8} {workers} workers: TTFT p99 {p99.mean / 1e9:6.2f} s (3 seeds)  {enough}")
for path in save_plots(done.rows, OUT / "plots", done.study.plots):
    print(path)
