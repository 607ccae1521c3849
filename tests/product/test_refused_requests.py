"""Requests that fit no worker are refused as a server does: the others run, and all are counted."""

from __future__ import annotations

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

COST = AffineCost()
SLOW = SLO(ttft_s=60)
NOTE = "1 of 4 requests fits onto no worker and is refused, as a server does"
CLASSES = (ServiceClass("chat", ttft_ns=60 * 10**9), ServiceClass("bulk", bulk=True))


def trace(allocation: str = "paged", **fields: object) -> Instance:
    """Return four requests: the second needs 510 tokens, and there is room for 160."""
    worker = Worker(4, COST, memory=BlockMemory(10, 16, allocation))
    requests = Requests(
        [20, 500, 30, 40],
        [10] * 4,
        arrival_ns=[0, 10**8, 2 * 10**8, 3 * 10**8],
        predicted_tokens=[10] * 4,
        service_class=fields.pop("service_class", [0] * 4),
    )
    return Instance(requests, worker, **fields)


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
    again = found.replace(workers=Worker(1, COST, memory=BlockMemory(3, 16, "paged"))).admitted()
    assert (len(again), again.refused) == (2, (2, 0))
    with pytest.raises(InfeasibleError, match="request 0 "):
        found.replace(workers=Worker(1, COST, memory=BlockMemory(1, 16, "paged"))).admitted()
    assert orsched.bound(trace()).value_ns == orsched.bound(found).value_ns
    with pytest.raises(InputError, match="refused"):
        trace(refused=(1, 2, 3))


def test_commands_note_it_and_check_their_own_files(tmp_path, capsys):
    saved, plan = tmp_path / "trace.json", tmp_path / "plan.json"
    save_instance(trace(), saved)
    limits = ["--slo-ttft", "60", "--format", "json"]
    assert run(["solve", str(saved), "--method", "vllm", *limits, "--output", str(plan)]) == 0
    out = capsys.readouterr().out
    row = json.loads(out)
    assert (row["refused"], row["slo_attainment"]) == (1, 0.75)
    assert any(note.startswith(NOTE) for note in row["notes"])
    assert run(["check", str(saved), str(plan)]) == 0
    assert run(["simulate", str(saved), "--output", str(plan)]) == 0
    assert "--instance-output" not in capsys.readouterr().err
    assert run(["check", str(saved), str(plan)]) == 0
    assert run(["compare", str(saved), "--methods", "fcfs,vllm"]) == 0
    assert NOTE in capsys.readouterr().err
    assert run(["bound", str(saved)]) == 0
    assert NOTE in capsys.readouterr().err
