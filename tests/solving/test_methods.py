"""Methods on instances of all kinds: long prompts, caches, several workers, Pang's case."""

import logging
import random
from collections import Counter
from dataclasses import replace
from statistics import mean

import numpy as np
import pytest

import orsched
from orsched import AffineCost, Instance, MaxIterations, Worker, check, save_instance
from orsched.cli.commands import run
from orsched.common.errors import InfeasibleError, InputError
from orsched.common.registry import BUILT_IN, method_information, resolve
from orsched.data import instance as instance_module
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.requests import Prefixes, Requests
from orsched.data.step import Step, decode_rounds
from orsched.heuristics.pang import FCFS, HYBRID, OFFLINE, ONLINE
from orsched.heuristics.scls import ContinuousSlices
from orsched.instances.catalog import names
from orsched.instances.synthetic import gsm8k, pang_case
from orsched.planning.study import read_study
from orsched.planning.study.cell import execute
from orsched.runner import RunSettings
from orsched.runner import run as run_live
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information, Policy
from tests.decoding import decoding
from tests.heuristics.gittins.drawn import drawn
from tests.in_order import in_order
from tests.oracle import oracle
from tests.refusals import refusal
from tests.simulator.listening import columns
from tests.simulator.prefix_workloads import prefix_instance

SPLITTING = ("vllm", "scls", "scls_continuous", "mico", "gittins")


class Halves(Policy):
    """One request after the other, its prompt in steps as long as the worker takes."""

    chunks = True

    def decide(self, view):
        """Prefill what is left as far as it goes, else decode."""
        waiting = [row for row in range(len(view.arrival_ns)) if row >= self.next]
        row = next(iter(view.running), waiting[0] if waiting else -1)
        left = view.to_prefill(row)
        if left:
            self.next = row + 1
            return Step([row], [min(left, view.worker.prefill_limit)], None, ())
        return decode_rounds()

    def start(self, view):
        self.next = 0


def long_prompts(seed, padding=False):
    """An instance on workers that hold every request, whose steps take a part of a prompt."""
    instance = drawn(seed)
    longest = int(instance.requests.prompt_tokens.max())
    rng = random.Random(f"chunks {seed}")
    caps = ({"prefill_cap_tokens": rng.randint(1, longest)} for _ in instance.workers)
    pairs = zip(instance.workers, caps, strict=True)
    return instance.replace(workers=tuple(replace(w, padding=padding, **cap) for w, cap in pairs))


def needing_chunks(workers=0):
    """The first such instance that only a method that splits prompts can serve."""
    found = map(long_prompts, range(99))
    return next(each for each in found if each.needs_chunks and len(each.workers) > workers)


def splits(instance, schedule):
    """Whether some prefill is in parts, as it must be."""
    rows = schedule.work.phase == 0
    prompts = instance.requests.prompt_tokens[schedule.work.request[rows]]
    return bool((schedule.work.tokens[rows] < prompts).any())


@pytest.mark.parametrize("method", SPLITTING)
def test_methods_that_split_prompts_serve_them(method):
    needed = 0
    for seed in range(25):
        instance = long_prompts(seed, padding=seed % 2 == 0 and method in ("scls", "mico"))
        needed += instance.needs_chunks
        result = orsched.solve(instance, method)
        schedule = result.schedule
        assert schedule.bound["value_ns"] <= schedule.makespan_ns
        assert not instance.needs_chunks or splits(instance, schedule)
        known = Information(schedule.information)
        policy, _ = resolve("methods", method).build(instance, known, {}, 0)
        expected = oracle(instance, policy)
        assert columns(schedule.steps) == columns(expected.steps), seed
        assert columns(schedule.work) == columns(expected.work), seed
    assert needed > 10


@pytest.mark.parametrize(
    "method",
    ["fcfs", "static", "ils", "online", "vllm+chunked_prefill=false", "vllm+mode=prefill_first"],
)
def test_the_others_refuse_them(method):
    instance = needing_chunks()
    instance = instance.replace(workers=instance.workers[:1])
    with pytest.raises(InfeasibleError, match="prefill_cap_tokens"):
        orsched.solve(instance, method)


def test_a_policy_says_that_it_splits(monkeypatch):
    instance = decoding([5, 3], [2, 2], Worker(2, prefill_cap_tokens=2))
    assert instance.needs_chunks
    result = orsched.simulate(instance, Halves())
    assert result.schedule.work.tokens[result.schedule.work.phase == 0].tolist() == [2, 2, 1, 2, 1]
    monkeypatch.setattr(Halves, "chunks", False)
    with pytest.raises(InfeasibleError):
        orsched.simulate(instance, Halves())


def test_dispatchers_and_predictors_pass_it_on():
    instance = needing_chunks(workers=1)
    for method in ("vllm+dispatch=least_work", "ssjf"):
        found = resolve("methods", method.partition("+")[0])
        policy, _ = found.build(instance, Information.PREDICTED, {}, 0)
        inner = getattr(policy.policies[0], "inner", policy.policies[0])
        assert policy.chunks == inner.chunks
        if policy.chunks:
            assert orsched.check(instance, simulate_policy(instance, policy).schedule) == []
    assert ContinuousSlices.chunks


def test_a_cell_of_a_study_has_a_bound_for_it(tmp_path):
    instance = needing_chunks()
    path = tmp_path / "instance.json"
    orsched.save_instance(instance, path)
    content = {
        "instance": {"sha256": instance.sha256}, "seed": 0, "workers": None, "arrivals": None,
        "predictions": None, "iterations": None, "slo": None, "bounds": ["makespan", "mean_jct"],
        "policy": {"name": "gittins", "parameters": {}, "information": None},
    }  # fmt: skip
    record = execute({"key": "k", "problem": "p", "content": content, "path": str(path)})
    assert record["error"] is None
    results = record["results"]
    assert results["bound_ns"] <= results["makespan_ns"]
    assert results["jct_bound_ns"] <= results["jct_ns"]["mean"]


SPECS = [f"{m.name}@{i}" for m in (FCFS, OFFLINE, ONLINE, HYBRID) for i in m.information]


@pytest.mark.full
@pytest.mark.parametrize("rule", ["decode", "prefill"])
@pytest.mark.parametrize("name", names())
def test_every_method_on_every_shipped_instance(name, rule):
    """Checked, at least the bound, and with predictions that are all wrong still valid."""
    instance = orsched.load(name).replace(first_token=rule)
    requests = instance.requests
    if requests.predicted_tokens is None:
        wrong = requests.output_tokens[::-1]
        instance = instance.replace(requests=requests.replace(predicted_tokens=wrong))
    for spec in SPECS:
        result = orsched.solve(instance, spec, iterations=3)
        assert result.checked
        assert result.makespan_ns >= result.bound_ns > 0 or len(instance) == 0
        base, _, named = spec.partition("@")
        read = "none" if base == "fcfs" else named  # in the order of rows it reads no length
        assert result.schedule.information == read


METHODS = [(name, each) for name in BUILT_IN["methods"] for each in method_information(name) or ()]
SEEDS = (1, 2, 5, 12)  # small instances with hits, few blocks, and requests that are evicted

WITHOUT_CACHES = ("exact", "latency_search")
"""Methods that refuse instances with prefix caches, whatever is in them."""


def instances(at_once):
    """Instances of one worker and of two, with predictions."""
    found = []
    for workers in (1, 2):
        for seed in SEEDS:
            instance = prefix_instance(seed, workers)
            requests = instance.requests
            arrivals = np.zeros(len(requests), np.int64) if at_once else requests.arrival_ns
            predicted = np.maximum(1, requests.output_tokens - 1)
            quantiles = np.stack([predicted, predicted + 1], axis=1)
            requests = requests.replace(
                arrival_ns=arrivals, predicted_tokens=predicted, predicted_quantiles=quantiles,
                quantile_levels=(0.5, 0.9),
            )  # fmt: skip
            found.append(instance.replace(requests=requests))
        found.append(all_the_same(workers))
    return found


def all_the_same(workers):
    """Ten requests with one prompt, so that bounds must know what a cache saves."""
    prefixes = Prefixes.from_documents([0] * 10, 196, 4)
    requests = Requests(
        [200] * 10, [2] * 10, predicted_tokens=[2] * 10, prefixes=prefixes,
        predicted_quantiles=[[2, 2]] * 10, quantile_levels=(0.5, 0.9),
    )  # fmt: skip
    memory = BlockMemory(200, 4, "paged", PrefixCache())
    cost = in_order(AffineCost, 0, 1000, 1, 1)
    fleet = tuple(Worker(2, cost, memory=memory, name=f"w{index}") for index in range(workers))
    return Instance(requests, fleet, first_token="decode")


@pytest.mark.parametrize(("method", "information"), METHODS)
def test_a_method_is_valid_or_refuses(method, information):
    outcomes = Counter()
    for at_once in (False, True):
        for instance in instances(at_once):
            if len(instance) > 16:
                continue
            how = {"information": information, "stop": MaxIterations(2)}
            try:
                result = orsched.solve(instance, method, **how)
            except (InputError, InfeasibleError) as error:
                outcomes["refused"] += 1
                outcomes["told what to do"] += bool(getattr(error, "remedy", "leave it out"))
                continue
            assert check(instance, result.schedule) == []
            assert result.schedule.results["hit_tokens"] == result.schedule.work.hit.sum()
            outcomes["valid"] += 1
            outcomes["hits"] += result.schedule.work.hit.any()
    assert outcomes["refused"] == outcomes["told what to do"]
    if method not in WITHOUT_CACHES:
        assert outcomes["hits"] > 0, outcomes


METHODS_OF_PANG = ("fcfs", "offline", "online", "hybrid", "hybrid@predicted")


def _means(seeds, methods=METHODS_OF_PANG, **arguments):
    """Return method -> (mean makespan s, mean utilization, mean gap), each schedule checked."""
    rows = {}
    for seed in seeds:
        for result in orsched.compare(gsm8k(seed, **arguments), methods):
            assert result.checked
            assert orsched.check(gsm8k(seed, **arguments), result.schedule) == []
            key = (result.schedule.method, result.information)
            rows.setdefault(key, []).append(result.to_row())
    names = ("makespan_s", "slot_utilization", "gap")
    return {k: tuple(mean(row[name] for row in some) for name in names) for k, some in rows.items()}


def _order_of_the_paper(means):
    """Baseline above offline and online, both above hybrid: the order of Pang's makespans."""
    hybrid = means["hybrid", "clairvoyant"][0]
    assert means["fcfs", "none"][0] > means["online", "none"][0] > hybrid
    assert means["fcfs", "none"][0] > means["offline", "clairvoyant"][0] > hybrid
    assert means["online", "none"][0] > means["hybrid", "predicted"][0] > hybrid


def test_two_seeds_show_the_order_of_the_paper():
    means = _means((0, 7))
    _order_of_the_paper(means)
    assert all(gap > 0 for _, _, gap in means.values())


@pytest.mark.full
def test_ten_seeds_meet_the_figures_of_the_paper():
    means = _means(range(10))
    _order_of_the_paper(means)
    makespan, utilization, _ = means["fcfs", "none"]
    assert abs(makespan / 201.0 - 1) < 0.02
    assert abs(utilization - 0.802) < 0.015
    makespan, utilization, gap = means["hybrid", "clairvoyant"]
    assert makespan < 190.58
    assert utilization > 0.8906
    assert gap <= 0.015


@pytest.mark.full
def test_ten_seeds_under_one_reading_come_within_two_percent_of_all_four_makespans():
    hybrid = "hybrid@predicted+gate=waited_time+assignment=packing+order=arrival"
    methods = ("fcfs", "offline@predicted", "online", hybrid)
    means = _means(range(10), methods, prediction_sigma=0.1)
    printed = {
        ("fcfs", "none"): 201.00, ("offline", "predicted"): 197.08, ("online", "none"): 193.33,
        ("hybrid", "predicted"): 190.58,
    }  # fmt: skip
    for key, seconds in printed.items():
        assert abs(means[key][0] / seconds - 1) < 0.02, key


@pytest.mark.full
def test_hybrid_is_better_in_every_one_of_a_hundred_cases():
    for case in range(100):
        fcfs, hybrid = orsched.compare(pang_case(case), ("fcfs", "hybrid"))
        assert hybrid.makespan_ns < fcfs.makespan_ns
        used = [each.schedule.results["slot_utilization"] for each in (fcfs, hybrid)]
        assert used[1] - used[0] > 0.08


@pytest.fixture
def prefixed():
    instance = orsched.load("two-by-two")
    count = len(instance)
    prefixes = Prefixes(list(range(count + 1)), [7] * count, 16)
    return instance.replace(requests=instance.requests.replace(prefixes=prefixes))


@pytest.fixture(autouse=True)
def _anew():
    instance_module._say_prefixes.cache_clear()


USES = {
    "solve": (orsched.solve, "fcfs"),
    "simulate": (orsched.simulate, "orsched.heuristics.pang:FirstComeFirstServed"),
    "compare": (orsched.compare, ["fcfs", "online"]),
    "run": (run_live, "fcfs", RunSettings("virtual")),
}


@pytest.mark.parametrize("use", USES)
def test_it_is_said_once(prefixed, caplog, use):
    function, *how = USES[use]
    with caplog.at_level(logging.WARNING, "orsched"):
        function(orsched.load("two-by-two"), *how)
        assert caplog.messages == []
        for _ in range(2):
            function(prefixed, *how)
    (message,) = caplog.messages
    assert "prefix_ids of the requests are not used, for no worker" in message


def test_the_command_line_says_it_on_stderr(prefixed, tmp_path, caplog):
    path = tmp_path / "prefixed.json"
    save_instance(prefixed, path)
    assert run(["solve", str(path), "--method", "fcfs"]) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    instance_module._say_prefixes.cache_clear()
    read_study({"instances": [str(path)], "policies": ["fcfs"]})
    assert len(caplog.messages) == 2


PANG = ("offline", "online", "hybrid", "windows")


def on(*workers):
    return decoding([3, 5, 2, 4], [4, 2, 6, 3], workers)


@pytest.mark.parametrize("method", PANG)
def test_pangs_methods_refuse_several_workers_and_padding(method):
    for instance in (on(Worker(2), Worker(1, name="b")), on(Worker(2, padding=True))):
        error = refusal(orsched.solve, instance, method, iterations=2)
        assert error.field in ("workers", "padding")
        assert error.remedy


@pytest.mark.parametrize("name", ["two", "padding", "paged"])
def test_auto_and_fcfs_take_any_worker(name):
    instance = {
        "two": on(Worker(2), Worker(1, name="b")),
        "padding": on(Worker(2, padding=True)),
        "paged": on(Worker(2, memory=BlockMemory(3, 4, "paged"))),
    }[name]
    for method in ("auto", "fcfs"):
        result = orsched.solve(instance, method, iterations=2)
        assert result.checked
        assert result.schedule.bound["value_ns"] <= result.makespan_ns


def test_padded_stages_stay_under_cap_and_pages():
    memory = BlockMemory(9, 2, "paged")
    instance = on(Worker(4, prefill_cap_tokens=10, memory=memory, padding=True))
    result = orsched.solve(instance, "fcfs")
    assert result.checked
    assert result.schedule.results["kv_blocks"]["peak"] <= 9
