"""Chats with think time and rollouts with tool time, in closed loops.

On the command line, for a file of turns (columns parent and delay_s) or any other:

    orsched simulate example-out/chats.json --policy vllm --concurrency 32
"""

from pathlib import Path

import orsched
from orsched.instances.catalog import generate


def main():
    """Print how many conversations in flight a server keeps fast, and what its cache finds."""
    folder = Path("example-out")
    folder.mkdir(exist_ok=True)
    for name, generator in (("chats", "chats"), ("rollouts", "tool-rollouts")):
        case = generate(generator)
        print(f"{name}: {len(case)} turns")
        for concurrency in (8, 32, 128):
            case = case.replace(concurrency=concurrency, name=name)
            result = orsched.simulate(case, "vllm")
            found = result.schedule.results
            print(
                f"  {concurrency:3} in flight: TTFT p99 {found['ttft_ns']['p99'] / 1e9:.3f} s, "
                f"{result.makespan:.1f} s (at least {result.bound:.1f} s), "
                f"{found['hit_rate']:.0%} of the tokens found in the cache"
            )
        orsched.save_instance(case, folder / f"{name}.json")


if __name__ == "__main__":
    main()
