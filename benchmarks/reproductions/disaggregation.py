"""Goodput of splits beside DistServe's first figure, and beside pools that help each other.

python -m benchmarks.reproductions.disaggregation [--requests 1000] [--seeds 5]

DistServe (Zhong et al., arXiv 2401.09670, section 1 and figure 1): a model of 13B parameters on
A100s of 80 GB, prompts of 512 tokens, answers of 64, Poisson arrivals; the goodput is the largest
rate at which 90 % of the requests have a TTFT within 0.4 s, and 90 % a TPOT within 0.04 s. Here
Llama 2 13B with times by data sheet, so that rates are higher than theirs: compare the ratios.
"""

from __future__ import annotations

import argparse
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.arguments import count
from orsched.calibration import machine
from orsched.checker import check
from orsched.data.instance import Instance
from orsched.data.links import Link, Split, read_split
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.heuristics.disaggregated import DISAGGREGATED
from orsched.instances.arrivals import with_arrivals
from orsched.metrics.flat_figures import distribution
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from orsched.solving.scenario import with_workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.schedule import Schedule

PROMPT, ANSWER = 512, 64
TTFT_NS, TPOT_NS = 400_000_000, 40_000_000
KV_BYTES = 2 * 40 * 40 * 128 * 2
"""Bytes of a token in the cache: keys and values, layers, heads, numbers of a head, 2 bytes."""
BLOCKS = (80_000_000_000 - 26_000_000_000 - 8_000_000_000) // (KV_BYTES * 16)
"""Blocks of 16 tokens beside the weights, with a tenth of the memory left for all else."""
LINKS = {
    "none": None,
    "NVLink, 300 GB/s": Link.of_bandwidth(300e9, KV_BYTES, 1e-5),
    "25 Gbit/s": Link.of_bandwidth(25e9 / 8, KV_BYTES, 1e-5),
}
PREFILL_FIRST = {"mode": "prefill_first"}
CHUNKS = {"mode": "mixed", "max_num_batched_tokens": 256}
MOST_RATE = 256.0
"""Where the search ends for too few requests to break a limit."""

PRECISION = 1 / 64
"""Relative width at which a search for a rate ends."""


class Row(NamedTuple):
    """A line of the table: a split, its link, and the parameters of the policy."""

    split: str
    link: str
    batching: str
    parameters: dict[str, object]


ROWS = (
    Row("1B", "none", "prefill first", PREFILL_FIRST),
    Row("1B", "none", "chunks of 256", CHUNKS),
    Row("1P1D", "NVLink, 300 GB/s", "prefill first", PREFILL_FIRST),
    Row("2P1D", "NVLink, 300 GB/s", "prefill first", PREFILL_FIRST),
    Row("3P1D", "NVLink, 300 GB/s", "prefill first", PREFILL_FIRST),
    Row("1P2D", "NVLink, 300 GB/s", "prefill first", PREFILL_FIRST),
    Row("2P1D", "25 Gbit/s", "prefill first", PREFILL_FIRST),
    Row(
        "2P1B", "NVLink, 300 GB/s", "queue above 2,048: local, in chunks",
        {**CHUNKS, "prefill_queue_tokens": 2048},
    ),
)  # fmt: skip


def instance_of(row: Row, rate: float, seed: int, requests: int) -> Instance:
    """Return the instance of a line at a rate."""
    found = read_split(row.split)
    assert found is not None
    one = Worker(
        256, machine("a100-llama2-13b-sheet").cost, memory=BlockMemory(BLOCKS, 16, "paged")
    )
    base = Instance(
        Requests([PROMPT] * requests, [ANSWER] * requests), (one,), first_token="prefill"
    )
    made = with_workers(base, Split(found.roles, LINKS[row.link]))
    return with_arrivals(made, f"poisson:rate={rate!r}", seed)


def run(row: Row, instance: Instance) -> Schedule:
    """Return the schedule of a line's policy."""
    policy, _ = DISAGGREGATED.build(instance, Information.NONE, dict(row.parameters), 0)
    return simulate_policy(instance, policy).schedule


def latencies_ns(instance: Instance, schedule: Schedule) -> tuple[int, int]:
    """Return the 90th percentiles of TTFT and TPOT."""
    times, requests = schedule.request_times(instance), instance.requests
    first, finish = times["first_token_ns"], times["finish_ns"]
    pace = (finish - first) // (requests.output_tokens - 1)
    ttft, tpot = distribution(first - requests.arrival_ns), distribution(pace)
    assert ttft is not None
    assert tpot is not None
    return int(ttft["p90"]), int(tpot["p90"])


def goodput(row: Row, seed: int, requests: int, limits: tuple[bool, bool]) -> float:
    """Return the largest rate at which the limits that count (TTFT, TPOT) are kept.

    It is found by halving, on one draw of arrivals that is stretched; the schedule at the rate that
    is returned is checked.
    """

    def keeps(rate: float) -> bool:
        instance = instance_of(row, rate, seed, requests)
        ttft, tpot = latencies_ns(instance, run(row, instance))
        return (not limits[0] or ttft <= TTFT_NS) and (not limits[1] or tpot <= TPOT_NS)

    low, high = 0.25, 0.5
    while high < MOST_RATE and keeps(high):
        low, high = high, 2 * high
    while high - low > low * PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    instance = instance_of(row, low, seed, requests)
    assert check(instance, run(row, instance)) == []
    return low


def table(heads: list[str], lines: list[list[str]]) -> str:
    """Return a table in Markdown."""
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=count, default=1000)
    parser.add_argument("--seeds", type=count, default=5)
    options = parser.parse_args(arguments)
    seeds, requests = range(options.seeds), options.requests
    lines, base = [], 0.0
    for row in ROWS:
        found = [goodput(row, seed, requests, (True, True)) for seed in seeds]
        split = read_split(row.split)
        assert split is not None
        each = mean(found) / split.workers
        base = base or each
        shown = f"{mean(found):.2f} ({min(found):.2f} to {max(found):.2f})"
        lines.append(
            [row.split, row.link, row.batching, shown, f"{each:.2f}", f"{each / base:.2f}"]
        )
    heads = ["split", "link", "batching", "requests/s", "per GPU", "times the first"]
    print(table(heads, lines))
    lines = []
    for name, split, link, limits in (
        ("both roles, TTFT alone", "1B", "none", (True, False)),
        ("both roles, TPOT alone", "1B", "none", (False, True)),
        ("one that prefills (of 1P2D), TTFT alone", "1P2D", "NVLink, 300 GB/s", (True, False)),
        ("one that decodes (of 3P1D), TPOT alone", "3P1D", "NVLink, 300 GB/s", (False, True)),
    ):
        row = Row(split, link, "", PREFILL_FIRST)
        lines.append([name, f"{mean(goodput(row, seed, requests, limits) for seed in seeds):.2f}"])
    print()
    print(table(["what is served, and which limit counts", "requests/s"], lines))


if __name__ == "__main__":
    main()
