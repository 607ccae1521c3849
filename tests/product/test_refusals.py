"""What a policy refuses it refuses with a clear error, before anything runs; nothing is skipped.
And what policies set aside at admission: under ``whole`` memory the output limit."""

import json

import numpy as np
import pytest

import orsched
from orsched.checker import check
from orsched.cli.commands import run
from orsched.common.errors import InfeasibleError, InputError
from orsched.common.registry import names, resolve
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.service_classes import SLO, ServiceClass
from orsched.data.workers import Worker
from orsched.files import load_instance, save_instance
from orsched.solving.method_choice import SETS_ASIDE
from tests.by_the_book import Book
from tests.product.cell import Size, content, information_is_bounded, instance_of_cell, serve
from tests.product.modes import FACTORS
from tests.product.policies import (
    METHODS,
    POLICIES,
    REFUSALS,
    SEARCHES,
    SHARING,
    is_dispatched,
    refusal_of,
)
from tests.seeds import in_turn

SIZE = Size(6, 8, ())
REFUSED = [
    (policy, factor, level)
    for policy in POLICIES
    for factor, levels in {**FACTORS, "sharing": tuple(SHARING)}.items()
    for level in levels
    if refusal_of(policy, factor, level) is not None
]
DISPATCHED = [
    (method, sharing) for method in METHODS for sharing in SHARING if sharing != "as_it_is"
]


def plain(policy, **modes):
    """A cell in which everything else is as simple as it can be."""
    cell = {name: levels[0] for name, levels in FACTORS.items()}
    return {"policy": policy, "sharing": "as_it_is", **cell, **modes}


def require_refusal(cell, fields):
    """Assert that a cell is refused with an error that names one of these fields and a remedy."""
    with pytest.raises(InputError) as caught:
        serve(instance_of_cell(cell, SIZE), cell)
    assert caught.value.field in fields
    assert caught.value.remedy


@pytest.mark.parametrize(("policy", "factor", "level"), REFUSED)
def test_what_is_refused_says_why(policy, factor, level):
    several = {"workers": "two_equal"} if factor == "sharing" else {}
    cell = plain(policy, **several, **{factor: level})
    require_refusal(cell, [refusal_of(policy, factor, level).field])


def test_every_refusal_is_one_of_a_policy():
    used = {refusal_of(*refused) for refused in REFUSED}
    assert used == set(REFUSALS)


def test_every_registered_method_is_in_the_product_or_a_search():
    assert set(METHODS) | set(SEARCHES) == set(names("methods"))
    assert {policy.partition("@")[0] for policy in POLICIES} == set(METHODS)
    assert len(set(POLICIES)) == len(POLICIES)


@pytest.mark.parametrize(("method", "sharing"), in_turn(DISPATCHED))
def test_dispatchers_where_there_is_nothing_to_dispatch(method, sharing):
    """On one worker they change nothing; methods that serve several themselves refuse them."""
    policy = next(each for each in POLICIES if each.startswith(f"{method}@"))
    if is_dispatched(policy):
        cell = plain(policy, workers="one", sharing=sharing)
        instance = instance_of_cell(cell, SIZE)
        alone = serve(instance, {**cell, "sharing": "as_it_is"})
        assert content(serve(instance, cell)) == content(alone)
        return
    cell = plain(policy, workers="two_equal", sharing=sharing)
    require_refusal(cell, ("parameters", "workers", *SHARING[sharing]))


@pytest.mark.parametrize(("policy", "field"), [
    ("vllm@none+policy=priority+priority=length", "priority"),
    ("vllm@none+order=longest", "order"),
    ("fcfs@none+order=volume", "order"),
    ("mico@none+distribution=workload", "distribution"),
    ("mico@none+trade_off=true", "trade_off"),
    ("mico@none+order=long_answer", "order"),
    ("scls@none+interval=none", "interval"),
])  # fmt: skip
def test_policies_that_refuse_themselves(policy, field):
    require_refusal(plain(policy), [field])


WHOLE = Size(9, 14, (0.1, 0.3, 0.5, 0.7, 0.9))
UNINFORMED = tuple(policy for policy in POLICIES if "@clairvoyant" not in policy)
WORKLOADS = ("all_at_0", "poisson", "trace_like", "long_and_short")


def most_set_aside(book, outputs):
    """Return by how much the blocks of prompts and answers exceed a memory at most."""
    prompts, excess = book.requests.prompt_tokens, []
    for number, step in enumerate(book.steps):
        memory = book.instance.workers[step.worker].memory
        tokens = [int(prompts[s.request] + outputs[s.request]) for s in book.serving(number)]
        excess.append(sum(-(-each // memory.block_tokens) for each in tokens) - memory.blocks)
    return max(excess)


@pytest.mark.parametrize("policy", UNINFORMED)
def test_lengths_that_are_not_revealed_change_nothing_under_whole_memory(policy):
    """True lengths decide nothing where the output limit fits for all; predictions only order."""
    for memory, workload in (("whole", "poisson"), ("whole_tight", "all_at_0")):
        cell = plain(policy, memory=memory, workload=workload)
        instance = instance_of_cell(cell, WHOLE)
        schedule = serve(instance, cell)
        book = Book(instance, schedule)
        assert most_set_aside(book, np.full(len(instance), instance.output_limit_tokens)) <= 0
        for cut in WHOLE.cuts:
            information_is_bounded(cell, book, schedule, cut)


@pytest.mark.parametrize("name", METHODS)
def test_who_sets_aside_the_answer_on_paged_memory_is_known(name):
    """Methods that a note names never hold more; slices of the whole limit do not either."""
    excess = []
    for kind in map(str, resolve("methods", name).information):
        for workload in WORKLOADS:
            cell = plain(f"{name}@{kind}", memory="paged_tight", workload=workload)
            instance = instance_of_cell(cell, WHOLE)
            outputs = instance.requests.output_tokens
            if kind != "clairvoyant":
                outputs = np.full(len(instance), instance.output_limit_tokens)
            excess.append(most_set_aside(Book(instance, serve(instance, cell)), outputs))
    sliced = ("scls", "scls_continuous")
    assert (max(excess) <= 0) == (name in SETS_ASIDE or name in sliced)


SLOW = SLO(ttft_s=60)
NOTE = "1 of 4 requests fits onto no worker and is refused, as a server does"
CLASSES = (ServiceClass("chat", ttft_ns=60 * 10**9), ServiceClass("bulk", bulk=True))


def trace(allocation="paged", service_class=(0, 0, 0, 0), **fields):
    """Return four requests: the second needs 510 tokens, and there is room for 160."""
    requests = Requests(
        [20, 500, 30, 40],
        [10] * 4,
        arrival_ns=[0, 10**8, 2 * 10**8, 3 * 10**8],
        predicted_tokens=[10] * 4,
        service_class=service_class,
    )
    return Instance(requests, worker(4, 10, allocation), **fields)


def worker(clients, blocks, allocation="paged"):
    return Worker(clients, AffineCost(), memory=BlockMemory(blocks, 16, allocation))


@pytest.mark.parametrize("allocation", ["paged", "whole"])
@pytest.mark.parametrize(
    "method", ["fcfs", "vllm", "gittins@predicted", "hybrid", "latency_search"]
)
def test_one_long_request_does_not_kill_the_trace(method, allocation):
    result = orsched.solve(trace(allocation), method, iterations=2, slo=SLOW)
    assert any(note.startswith(NOTE) for note in result.notes)
    assert result.figures["slo_attainment"] == 0.75
    assert result.to_row()["refused"] == 1
    assert result.instance == trace(allocation).admitted()
    assert check(result.instance, result.schedule) == []


def test_every_way_in_refuses_the_same():
    whole = trace()
    alone = orsched.simulate(whole, "vllm", workers=2, slo=SLOW)
    several = orsched.compare(whole, ["fcfs", "vllm"], slo=SLOW)
    found = orsched.capacity(whole, "vllm", slo_ttft=60, attainment=0.7, jobs=1)
    assert alone.figures["slo_attainment"] == several["vllm"].figures["slo_attainment"] == 0.75
    assert not several.failed
    assert found.to_dict()["attainment"] == 0.75
    assert found.notes[0].startswith(NOTE)
    with pytest.raises(InputError, match=rf"keep an attainment of 0\.75.*; {NOTE}.*more memory"):
        orsched.capacity(whole, "vllm", slo_ttft=60, attainment=0.8, jobs=1, max_workers=2)


def test_bounds_checks_and_charts_in_python_set_the_same_aside(tmp_path):
    whole, served = trace(), trace().admitted()
    result = orsched.solve(whole, "vllm", slo=SLOW)
    for objective in ("makespan", "mean_jct"):
        assert orsched.bound(whole, objective) == orsched.bound(served, objective)
    assert orsched.attainment_bound(trace(classes=CLASSES)).most_attained == 3
    assert orsched.check(whole, result) == orsched.check(served, result) == []
    assert orsched.summarise(whole, result, SLOW) == orsched.summarise(served, result, SLOW)
    for name, given in (("whole", whole), ("served", served)):
        orsched.save_gantt(given, result, tmp_path / f"{name}.svg")
    assert (tmp_path / "whole.svg").read_bytes() == (tmp_path / "served.svg").read_bytes()
    with pytest.raises(InfeasibleError, match="row 0"):
        orsched.bound(whole.replace(requests=Requests([500], [10])))


@pytest.mark.parametrize(("kind", "chat"), [(0, 0.75), (1, 1.0)])
def test_attainments_count_what_was_refused_of_their_class(kind, chat):
    given = trace(classes=CLASSES, service_class=[0, kind, 0, 0])
    result = orsched.solve(given, "vllm", slo=SLOW)
    results = result.schedule.results
    assert results["classes"]["chat"]["slo"]["attainment"] == results["slo"]["attainment"] == chat
    assert results["classes"][CLASSES[kind].name]["refused"] == results["refused"] == 1
    assert orsched.solve(given, "vllm").figures["slo_attainment"] == chat
    forged = {**results, "refused": 0}
    faults = check(result.instance, result.schedule.replace(results=forged))
    assert [fault.field for fault in faults] == ["results.refused"]


def test_admitted_instances_keep_names_counts_and_files(tmp_path):
    found = trace().admitted()
    assert found.requests.ids == ("0", "2", "3")
    assert found.refused == (1, 0)
    assert found.admitted() is found
    assert found.sha256 != found.replace(refused=()).sha256
    save_instance(found, tmp_path / "found.json")
    assert load_instance(tmp_path / "found.json") == found
    again = found.replace(workers=worker(1, 3)).admitted()
    assert (len(again), again.refused) == (2, (2, 0))
    with pytest.raises(InfeasibleError, match="request 0 "):
        found.replace(workers=worker(1, 1)).admitted()
    assert orsched.bound(trace()).value_ns == orsched.bound(found).value_ns
    with pytest.raises(InputError, match="refused"):
        trace(refused=(1, 2, 3))


def test_commands_note_it_and_check_their_own_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_instance(trace(), "trace.json")

    def done(line):
        assert run(line.split()) == 0
        return capsys.readouterr()

    solve = "solve trace.json --method vllm --slo-ttft 60 --format json --output plan.json"
    row = json.loads(done(solve).out)
    assert (row["refused"], row["slo_attainment"]) == (1, 0.75)
    assert any(note.startswith(NOTE) for note in row["notes"])
    done("check trace.json plan.json")
    assert "--instance-output" not in done("simulate trace.json --output plan.json").err
    done("check trace.json plan.json")
    assert NOTE in done("compare trace.json --methods fcfs,vllm").err
    assert NOTE in done("bound trace.json").err
