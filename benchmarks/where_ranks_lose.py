"""Where the bound by ranks gives away what it does: the same requests with parts left out.

python -m benchmarks.where_ranks_lose

Mean JCT of the better of gittins and shortest first, both with the lengths, over the bound of all
schedules that prefill once. A part whose absence closes the gap is where the gap is.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

import orsched
from benchmarks.reproductions.page_tables import markdown
from orsched import AffineCost, Instance, Requests, Worker
from orsched.models.bounds.bounds import bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAMES = ("pang-100x20", "gsm8k-llama65b")
POLICIES = ("gittins@clairvoyant", "sjf")


def variants(instance: Instance) -> Iterator[tuple[str, Instance]]:
    """Yield what is left out, and the instance without it; its cost is affine."""
    requests, (worker,) = instance.requests, instance.workers
    prompts, outputs, cost = requests.prompt_tokens, requests.output_tokens, worker.cost
    assert isinstance(cost, AffineCost)
    no_fixed = replace(cost, prefill_fixed_ns=0)
    in_proportion = -(-outputs * int(prompts.sum()) // int(outputs.sum()))

    def made(priced: AffineCost, tokens: Requests) -> Instance:
        new = Worker(worker.clients, priced, worker.prefill_limit)
        return Instance(tokens, (new,), instance.first_token)

    plain = Requests(prompts, outputs)
    yield "nothing", made(cost, plain)
    yield "fixed time of prefills", made(no_fixed, plain)
    yield "prefills unlike rounds", made(cost, Requests(in_proportion, outputs))
    yield "tokens of prefills", made(replace(cost, prefill_token_ns=0), plain)
    yield "prefills", made(replace(no_fixed, prefill_token_ns=0), plain)


def gap(instance: Instance) -> tuple[float, float]:
    """Return the least mean JCT of the policies and the bound, in seconds."""
    solved = [orsched.solve(instance, method=each).schedule for each in POLICIES]
    least = bound(instance, "mean_jct", allows=("chunks", "mixed")).value_ns
    return min(each.results["jct_ns"]["mean"] for each in solved) / 1e9, least / 1e9


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each instance and part."""
    argparse.ArgumentParser(description=__doc__.split("\n", 1)[0]).parse_args(arguments)
    rows = []
    for name in NAMES:
        for without, instance in variants(orsched.load(name)):
            policy, least = gap(instance)
            rows.append({
                "instance": name, "left out": without, "policy s": f"{policy:.3f}",
                "bound s": f"{least:.3f}", "gap s": f"{policy - least:.3f}",
                "gap": f"{100 * (policy / least - 1):.2f} %",
            })  # fmt: skip
    print(markdown(rows))


if __name__ == "__main__":
    main()
