"""Compare methods on requests of your own: a CSV file, a machine, limits on latency.

On the command line the same is

    orsched compare examples/data/requests.csv --clients 64 --cost a100-llama3-8b-sheet \\
        --methods fcfs,vllm,gittins --slo-ttft 2 --slo-tpot 0.05 --report report.html

The file has a row a request: prompt_tokens, output_tokens, arrival_s. Change the path to yours.
"""

from pathlib import Path

import orsched

TRACE = Path(__file__).parent / "data" / "requests.csv"
OUT = Path("example-out")

# A worker that serves 64 requests at a time, with the times that the data sheet of an A100 promises
# for an 8B model. Without `cost` it would be Pang's LLaMA-65B, which is slower.
instance = orsched.load(TRACE, clients=64, cost="a100-llama3-8b-sheet")

# The first token within 2 s, each further one within 50 ms on average.
limits = orsched.SLO(ttft_s=2, tpot_s=0.05)
found = orsched.compare(instance, ["fcfs", "vllm", "gittins"], slo=limits)

columns = ["method", "slo_attainment", "ttft_p99_s", "tpot_p99_s", "jct_mean_s", "makespan_s"]
print(found.to_pandas()[columns].round(3).to_string(index=False))

best = found.best()
print(f"{best.schedule.method} keeps the limits of {best.slo_attainment:.1%} of the requests.")

OUT.mkdir(exist_ok=True)
orsched.write_report(instance, [each.schedule for each in found], OUT / "own_trace.html")
print(f"Open {OUT / 'own_trace.html'} in a browser.")
