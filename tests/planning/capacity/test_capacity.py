"""``capacity`` from start to end: processes, folders, kills, limits of time, arguments, plots."""

import json
import os
import signal
import subprocess
import sys
import time

import jsonschema
import pytest

import orsched
from orsched import AffineCost, Instance, Requests, Worker
from orsched.calibration.intervals import wilson
from orsched.common.errors import InfeasibleError, PolicyError, TimeLimitError
from orsched.planning.capacity import proof_violations, save_capacity
from orsched.planning.capacity.question import read_policy
from orsched.planning.capacity.simulation import over_parts, over_replications
from orsched.views import planning_charts as module
from tests.decoding import decoding
from tests.in_order import in_order
from tests.planning.pictures import drawn, require_on_page
from tests.refusals import refusal

SHARE, NUMBER = {"type": "number", "minimum": 0, "maximum": 1}, {"type": ["number", "null"]}
COUNT = {"type": "integer", "minimum": 1}
FIELDS = dict.fromkeys(("workers", "lower_bound_workers"), COUNT)
FIELDS |= dict.fromkeys(("attainment", "attainment_low", "attainment_high"), SHARE)
FIELDS |= dict.fromkeys(("ttft_p99_s", "tpot_p99_s", "bulk_tokens_per_s"), NUMBER)
FIELDS |= {"simulations": {"type": "integer", "minimum": 0}}
FIELDS |= {"certificate": {"type": ["object", "null"]}}
SCHEMA = {"type": "object", "properties": FIELDS, "required": list(FIELDS)}


def heavy(n=60, gap_ns=5 * 10**7, clients=4):
    """Requests that keep several workers busy: 155 ms each at full clients, every 50 ms."""
    requests = Requests([100] * n, [20] * n, arrival_ns=[gap_ns * k for k in range(n)])
    return Instance(requests, Worker(clients, AffineCost()))


LIMITS = {"slo_ttft": 0.5, "slo_tpot": 0.05}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    return folder, orsched.capacity(heavy(), folder=folder, jobs=2, **LIMITS)


def test_the_answer_is_that_of_an_exhaustive_search(found):
    folder, quick = found
    slow = orsched.capacity(heavy(), folder=folder, jobs=1, exhaustive=True, **LIMITS)
    assert slow.workers == quick.workers
    tried = {each.workers: each for each in slow.curve}
    assert sorted(tried) == list(range(slow.lower_bound_workers, slow.workers + 1))
    assert [each.suffices for each in slow.curve] == [False] * (len(tried) - 1) + [True]


def test_the_object_has_its_fields_its_proof_and_its_sentence(found):
    _, quick = found
    document = json.loads(json.dumps(quick.to_dict(), allow_nan=False))
    jsonschema.validate(document, SCHEMA)
    assert 1 < document["lower_bound_workers"] <= document["workers"]
    assert document["attainment_low"] <= document["attainment"] <= document["attainment_high"]
    assert document["attainment"] >= 0.9
    assert proof_violations(heavy(), document["certificate"]) == []
    text = str(quick)
    assert text.startswith(f"{quick.workers} workers suffice (measured: attainment ")
    assert text.endswith(f"fewer than {quick.lower_bound_workers} cannot (proven)")


def test_finished_simulations_are_not_run_again(found):
    folder, quick = found
    again = orsched.capacity(heavy(), folder=folder, jobs=1, **LIMITS)
    assert (again.ran, again.simulations > 0) == (0, True)
    assert [e.attainment for e in again.curve] == sorted(e.attainment for e in again.curve)
    assert again.workers == quick.workers


def test_replications_meet_the_same_traces_and_have_an_interval():
    options = {"arrivals": "poisson:rate=15", "replications": 3, **LIMITS}
    one, two = (orsched.capacity(heavy(30), jobs=jobs, **options) for jobs in (1, 2))
    assert one.criterion == "confident"
    assert one.estimate.low >= 0.9
    assert one.estimate == two.estimate
    assert "Student" in one.estimate.interval
    assert one.lower_bound_workers <= one.workers


def test_bulk_requests_have_no_limits_and_a_throughput():
    req = heavy(40).requests.replace(service_class=[0, 1] * 20)
    answer = orsched.capacity(heavy(40).replace(requests=req), jobs=1, **LIMITS)
    assert answer.bulk_tokens_per_s == pytest.approx(20 * 20 / 2.3, rel=0.3)


def test_the_cheapest_mix_is_that_of_an_exhaustive_search(tmp_path):
    large = Worker(16, in_order(AffineCost, 12_500_000, 65_000, 14_500_000, 105_000))
    machines = {"small": (heavy().worker, 1.0), "large": (large, 2.5)}
    options = {"machines": machines, "folder": tmp_path, "jobs": 2, "max_workers": 6, **LIMITS}
    quick = orsched.capacity(heavy(40), **options)
    slow = orsched.capacity(heavy(40), exhaustive=True, **options)
    assert quick.price == slow.price
    assert quick.lower_bound_price <= quick.price
    assert sum(quick.fleet.values()) == quick.workers >= quick.lower_bound_workers
    assert "for a price of" in str(quick)


@pytest.mark.parametrize(("options", "field"), [
    ({"slo_ttft": -1.0}, "slo_ttft"), ({"slo_tpot": float("nan")}, "slo_tpot"),
    *(({"attainment": share}, "attainment") for share in (0, 1.1, "0.9")),
    ({"confidence": 1}, "confidence"), ({"criterion": "hoped"}, "criterion"),
    *(({"replications": count}, "replications") for count in (0, 3)),
    ({"sample": 0}, "sample"), ({"seed": -1}, "seed"),
    ({"arrivals": "poisson:rate=-3"}, "arrivals.rate"),
    *(({"max_workers": count}, "max_workers") for count in (0, 1)),
    ({"jobs": 0}, "jobs"), ({"cluster": "moon"}, "cluster"),
    ({"ray_address": "auto"}, "ray_address"), ({"time_limit": 0}, "time_limit"),
    *(({"policy": policy}, "policy") for policy in ("no-such", object())),
    ({"parameters": {"no_such": 1}}, "parameters"), ({"machines": {}}, "machines"),
    *(({"machines": {"a": (Worker(2), price)}}, "machines.a") for price in (0, float("inf"))),
    ({"machines": {"a": ("no worker", 1)}}, "machines.a"),
])  # fmt: skip
def test_wrong_arguments_are_named(options, field):
    error = refusal(orsched.capacity, heavy(20), **{**LIMITS, "jobs": 1, **options})
    assert error.field == field


@pytest.mark.parametrize("method", orsched.methods(), ids=lambda each: each.name)
def test_methods_that_search_are_refused_and_others_read(method):
    """Each of many simulations would search to its end: ``exact`` ends only with a proof."""
    calls = (
        lambda spec: orsched.capacity(heavy(20), spec, jobs=1, **LIMITS),
        lambda spec: orsched.tune(heavy(20), ["vllm", spec], jobs=1, **LIMITS),
    )
    if not method.searches:
        assert read_policy(method.name, None, {})["name"] == method.name
        return
    for call in calls:
        error = refusal(call, method.name)
        assert (error.field, f"{method.name} searches" in str(error)) == ("policy", True)


def test_no_limits_no_requests_and_other_things_are_refused():
    assert "no limit" in str(refusal(orsched.capacity, heavy(3)))
    unequal = heavy(3).replace(workers=(Worker(2), Worker(3)))
    wrong = {"no requests": decoding([], [], Worker(2)), "is not an Instance": "gsm8k-llama65b"}
    for says, instance in {**wrong, "differ": unequal}.items():
        assert says in str(refusal(orsched.capacity, instance, slo_ttft=1.0))


def test_limits_that_no_number_can_keep_are_said_without_a_simulation(monkeypatch):
    monkeypatch.setattr("orsched.solving.solver.simulate", None)  # would be called, and fail
    with pytest.raises(InfeasibleError, match=r"no number of workers .* the first is request 0 "):
        orsched.capacity(heavy(), slo_ttft=0.01)


def test_a_policy_that_fails_and_a_time_limit_are_said(tmp_path):
    longest = heavy(5).replace(workers=(Worker(4, AffineCost(), 50),))
    with pytest.raises(PolicyError, match="prompt"):
        orsched.capacity(longest, "fcfs", slo_ttft=5.0, jobs=1)
    with pytest.raises(TimeLimitError):
        orsched.capacity(heavy(), folder=tmp_path, time_limit=1e-3, **LIMITS)


def ended_at(message, folder):
    """Ask how many workers a crowd needs, and press Ctrl-C at a message."""

    def say(what):
        if what == message:
            raise KeyboardInterrupt

    limits = {"slo_ttft": 0.3, "slo_tpot": 0.04}
    return orsched.capacity(heavy(90, 2 * 10**7), folder=folder, jobs=1, callback=say, **limits)


def test_ctrl_c_gives_the_best_so_far(tmp_path):
    """Whole, the search goes from 5 workers to 7, which suffice, and back to 6, which do not."""
    found = ended_at("simulating 6 workers: 0 of 1 runs", tmp_path)
    assert (found.workers, found.termination, found.fewest_shown) == (7, "interrupted", False)
    assert str(found).endswith("ended before fewer were tried")
    with pytest.raises(KeyboardInterrupt):
        ended_at("simulating 5 workers: 0 of 1 runs", tmp_path / "anew")
    whole = ended_at("never", tmp_path)
    assert (whole.workers, whole.termination, whole.ran) == (7, "finished", 1)
    assert [each.workers for each in whole.curve] == [5, 6, 7]


def test_its_attainment_is_that_of_simulate(found):
    _, whole = found
    fleet = heavy().replace(workers=(heavy().worker,) * whole.workers)
    slo = orsched.SLO(ttft_s=LIMITS["slo_ttft"], tpot_s=LIMITS["slo_tpot"])
    results = orsched.simulate(fleet, "vllm", slo=slo).schedule.results
    assert results["slo"]["attainment"] == whole.estimate.attainment
    assert results["ttft_ns"]["p99"] / 1e9 == whole.estimate.ttft_p99_s


def test_intervals():
    assert wilson(0, 10, 0.95)[0] == 0.0
    assert wilson(10, 10, 0.95)[1] == 1.0
    low, high = wilson(90, 100, 0.95)
    assert (round(low, 4), round(high, 4)) == (0.8256, 0.9448)  # Newcombe 1998, method 3
    parts = over_parts([[9, 10]] * 20, 0.95)
    assert (parts.share, parts.low < 0.9 < parts.high) == (0.9, True)
    uneven = over_parts([[10, 10], [8, 10]] * 10, 0.95)
    bursts = over_parts([[10, 10]] * 18 + [[0, 10]] * 2, 0.95)
    assert bursts.high - bursts.low > uneven.high - uneven.low
    assert over_parts([[1, 2]], 0.95).kind == "Wilson over 2 requests"
    assert over_replications([0.9, 1.0, 1.0], 0.95).high == 1.0


PROGRAM = """
import sys, orsched
from tests.planning.capacity.test_capacity import LIMITS, heavy
found = orsched.capacity(heavy(400, clients=8), folder=sys.argv[1], jobs=2, **LIMITS)
print(found.workers, found.simulations, found.ran)
"""


@pytest.mark.full
def test_a_kill_loses_no_finished_simulation(tmp_path, repo_root):
    """Killed after its first finished simulations, the next run goes on where it was."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "kept")]
    place = {"env": {**os.environ, "PYTHONPATH": str(repo_root)}, "cwd": tmp_path}
    victim = subprocess.Popen(command, **place, start_new_session=True)
    cells = tmp_path / "kept" / "cells"
    end = time.monotonic() + 120
    while not list(cells.glob("*.json")):
        assert time.monotonic() < end
        assert victim.poll() is None
        time.sleep(0.005)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    before = len(list(cells.glob("*.json")))
    done = subprocess.run(command, **place, capture_output=True, check=True)
    workers, simulations, ran = map(int, done.stdout.split())
    assert ran <= simulations - before
    again = subprocess.run(command, **place, capture_output=True, check=True)
    assert list(map(int, again.stdout.split())) == [workers, simulations, 0]


@pytest.fixture(scope="module")
def poisson():
    return orsched.capacity(
        orsched.load("pang-100x20"), "vllm", arrivals="poisson:rate=2", slo_ttft=1, slo_tpot=0.04,
        attainment=0.9, replications=2, jobs=1,
    )  # fmt: skip


def test_pictures_are_in_per_cent_hide_no_data_and_are_equal_twice(poisson, tmp_path, monkeypatch):
    figures = drawn(module, monkeypatch)
    save_capacity(poisson, tmp_path / "a.png")
    (figure,) = figures
    above, below = figure.axes
    assert [ax.get_ylabel() for ax in figure.axes] == ["SLO attainment (%)", "latency (s)"]
    assert below.get_xlabel() == "workers"
    measured = above.containers[0].lines[0]
    rows = sorted(poisson.curve, key=lambda each: each.workers)
    assert measured.get_ydata().tolist() == pytest.approx([100 * r.attainment for r in rows])
    ttft = next(line for line in below.lines if line.get_label() == "TTFT p99 (s)")
    assert ttft.get_ydata().tolist() == [row.ttft_p99_s for row in rows]
    for ax in (above, below):
        box = ax.get_legend().get_window_extent()
        assert box.y0 >= ax.get_window_extent().y1 - 1
        require_on_page(box, figure)
    for name in "ab":
        save_capacity(poisson, tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
