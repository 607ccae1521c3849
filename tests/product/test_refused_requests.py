"""Requests that fit no worker are refused as a server does: the others run, and all are counted."""

import json

import pytest

import orsched
from orsched.checker import check
from orsched.cli.commands import run
from orsched.common.errors import InfeasibleError, InputError
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.service_classes import SLO, ServiceClass
from orsched.data.workers import Worker
from orsched.files import load_instance, save_instance

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
    points = orsched.frontier(whole, methods="fcfs", points=0, iterations=1).points
    assert all(point.result.instance == served for point in points)
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
