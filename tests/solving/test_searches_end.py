"""What ends a search: time with a schedule before it, a gap that is proven, no solver."""

import json
import math

import pytest

import orsched
from orsched import CpuSeconds, FirstOf, MaxIterations, MaxRuntime, TargetGap, Termination, methods
from orsched.cli.commands import run
from orsched.common.errors import InfeasibleError, InputError
from orsched.common.stop import Clock, OnlyTime, gap_of, require_gap, target_gap, tell_bound
from orsched.instances.catalog import generate
from orsched.models.packing import pack
from tests.blocking import run_without
from tests.stops import CpuPast, TimeUp

SEARCHES = tuple(each for each in methods() if each.searches)
AIMS = ("makespan", "jct_mean", "ttft_mean", "0.3*makespan+0.7*jct_mean", "slo_attainment")
PANG = orsched.load("pang-100x20")
GSM8K = generate("gsm8k", seed=0, requests=12, clients=3)
LIMITS = orsched.SLO(ttft_ns=10**9, tpot_ns=10**8)


CHUNKS = orsched.Instance(orsched.Requests([9, 3], [2, 2]), orsched.Worker(2, prefill_cap_tokens=4))
INSTANCES = {
    "at once": GSM8K,
    "with arrivals": generate("peers", seed=0, requests=12, clients=3),
    "two workers": GSM8K.replace(workers=[GSM8K.worker] * 2),
    "longer prompts than a prefill": CHUNKS,
}


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch):
    """A first schedule may take any time: no machine is too busy for these tests."""
    monkeypatch.setattr("orsched.solving.methods.FIRST_S", math.inf)
    monkeypatch.setattr("orsched.common.stop.FIRST_S", 1e6)


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("method", SEARCHES, ids=lambda each: each.name)
def test_a_search_out_of_time_returns_a_checked_schedule(method, aim, name):
    instance = INSTANCES[name]
    try:
        result = orsched.solve(instance, method.name, aim, stop=TimeUp(), slo=LIMITS)
    except (InputError, InfeasibleError):  # it is not for such an instance or objective
        return
    assert result.checked
    if method.name != "auto":  # which picks a policy, too
        assert result.schedule.method == method.name
        assert result.schedule.information == method.information[0]


@pytest.mark.parametrize("method", ["hybrid", "windows", "fleet", "latency_search"])
def test_the_command_answers_within_a_millisecond_s_limit(capsys, method):
    arguments = ["-q", "solve", "pang-100x20", "--method", method, "--time-limit", "0.001"]
    assert run([*arguments, "--format", "csv"]) == 0
    assert method in capsys.readouterr().out


def test_a_given_schedule_is_what_a_search_out_of_time_returns():
    given = orsched.solve(GSM8K, "online").schedule
    result = orsched.solve(GSM8K, "hybrid", stop=TimeUp(), initial_schedule=given)
    assert result.makespan_ns == given.makespan_ns
    assert result.termination is Termination.TIME_LIMIT
    assert "time ended before hybrid had a schedule; this is the given one" in result.notes


def test_a_method_of_your_own_that_runs_out_of_time_gets_the_first_schedule_too():
    class TooLate:
        name, information, summary = "too_late", (orsched.Information.CLAIRVOYANT,), ""

        def __call__(self, instance, run):
            run.require_time()

    result = orsched.solve(GSM8K, TooLate(), stop=TimeUp())
    assert result.makespan_ns == orsched.solve(GSM8K, "fcfs").makespan_ns
    assert result.notes[0] == "time ended before too_late had a schedule; this is that of fcfs"


@pytest.mark.parametrize("method", ["hybrid", "windows"])
def test_100_by_20_to_one_per_cent_ends_before_the_time_limit(method):
    result = orsched.solve(PANG, method, gap=0.01, time_limit=600)
    assert result.termination is Termination.TARGET_GAP
    assert result.gap <= 0.01
    assert result.checked


def test_a_search_ends_at_the_first_iteration_within_the_gap():
    every = []
    orsched.solve(PANG, "hybrid", iterations=18, callback=every.append)
    least = min(record.gap for record in every)
    first = [record.gap for record in every].index(least) + 1
    assert 1 < first < 18
    for gap, iterations in [(every[0].gap, 1), (least, first), (least / 2, 18)]:
        seen = []
        orsched.solve(PANG, "hybrid", gap=gap, iterations=18, callback=seen.append)
        assert len(seen) == iterations


def test_the_search_goes_on_while_the_gap_is_not_reached():
    seen = []
    result = orsched.solve(PANG, "hybrid", stop=TargetGap(0.009), callback=seen.append)
    assert result.termination is Termination.TARGET_GAP
    assert all(record.gap > 0.009 for record in seen[:-1])
    assert seen[-1].gap <= 0.009
    assert seen[-1].gap == pytest.approx(result.gap)


def test_what_cannot_be_reached_ends_with_the_other_criterion_and_says_so():
    for how, ended, said in (
        ({"iterations": 3}, "iterations", "not the 0.10% asked for: try more iterations"),
        ({"stop": TimeUp(3)}, "time_limit", "try more time"),
    ):
        result = orsched.solve(PANG, gap=0.001, **how)
        assert result.termination is Termination(ended)
        assert any(said in note for note in result.notes)


def test_a_gap_alone_has_a_time_limit(monkeypatch):
    monkeypatch.setattr("orsched.solving.checked_run.GAP_LIMIT_S", 0.5)
    for options in ({"gap": 0.0}, {"stop": TargetGap(0.0)}):
        result = orsched.solve(PANG, **options)
        assert result.termination is Termination.TIME_LIMIT


def test_methods_without_a_search_take_the_gap_and_say_so():
    result = orsched.solve(PANG, "fcfs", gap=0.01)
    assert result.termination is Termination.FINISHED
    assert "policies make one schedule: the target gap ends nothing" in result.notes
    assert not orsched.solve(PANG, "fcfs", gap=0.5).notes


def test_a_plan_on_predictions_is_not_told_the_bound_of_the_truth():
    seen = []
    result = orsched.solve(PANG, "hybrid@predicted", gap=0.9, callback=seen.append)
    same = orsched.solve(PANG, "hybrid@predicted")
    assert result.schedule.results["makespan_ns"] == same.schedule.results["makespan_ns"]
    assert {record.bound_ns for record in seen} == {None}
    assert len(seen) == 18


def test_exact_ends_at_the_gap_of_the_solvers_own_bound():
    few = PANG.replace(requests=PANG.requests.take(range(8)))
    few = few.replace(workers=(orsched.Worker(2, few.worker.cost),))
    analytic = orsched.solve(few, "hybrid").gap
    assert analytic > 0
    seen, mip = [], {"search": "mip"}
    result = orsched.solve(few, "exact", gap=analytic / 2, callback=seen.append, parameters=mip)
    assert result.termination is Termination.TARGET_GAP
    assert seen[-1].gap <= analytic / 2 < seen[0].gap
    assert any("proved that schedules without" in note for note in result.notes)
    at_once = orsched.solve(few, "exact", gap=2 * analytic, parameters=mip)
    assert at_once.termination is Termination.TARGET_GAP


def test_criteria_of_others_are_told_the_bound():
    class Patient:
        """The gap, and no sooner than after five iterations."""

        def __init__(self, gap):
            self.gap = TargetGap(gap)
            self.seconds_left = math.inf

        def start(self):
            self.gap.start()

        def bounded(self, bound_ns):
            self.gap.bounded(bound_ns)

        def __call__(self, iteration, best_ns):
            return iteration >= 5 and self.gap(iteration, best_ns)

    seen = []
    orsched.solve(PANG, stop=Patient(0.5), callback=seen.append)
    assert len(seen) == 5


def test_the_parts_of_a_criterion_know_the_bound_and_the_gap():
    both = FirstOf((MaxIterations(9), FirstOf((TargetGap(0.1), TargetGap(0.2)))))
    both.start()
    assert not both(1, 100)
    tell_bound(both, 90)
    tell_bound(both, 80)  # a weaker one changes nothing
    assert both(1, 100)  # 11 %
    assert not both(1, 109)
    assert both(9, 109)
    assert OnlyTime(both)(9, 109) is False
    assert OnlyTime(both)(9, 100) is True
    criteria = (both, OnlyTime(both), MaxRuntime(1))
    assert [target_gap(each) for each in criteria] == [0.2, 0.2, None]


def test_gaps_are_those_of_results():
    assert gap_of(101, 100) == 0.01
    assert TargetGap(0.01).gap == 0.01
    assert gap_of(None, 1) is gap_of(1, None) is gap_of(1, 0) is None
    assert gap_of(0, 0) == 0


@pytest.mark.parametrize(("value", "remedy"), [
    (1, "for 1 % write 0.01"), (2.5, "for 2.5 % write 0.025"), (-0.1, "0.01 is 1 %"),
    (math.nan, "0.01 is 1 %"), (math.inf, "0.01 is 1 %"), (True, "0.01 is 1 %"),
    ("1%", "0.01 is 1 %"),
])  # fmt: skip
def test_wrong_gaps_are_refused_at_the_door(value, remedy):
    with pytest.raises(InputError, match="is not a gap: a share from 0 to below 1") as caught:
        TargetGap(value)
    assert caught.value.remedy == remedy
    assert require_gap(0) == 0.0


def test_the_command_line_refuses_them_before_it_loads(capsys):
    for command in ("solve", "compare", "run"):
        assert run([command, "no-such-instance", "--gap", "1"]) == 2
        assert "field '--gap': 1.0 is not a gap" in capsys.readouterr().err


def test_the_command_line_says_which_methods_do_not_search(capsys):
    methods = "fcfs,offline,hybrid"
    assert run(["compare", "pang-100x20", "--gap", "0.011", "--methods", methods]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("%") == 6
    assert shown.err.count("the target gap ends nothing") == 1


def test_a_run_plans_to_the_gap(capsys):
    options = ("--worker", "virtual", "--policy", "windows", "--gap", "0.01", "--format", "json")
    assert run(["run", "pang-100x20", *options]) == 0
    assert json.loads(capsys.readouterr().out)["makespan_s"] < 1.01 * 69.05


SOLVERS = ("pyscipopt", "ortools")
METHODS = ("fcfs", "offline", "online", "hybrid", "vllm", "gittins")
PROGRAM = f"""
import json

import orsched
from orsched.cli.commands import run
from orsched.models.mip import build
from orsched.models.packing import pack
from orsched.runner.policy_source import policy_source

instance = orsched.load("pang-100x20")
found = {{}}
for method in {METHODS!r}:
    done = orsched.solve(instance, method, iterations=1)
    found[method] = [done.schedule.makespan_ns, done.schedule.bound["value_ns"], list(done.notes)]
found["bound"] = orsched.bound(instance).value_ns
found["policy_source"] = policy_source(instance, "hybrid", iterations=1).plan.makespan_ns
lengths = [17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67] * 3
packed = pack(lengths, 7, moves=1)
found["packed"] = [packed.makespan, packed.bound, sum(lengths), packed.assignment]
try:
    build(orsched.load("gate"), "packing")
except orsched.common.errors.MissingDependencyError as error:
    found["mip"] = str(error)
found["exit"] = [run(["solve", "two-by-two", "--method", "fcfs"]), run(["bound", "two-by-two"])]
print(json.dumps(found))
"""


def test_what_needs_no_solver_works_without(tmp_path):
    done = run_without(SOLVERS, PROGRAM, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for method in METHODS:
        makespan, bound, notes = found[method]
        assert 0 < bound <= makespan
        assert any("pip install pyscipopt" in note for note in notes)
    assert found["hybrid"][0] < found["fcfs"][0]
    assert found["policy_source"] == found["hybrid"][0]
    assert found["bound"] > 0
    makespan, bound, total, assignment = found["packed"]
    assert max(bound, -(-total // 7)) <= makespan
    assert set(assignment) == set(range(7))
    assert "pip install ortools" in found["mip"]
    assert found["exit"] == [0, 0]


@pytest.fixture
def cpu(monkeypatch):
    """A CPU clock that no machine drives."""
    past = CpuPast(25.0)
    monkeypatch.setattr("orsched.common.stop.cpu_seconds", past)
    return past


@pytest.mark.parametrize("method", [each.name for each in SEARCHES if each.name != "auto"])
def test_cpu_seconds_end_a_search_as_seconds_do(cpu, method):
    """Start, bound, search and check count on one clock, and no part of them on another."""
    try:
        result = orsched.solve(GSM8K, method, time_limit=CpuSeconds(500))
    except InputError:  # it is not for such an instance
        return
    assert result.checked
    ended = result.termination is Termination.TIME_LIMIT
    assert cpu.now >= 500 if ended else result.termination is Termination.FINISHED


def test_a_cpu_limit_stays_one_in_its_parts_and_ends_bounds_and_packings(cpu):
    clock = Clock(CpuSeconds(100))
    for part in (clock.left() / 2, 2 * clock.left(), 0.5 * clock.seconds, clock.left() - 1):
        assert isinstance(part, CpuSeconds)
    assert clock.left() == 0
    assert clock.out()
    assert type(Clock(5).left()) is float
    cpu.now = 0.0
    whole = orsched.bound(PANG).value_ns
    assert cpu.now == 0
    assert 0 < orsched.bound(PANG, time_limit=CpuSeconds(50)).value_ns <= whole
    assert cpu.now >= 50
    found = pack(list(range(200, 320)), 9, CpuSeconds(300))
    assert found.makespan >= found.bound > 0
    assert cpu.now >= 75


@pytest.mark.parametrize(
    "line", ["solve gate", "compare gate", "bound gate", "pack gate", "run gate --policy hybrid"]
)
def test_commands_take_one_limit_of_the_two(cpu, capsys, line):
    arguments = line.split()
    assert run(["-q", *arguments, "--cpu-limit", "0"]) == 2
    assert "--cpu-limit" in capsys.readouterr().err
    assert run(["-q", *arguments, "--cpu-limit", "1000", "--time-limit", "1000"]) == 2
    assert "leave --time-limit out" in capsys.readouterr().err
    if arguments[0] != "run":
        assert run(["-q", *arguments, "--cpu-limit", "500"]) == 0
