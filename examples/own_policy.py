"""A policy of your own against first come first served.

On the command line the same is

    orsched compare examples/data/requests.csv --clients 64 --cost a100-llama3-8b-sheet \\
        --methods fcfs,examples/own_policy.py:ShortestPromptFirst --slo-ttft 2 --slo-tpot 0.05

A policy is asked for the next step each time its worker is free. It sees what has arrived and what
runs, and no output lengths, unless it says that it needs them.
"""

from heapq import heappop, heappush
from pathlib import Path

import orsched
from orsched.extending import BatchBuilder


class ShortestPromptFirst(orsched.Policy):
    """Prefill the shortest waiting prompts, at most `most` at once; else decode."""

    name = "shortest-prompt-first"

    def __init__(self, most=8):
        self.most = most
        self.waiting = []

    def start(self, view):
        """Begin a run; the batch builder knows the limits of the worker."""
        self.batch = BatchBuilder(view)

    def on_arrival(self, view, request):
        """Put a request into the queue."""
        heappush(self.waiting, (view.prompt_tokens[request], request))

    def decide(self, view):
        """Return the next step: a prefill stage, a round, or None while nothing is there."""
        stage = []
        self.batch.open(min(self.most, view.free_clients))
        while self.waiting and self.batch.admit(self.waiting[0][1]):
            stage.append(heappop(self.waiting)[1])
        if stage:
            return orsched.prefill_stage(stage)
        return orsched.decode_rounds() if view.running else None


def main():
    """Compare it with two others on the trace of the examples."""
    trace = Path(__file__).parent / "data" / "requests.csv"
    instance = orsched.load(trace, clients=64, cost="a100-llama3-8b-sheet")
    methods = ["fcfs", ShortestPromptFirst, ShortestPromptFirst(most=2)]
    found = orsched.compare(instance, methods, slo=orsched.SLO(ttft_s=2, tpot_s=0.05))
    columns = ["method", "slo_attainment", "ttft_p50_s", "ttft_p99_s", "tpot_p99_s", "checked"]
    print(found.to_pandas()[columns].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
