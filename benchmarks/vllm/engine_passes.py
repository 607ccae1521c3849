"""vLLM's engine under orsched: each forward pass beside plan, trace and vLLM's own choice.

Requests are the first of GSM8K, with a quarter of their answers' tokens, on 8 slots. Exit 1 where a
pass, a token or a share is not as it must be.

python -m benchmarks.vllm.engine_passes [--requests 64 192] [--model tiny-qwen3] [--no-costs]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace
from statistics import median

import orsched
from benchmarks.vllm.driven_engine import (
    Driven,
    Stock,
    equal,
    open_engine,
    passes_of,
    settings_of,
)
from orsched import AffineCost, BlockMemory, Instance, PrefixCache, Prefixes, Worker

SLOTS, BLOCK_TOKENS, BUDGET = 8, 32, 2048
SHARED, DOCUMENTS = 96, 4
"""Tokens that prompts share with others in the case of the prefix cache, and of how many texts."""

COST = AffineCost(
    prefill_fixed_s=0.004, prefill_token_s=0.0001, round_fixed_s=0.004, round_client_s=0.0002
)
BLOCKS = {"num_gpu_blocks_override": 25, "block_size": BLOCK_TOKENS}
HALF = {"num_gpu_blocks_override": 13, "block_size": BLOCK_TOKENS}
SYNC, ASYNC = {"async_scheduling": False}, {"async_scheduling": True}
BY_TIME = ("online",)
"""Policies whose decisions depend on measured times: their passes are not those of the plan."""
MOST_POINTS = {8: 2.0, 64: 5.0}
"""By slots: points of the model's share of the time that driving may cost."""


@dataclass(frozen=True)
class Case:
    """A method on a kind of instance and of engine."""

    name: str
    method: str
    parameters: dict = field(default_factory=dict)
    kind: str = ""  # of the instance
    engine: dict = field(default_factory=dict)
    stock: bool = False  # whether vLLM's own scheduler must have the same passes


CASES = (
    Case("fcfs", "fcfs"),
    Case("hybrid (a plan)", "hybrid"),
    Case("gittins", "gittins"),
    Case("online (by time)", "online"),
    Case("vllm", "vllm", stock=True),
    Case("vllm, budget 64", "vllm", {"max_num_batched_tokens": 64}, stock=True),
    Case("gittins, stages of 64", "gittins", kind="capped"),
    Case("scls", "scls"),
    Case("fcfs, first token by decode", "fcfs", kind="decode"),
    Case("vllm, first token by decode", "vllm", kind="decode"),
    Case("gittins, first token by decode", "gittins", kind="decode"),
    Case("whole memory, fcfs", "fcfs", kind="whole"),
    Case("whole memory, gittins", "gittins", kind="whole"),
    Case("24 blocks, vllm", "vllm", kind="24 blocks", engine=BLOCKS, stock=True),
    Case("24 blocks, gittins", "gittins", kind="24 blocks", engine=BLOCKS),
    Case("12 blocks, vllm", "vllm", kind="12 blocks", engine=HALF, stock=True),
    Case("12 blocks, gittins", "gittins", kind="12 blocks", engine=HALF),
    Case("async, fcfs", "fcfs", engine=ASYNC),
    Case("async, hybrid (a plan)", "hybrid", engine=ASYNC),
    Case("async, gittins", "gittins", engine=ASYNC),
    Case("async, vllm", "vllm", {"async_scheduling": True}, engine=ASYNC, stock=True),
    Case("prefix cache, vllm", "vllm", kind="prefix"),
    Case("prefix cache, gittins", "gittins", kind="prefix"),
    Case("async, prefix cache, vllm", "vllm", kind="prefix", engine=ASYNC),
)


def make_instance(count, kind="", slots=SLOTS, part=4):
    """Return requests of GSM8K on a worker of a kind."""
    requests = orsched.load("gsm8k-llama65b").requests.take(range(count))
    outputs = [max(1, tokens // part) for tokens in requests.output_tokens.tolist()]
    requests = replace(requests, output_tokens=outputs)
    memory = {
        "24 blocks": BlockMemory(24, BLOCK_TOKENS, "paged"),
        "12 blocks": BlockMemory(12, BLOCK_TOKENS, "paged"),
        "whole": BlockMemory(24, BLOCK_TOKENS, "whole"),
        "prefix": BlockMemory(72, BLOCK_TOKENS, "paged", PrefixCache()),
    }.get(kind)
    if kind == "prefix":
        documents = [row % DOCUMENTS for row in range(count)]
        requests = replace(
            requests,
            prompt_tokens=requests.prompt_tokens + SHARED,
            prefixes=Prefixes.from_documents(documents, SHARED, BLOCK_TOKENS),
        )
    worker = Worker(slots, COST, 64 if kind == "capped" else BUDGET, memory)
    return Instance(requests, worker, "decode" if kind == "decode" else "prefill")


def evictions(schedule):
    """Return how many stays followed others of their request."""
    stays = {(r, s) for r, s in zip(schedule.work.request, schedule.work.stay, strict=True)}
    return len(stays) - len({request for request, _ in stays})


def hits(schedule):
    """Return the tokens that were found in the prefix cache."""
    return int(schedule.work.hit.sum())


def table(count, model, threads):
    """Print a row for each case; return the number of faults."""
    line = "| {} | {} | {} | {} | {} | {} | {} | {} | {} |"
    print(f"\n{count} requests, model {model}, {SLOTS} slots\n")
    print(line.format(
        "case", "passes: as the trace", "as planned", "as vLLM's own", "violations", "evictions",
        "tokens hit", "answers as fcfs", "model's share",
    ))  # fmt: skip
    print("| --- |" + " ---: |" * 8, flush=True)
    reference, wrong = {}, 0
    for engine in dict.fromkeys((str(case.engine), case.kind == "prefix") for case in CASES):
        cases = [each for each in CASES if (str(each.engine), each.kind == "prefix") == engine]
        arguments, kind = cases[0].engine, cases[0].kind
        found = {}
        with open_engine(
            Driven, settings_of(make_instance(count, kind), model, threads, **SYNC | arguments)
        ) as driven:
            for case in cases:
                instance = make_instance(count, case.kind)
                found[case.name] = driven.run(instance, case.method, **case.parameters)
        for case in cases:
            own = stock_passes(count, case, model, threads) if case.stock else None
            wrong += print_row(line, case, found[case.name], own, reference)
    return wrong


def stock_passes(count, case, model, threads):
    """Return the passes of vLLM's own scheduler."""
    instance = make_instance(count, case.kind)
    budget = case.parameters.get("max_num_batched_tokens", BUDGET)
    settings = settings_of(instance, model, threads, **SYNC | case.engine)
    with open_engine(Stock, settings, budget) as stock:
        return stock.run(instance)


def print_row(line, case, found, own, reference):
    """Print what became of a case; return the number of faults."""
    run, schedule, plan, violations = found
    instance = make_instance(len(run.tokens), case.kind)
    first = reference.setdefault(case.kind == "prefix", run.tokens)
    traced, planned = (
        equal(run.passes, passes_of(instance, schedule)),
        equal(run.passes, passes_of(instance, plan)),
    )
    by_own = None if own is None else equal(run.passes, own.passes)
    same = sum(a == b for a, b in zip(run.tokens, first, strict=True))
    share = f"{run.model_share:.3f}"
    if own is not None:
        share += f" (own: {own.model_share:.3f})"
    print(line.format(
        case.name, _of(traced), _of(planned), "" if by_own is None else _of(by_own), violations,
        evictions(schedule) or "", hits(schedule) or "", f"{same} of {len(first)}", share,
    ), flush=True)  # fmt: skip
    must = [traced, (same, len(first))]
    must += [] if case.method in BY_TIME else [planned]
    must += [] if by_own is None else [by_own]
    must += [] if own is None else [equal(own.tokens, run.tokens)]
    return violations + sum(part != whole for part, whole in must)


def _of(pair):
    return f"{pair[0]:,} of {pair[1]:,}"


def costs(model, repeats, threads):
    """Print what driving costs in points of the model's share; return the number of faults."""
    print(f"\nshare of the model in the time, medians of {repeats} runs, model {model}\n")
    print("| slots | vLLM's own scheduler | driven | costs, points | at most |")
    print("| ---: | ---: | ---: | ---: | ---: |", flush=True)
    wrong = 0
    for slots, most in MOST_POINTS.items():
        instance = make_instance(2 * slots + 32, slots=slots, part=8)
        settings = settings_of(instance, model, threads, **SYNC)
        shares = {Stock: [], Driven: []}
        with (
            open_engine(Stock, settings, BUDGET) as stock,
            open_engine(Driven, settings) as driven,
        ):
            for repeat in range(repeats + 1):
                runs = {Stock: stock.run(instance), Driven: driven.run(instance, "vllm")[0]}
                for kind, run in runs.items() if repeat else ():
                    shares[kind].append(run.model_share)
        own, ours = median(shares[Stock]), median(shares[Driven])
        points = 100 * (own - ours)
        print(f"| {slots} | {own:.4f} | {ours:.4f} | {points:+.2f} | {most} |", flush=True)
        wrong += points > most
    return wrong


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, nargs="*", default=[64, 192])
    parser.add_argument("--model", default="tiny-qwen3", help="of the table")
    parser.add_argument("--costs", default="small", help="model that shows the costs; '' for none")
    parser.add_argument("--repeats", type=int, default=5, help="of the costs")
    parser.add_argument("--threads", type=int, default=1, help="on a CPU")
    options = parser.parse_args()
    wrong = sum(table(count, options.model, options.threads) for count in options.requests)
    wrong += costs(options.costs, options.repeats, options.threads) if options.costs else 0
    print(f"\n{wrong} faults")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
