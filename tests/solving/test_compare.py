"""``compare`` and ``simulate`` in Python: own policies, scenarios, failures, objects used twice."""

import re
import threading
from dataclasses import replace

import pytest

import orsched
from orsched import Instance, Requests, Worker, summarise
from orsched.common.errors import InputError, MissingDependencyError, OrschedError
from orsched.instances.catalog import generate
from orsched.solving.checked_run import with_shared_bounds
from orsched.solving.method_choice import choose
from orsched.solving.scenario import scenario

SMALL = generate("uniform", seed=1, requests=12, clients=3)


class Mine(orsched.Policy):
    """One prefill after the other; keeps its queue from its construction on."""

    name = "mine"

    def __init__(self, fail=False):
        self.queue, self.served, self.fail = [], 0, fail

    def on_arrival(self, view, request):
        self.queue.append(request)

    def decide(self, view):
        if self.fail and self.served == 2:
            raise KeyError("not mine")
        if self.queue and view.free_clients:
            self.served += 1
            return orsched.prefill_stage([self.queue.pop(0)])
        return orsched.decode_rounds() if view.running else None


class Unnamed(Mine):
    name = orsched.Policy.name


class Locked(Mine):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Starts(Mine):
    def start(self, view):
        self.queue, self.served = [], 0


class Constant(orsched.Policy):
    def __init__(self, limit=2):
        self.limit = limit

    def decide(self, view):
        return None


def test_names_classes_and_objects_stand_together():
    found = orsched.compare(SMALL, ["fcfs", Mine, Mine(), Unnamed(), Mine])
    assert [result.label for result in found] == ["fcfs", "mine", "mine (2)", "Unnamed", "mine (3)"]
    assert len({result.makespan_ns for result in found.results[1:]}) == 1
    assert found.failed == ()
    assert [row["error"] for row in found.to_rows()] == [None] * 5


def test_one_scenario_for_all_is_that_of_simulate():
    words = {"workers": 2, "arrivals": "poisson:rate=5", "predictions": "classes", "seed": 3}
    slo = orsched.SLO(ttft_ns=2 * 10**9, tpot_ns=5 * 10**7)
    found = orsched.compare(SMALL, ["fcfs", "mico", Mine], slo=slo, **words)
    problem = scenario(SMALL, **words)
    for result, method in zip(found, ["fcfs", "mico", Mine], strict=True):
        assert result.schedule.instance_sha256 == problem.sha256
        single = orsched.simulate(SMALL, method, slo=slo, **words)
        assert single.schedule.results == result.schedule.results
        assert orsched.check(problem, result.schedule) == []
    assert orsched.simulate(SMALL, **words).schedule.method == "fcfs"


def test_a_worker_object_takes_the_place_of_the_instances():
    worker = orsched.Worker(2, name="mine")
    expected = orsched.simulate(SMALL.replace(workers=(worker,)), "fcfs").makespan_ns
    assert expected != orsched.simulate(SMALL, "fcfs").makespan_ns
    for given in (worker, [worker], worker.to_dict(), [worker.to_dict()]):
        assert orsched.simulate(SMALL, "fcfs", workers=given).makespan_ns == expected
        assert scenario(SMALL, workers=given).workers == (worker,)


def test_what_fails_is_named_and_the_others_go_on():
    found = orsched.compare(SMALL, [Mine(fail=True), "windows", "fcfs", "mico"], workers=2)
    assert [result.label for result in found] == ["fcfs"]
    rows = found.to_rows()
    assert [row["method"] for row in rows] == ["mine", "windows", "fcfs", "mico"]
    assert [failure.position for failure in found.failed] == [0, 1, 3]
    assert "is for one worker" in rows[1]["error"]
    assert "the instance has no predicted lengths" in rows[3]["error"]
    assert rows[3]["error"] == found.failed[2].reason
    assert found.failed[2].short == "the instance has no predicted lengths"
    assert "predictions='classes'" in found.failed[2].reason
    alone = orsched.compare(SMALL, [Mine(fail=True), "fcfs"])
    short = r"test_compare\.py, line \d+: KeyError: 'not mine'"
    assert re.fullmatch(short, alone.failed[0].short)
    assert re.search(f"mine: failed, {short}", repr(alone))
    assert alone.failed[0].reason.startswith("raised KeyError: 'not mine' (test_compare.py, line ")
    assert isinstance(alone.failed[0].error, KeyError)


def test_a_missing_package_is_a_reason(monkeypatch):
    def lacks(self, instance, run):
        raise MissingDependencyError("packings need a_solver: pip install a_solver")

    monkeypatch.setattr("orsched.models.windows.method.WindowsMethod.__call__", lacks)
    found = orsched.compare(SMALL, ["windows", "fcfs"])
    assert [row["error"] for row in found.to_rows()] == [
        "packings need a_solver: pip install a_solver", None,
    ]  # fmt: skip
    assert str(found.failed[0]) == "windows: packings need a_solver: pip install a_solver"


def test_without_any_schedule_the_reason_is_raised():
    with pytest.raises(InputError, match="is for one worker"):
        orsched.compare(SMALL, "windows", workers=2)
    with pytest.raises(OrschedError, match=r"no method made a schedule: windows: .*; hybrid: "):
        orsched.compare(SMALL, ["windows", "hybrid"], workers=2)


def test_a_bug_in_the_library_is_not_a_row(monkeypatch):
    monkeypatch.setattr("orsched.solving.checked_run.summarise", len)  # too many arguments
    for method in ("fcfs", Mine):
        with pytest.raises(TypeError):
            orsched.compare(SMALL, [method, "online"])


@pytest.mark.parametrize(("methods", "named"), [
    (["fcfs", "vlm"], "did you mean vllm"), (["fcfs", "hybrid+gait=1"], "gait"),
    (["fcfs", 3], "3 is not a method"), (["fcfs", "nowhere.py:Mine"], "no such file"),
])  # fmt: skip
def test_wrong_names_are_refused_before_anything_runs(monkeypatch, methods, named):
    monkeypatch.setattr("orsched.solving.solver.solve", None)
    with pytest.raises(InputError, match=named):
        orsched.compare(SMALL, methods)


def test_an_object_given_twice_carries_nothing_over():
    policy = Mine()
    first, second = orsched.compare(SMALL, [policy, policy])
    assert first.makespan_ns == second.makespan_ns
    assert policy.served == 0
    assert orsched.compare(SMALL, [policy])[0].makespan_ns == first.makespan_ns


def test_an_object_that_cannot_be_copied_runs_once():
    policy, other = Locked(), Locked()
    assert orsched.compare(SMALL, [policy])[0].makespan_ns > 0
    assert policy.served == len(SMALL)
    with pytest.raises(InputError, match="given twice and cannot be copied"):
        orsched.compare(SMALL, [other, other])


def test_an_object_serves_several_workers_by_copies_as_its_class_does():
    policy = Mine()
    problem = scenario(SMALL, workers=3)
    by_object, by_class = (orsched.simulate(problem, each) for each in (policy, Mine))
    assert by_object.makespan_ns == by_class.makespan_ns
    assert policy.served == 0
    fewest = {"parameters": {"dispatch": "fewest_requests"}}
    by_object, by_class = (orsched.simulate(problem, each, **fewest) for each in (policy, Mine))
    assert by_object.makespan_ns == by_class.makespan_ns
    with pytest.raises(InputError, match=r"cannot be copied.*give the class, Locked"):
        orsched.simulate(problem, Locked())


def test_an_object_that_has_run_is_refused():
    policy = Mine()
    orsched.simulate(SMALL, policy)
    for again in (orsched.simulate, orsched.solve, orsched.compare):
        with pytest.raises(InputError, match=r"this object of Mine has run before.*give the class"):
            again(SMALL, policy)


def test_an_object_that_starts_anew_runs_again():
    policy = Starts()
    first, second = (orsched.simulate(SMALL, policy).makespan_ns for _ in range(2))
    assert first == second


def test_an_object_of_constants_alone_runs_again():
    policy = Constant()
    method = choose(policy).method
    for _ in range(2):
        assert method.build(SMALL, policy.information, {}, 0)[0] is policy
    policy.limit = 3
    with pytest.raises(InputError, match="has run before"):
        method.build(SMALL, policy.information, {}, 0)


@pytest.mark.parametrize("weak", [0, 1])
def test_bounds_of_one_class_of_schedules_do_not_depend_on_the_method(weak):
    """A plain schedule takes the bound with mixed steps where that is larger, not the reverse."""
    requests = Requests([20, 500, 30, 40], [10, 7, 8, 9], arrival_ns=[0, 10**8, 10**8, 3 * 10**8])
    instance = Instance(requests, (Worker(2, name="a"), Worker(1, name="b")))
    results = [orsched.solve(instance, m, bounds="mean_jct") for m in ("fcfs", "fcfs", "vllm")]
    plain, mixed = (results[at].schedule.bound for at in (0, 2))
    assert plain["value_ns"] >= mixed["value_ns"]
    last = {"name": "last_arrival", "value_ns": 3 * 10**8}
    last["certificate"] = {"bound": last["name"], "value_ns": last["value_ns"]}
    spoiled = results[2 * weak].schedule.replace(bound=last)
    spoiled = spoiled.replace(results=summarise(instance, spoiled))
    results[2 * weak] = replace(results[2 * weak], schedule=spoiled)
    found = with_shared_bounds(instance, results)
    expected = [plain, plain, last if weak else mixed]
    assert [each.schedule.bound for each in found] == expected
    for each in found:
        assert each.bound_ns == each.schedule.results["bound_ns"]
        assert orsched.check(instance, each.schedule) == []
    alone = with_shared_bounds(instance, results[:1] + results[2:])
    assert alone[0].schedule.bound == (plain if weak else mixed)
