"""What is mutated: a few valid documents of each format, and certificates of each kind."""

import json
import random

import numpy as np

from orsched import SLO, Instance, OrschedError, Requests, Steps, Work, Worker, solve, summarise
from orsched.files.instance_document import instance_document
from orsched.files.schedule_document import schedule_document
from orsched.instances.catalog import affine_ms, load_named
from orsched.models.bounds.bounds import bound, improving_bounds, makespan_bound
from orsched.models.bounds.bulk_bound import attainment_bound, bulk_bound
from orsched.runner.loop.resume import residual
from tests.brute_force import optimum_ns
from tests.checker.any_mode import random_schedule
from tests.files import malformed
from tests.instances.test_readers import SAMPLES as TRACES
from tests.models.test_bulk_bound import with_classes
from tests.pools import pool_instance
from tests.random_instances import random_instance

METHODS = ("fcfs", "offline", "online", "hybrid", "static")
"""Their schedules use none of the freedoms (chunks, mixed steps, restarts): every bound holds."""

WHOLE = {"mode": "prefill_first", "max_num_batched_tokens": 10**6}
"""Parameters with which ``disaggregated`` uses none of them either, where memory suffices."""

OBJECTIVES = ("makespan", "mean_jct", "mean_ttft")
STUDY = {
    "instances": ["two-by-two", {"name": "with-arrivals", "sample": [2, 3], "label": "few"},
                  {"generator": "uniform", "requests": [3, 5], "clients": 2}],
    "policies": ["fcfs", {"name": "vllm", "parameters": {"mode": ["mixed", "prefill_first"]}},
                 "hybrid@predicted"],
    "seeds": "0:3", "arrivals": ["as_given", {"law": "gamma", "rate": [1, 2.5], "cv": 2}],
    "workers": [1, 2], "predictions": ["as_given", {"law": "noise", "sigma": [0.3]}],
    "bounds": ["makespan", "mean_jct"], "slo": {"ttft_s": 1, "tpot_s": 0.1}, "iterations": 10,
    "plots": [{"y": "jct_ns_mean", "x": "arrivals_rate", "by": "policy"}],
}  # fmt: skip
CONFIG = {
    "seed": 3, "policy": {"name": "vllm", "information": "none", "parameters": {"max_num_seqs": 2}},
    "workers": {"count": 2}, "arrivals": {"law": "poisson", "rate": 3},
    "predictions": {"law": "noise", "sigma": 0.2},
}  # fmt: skip


def schedules():
    """Yield (instance, schedule with results and bound): named ones, and of all modes."""
    for name in ("two-by-two", "with-arrivals", "memory-bound"):
        instance = load_named(name)
        for method in ("fcfs", "vllm"):
            yield instance, solve(instance, method).schedule
    for seed in (1, 2, 5, 6, 14):
        instance = pool_instance(seed)
        yield instance, solve(instance, "disaggregated").schedule
    for seed in range(30):
        instance, schedule = random_schedule(seed)
        results = summarise(instance, schedule, SLO(ttft_ns=200, tpot_ns=20))
        yield instance, schedule.replace(results=results)


def documents_of(instance, schedule):
    return {"instance": instance_document(instance), "schedule": schedule_document(schedule)}


def documents():
    pairs = list(schedules())
    whole = [documents_of(*pair) for pair in pairs]
    device = {"device": "cpu", "clock": "perf_counter_ns"}
    for pair in whole[::3]:
        measured = {**pair["schedule"], "format": "orsched/trace", "run": device}
        whole.append({**pair, "schedule": {**measured, "results": {}, "bound": None}})
    costs = [worker.cost for instance, _ in pairs for worker in instance.workers]
    models = {cost.model: {"model": cost.model, **cost.to_dict()} for cost in costs}
    head = {"format": "orsched/cost", "version": 1}
    return {
        "instance": [
            *(pair["instance"] for pair in whole[:20]), malformed.instance_document(),
            malformed.quantiles([[1, 2], [1, 9], [3, 3]])(malformed.instance_document()),
        ],
        "schedule": whole,
        "cost": [{**head, **model} for model in models.values()] + [malformed.cost_document()],
        "partial": list(_stopped()), "bulk": list(_bulk_bounds()), "traces": TRACES,
        "csv": malformed.CSV, "study": STUDY, "config": CONFIG,
    }  # fmt: skip


def _stopped():
    """Yield runs that were stopped after some steps, with the tokens that they yielded."""
    instance = load_named("with-arrivals")
    whole = solve(instance, "fcfs").schedule
    for count in range(1, len(whole.steps)):
        keep = whole.work.first_step < count
        work = {name: column[keep] for name, column in vars(whole.work).items()}
        work["last_step"] = np.minimum(work["last_step"], count - 1)
        steps = {name: column[:count] for name, column in vars(whole.steps).items()}
        run = {"device": "virtual", "clock": "model", "complete": False, "worker": "virtual"}
        run |= {"seed": 1, "events": [{"time_ns": 0, "what": "lost", "worker": 0, "requests": [0]}]}
        kept = {"steps": Steps(**steps), "work": Work(**work), "results": {}, "bound": None}
        trace = whole.replace(**kept, run=run)
        rest = residual(instance, trace)
        pairs = zip(rest.rows.tolist(), rest.yielded.tolist(), strict=True)
        noted = {str(row): [5] * tokens for row, tokens in pairs if tokens}
        yield documents_of(instance, trace.replace(run={**run, "unfinished": noted}))


def _bulk_bounds():
    """Yield bounds on bulk work and on attainment, each beside a schedule of the instance."""
    for seed in range(40):
        plain, schedule = random_schedule(seed)
        instance, moment = with_classes(np.random.default_rng(seed), plain, schedule)
        for make, given in ((bulk_bound, [0.5]), (attainment_bound, [])):
            try:
                found = make(instance, *given, moment / 1e9, windows=5)
            except OrschedError:
                continue
            yield {**documents_of(instance, schedule), "bound": found.to_dict()}


def certificates():
    """Return bounds of each kind on small instances, with the least value known to be feasible."""
    found, seen = [], {}
    for instance in _instances():
        least = None
        for objective, item in _bounds(instance):
            kind = f"{objective} {shape(item.certificate)}"
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] > 3:
                continue
            least = least_known(instance) if least is None else least
            if objective in least:
                document = {"instance": instance_document(instance), "objective": objective}
                document |= {"bound": item.to_dict(), "least": least[objective]}
                found.append(json.loads(json.dumps(document)))
    return found


def shape(certificate):
    """Return the kinds of claims that a certificate is made of: reasons, tables, what is nested."""
    parts = []
    for name, value in certificate.items():
        if isinstance(value, dict):
            parts.append(f"{name}({shape(value)})")
        elif name in ("bound", "reason", "kind"):
            parts.append(str(value))
        elif isinstance(value, list) and name not in ("allows", "workers"):
            parts.append(name)
    return " ".join(parts)


def _instances():
    for name in ("two-by-two", "with-arrivals", "memory-bound"):
        yield load_named(name)
    yield load_named("pang-100x20")
    for seed in range(120):
        yield _packed(random.Random(seed))
    dice = random.Random(1000020)  # its packing is proven by a tree
    outputs = [dice.randint(1, 10**4) for _ in range(75)]
    yield Instance(Requests([10] * 75, outputs), Worker(25), first_token="decode")
    for seed in range(60):
        yield random_instance(random.Random(seed))
    for seed in range(30):
        yield random_schedule(seed)[0]
    for seed in range(0, 20, 2):  # without memory, so that nobody is evicted
        yield pool_instance(seed, ("prefill", "decode")[seed % 4 // 2])


def _packed(dice):
    """Return an instance on which stages, ends and packings count."""
    many, clients = dice.choice((3, 5, 7, 9, 12, 20)), dice.choice((2, 3, 4, 5))
    most = dice.choice((4, 9, 30, 300))
    least = dice.choice((1, most // 2, most // 3 + 1))
    outputs = [dice.randint(least, most) for _ in range(many)]
    prompts = [dice.randint(1, 9) for _ in range(many)]
    cost = affine_ms(*dice.choice(((10, 1, 20, 1), (1, 0, 50, 0), (100, 1, 3, 0))))
    worker = Worker(clients, cost, prefill_cap_tokens=dice.choice((None, 20, 100)))
    return Instance(Requests(prompts, outputs), (worker,) * dice.choice((1, 1, 1, 2)), "decode")


def _bounds(instance):
    try:
        seconds = 5.0 if len(instance) > 6 else 0.2
        for item in improving_bounds(instance, lambda: False, lambda: seconds):
            yield "makespan", item
        for allows in (["chunks"], ["chunks", "mixed"], ["chunks", "mixed", "restarts"]):
            yield "makespan", makespan_bound(instance, allows)
        for objective in OBJECTIVES[1:]:
            yield objective, bound(instance, objective)
    except OrschedError:
        return


def least_known(instance):
    """Return by objective the least value that a schedule has, by methods and by search."""
    least = {}
    linked = instance.link is not None
    for method in ("disaggregated",) if linked else METHODS:
        try:
            parameters = WHOLE if linked else None
            results = solve(instance, method, parameters=parameters).schedule.results
        except OrschedError:
            continue
        values = {"makespan": results["makespan_ns"]}
        values |= {f"mean_{name}": results[f"{name}_ns"]["mean"] for name in ("jct", "ttft")}
        least = {name: min(value, least.get(name, np.inf)) for name, value in values.items()}
    small = len(instance.workers) == 1 and len(instance) <= 4
    if least and small and instance.requests.output_tokens.max() < 6:
        least["makespan"] = min(least["makespan"], optimum_ns(instance))
    return least
