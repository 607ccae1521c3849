"""From a name to what runs: what is told of methods, what fits, one way for all names."""

import json
import subprocess
import sys
from dataclasses import dataclass

import pandas as pd
import pytest

import orsched
from orsched import InputError, Instance, Policy, Requests, Worker, capacity
from orsched.cli.commands import run as command
from orsched.common import registry
from orsched.common.parameters import REQUIRED, Parameter, meanings_in, of_dataclass, of_function
from orsched.common.registry import BUILT_IN, resolve
from orsched.files import load_schedule, save_instance
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.instances.catalog import GENERATORS, generate
from orsched.models.bounds import bounds
from orsched.planning.study import run as run_study
from orsched.runner import RunSettings
from orsched.runner import run as run_live
from orsched.solving.method_choice import PAPERS, all_methods, choose, method_info, method_names
from orsched.solving.scenario import with_workers
from tests.refusals import refusal

METHODS = {method.name: method for method in all_methods()}


def predicted():
    """Return a small instance whose true lengths are predicted, as numbers and as quantiles."""
    instance = orsched.load("two-by-two")
    lengths = instance.requests.output_tokens
    quantiles = [[length, length] for length in lengths.tolist()]
    requests = instance.requests.replace(
        predicted_tokens=lengths, predicted_quantiles=quantiles, quantile_levels=(0.5, 0.9)
    )
    return instance.replace(requests=requests)


def test_methods_lists_them_all_in_rows():
    found = orsched.methods()
    assert [method.name for method in found] == method_names()
    frame = pd.DataFrame(found)
    assert list(frame.columns)[:4] == ["name", "information", "workers", "searches"]
    assert {m.name for m in found if m.searches} == {
        "hybrid", "windows", "fleet", "latency_search", "exact", "auto",
    }  # fmt: skip
    assert METHODS["online"].information == ("none", "predicted")
    assert METHODS["fcfs"].summary


@pytest.mark.parametrize(
    "order", ["orsched.methods()", "import orsched.solving.solver; orsched.methods()"]
)
def test_methods_can_be_called_whatever_was_imported(order):
    code = (
        f"import orsched; {order}; import orsched.solving.methods as module\n"
        "from orsched.solving.methods import Progress\n"
        "assert module.Progress is Progress and module.methods()\n"
        "from orsched import methods; assert methods()\n"
    )
    assert subprocess.run([sys.executable, "-W", "error", "-c", code]).returncode == 0


@pytest.mark.parametrize("name", list(METHODS))
def test_methods_that_take_any_number_of_workers_take_two_and_others_do_not(name):
    instance = predicted()
    instance = instance.replace(workers=instance.workers * 2)
    if METHODS[name].workers == "any":
        assert orsched.solve(instance, name, iterations=1).checked
    else:
        with pytest.raises(InputError):
            orsched.solve(instance, name, iterations=1)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_parameter_is_explained_and_taken_at_its_default(name):
    instance = predicted()
    parameters = METHODS[name].parameters
    assert all(each.meaning for each in parameters)
    assert len({each.name for each in parameters}) == len(parameters)
    given = {each.name: each.default for each in parameters}
    assert REQUIRED not in given.values()
    same = orsched.solve(instance, name, parameters=given, iterations=1, time_limit=600)
    alone = orsched.solve(instance, name, iterations=1, time_limit=600)
    assert same.makespan_ns == alone.makespan_ns
    with pytest.raises(InputError, match=r"unknown parameter|takes no parameters"):
        orsched.solve(instance, name, parameters={"no_such_parameter": 1}, iterations=1)


def test_every_built_in_method_but_the_plain_batching_modes_names_its_source():
    without = {name for name in BUILT_IN["methods"] if not METHODS[name].paper}
    assert without == {"static", "dynamic", "one_at_a_time"}
    assert set(PAPERS) <= set(BUILT_IN["methods"])


@pytest.mark.parametrize("name", list(GENERATORS))
def test_every_argument_of_a_generator_is_explained(name):
    assert all(each.meaning for each in of_function(GENERATORS[name]))


class Mine(Policy):
    """Serves nobody.

    Args:
        patience: how long it waits.
    """

    def __init__(self, patience, limit=3):
        self.patience, self.limit = patience, limit

    def decide(self, view):
        """Wait."""


def test_a_policy_of_ones_own_is_described_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "mine_for_info", sys.modules[__name__])
    found = method_info("mine_for_info:Mine")
    assert found.summary == "Serves nobody."
    assert [(p.name, p.default) for p in found.parameters] == [
        ("patience", REQUIRED), ("limit", 3), ("dispatch", "soonest"), ("steal", False),
        ("load_weight", 0.0),
    ]  # fmt: skip
    assert found.parameters[0].meaning == "how long it waits."
    assert (found.workers, found.searches) == ("any", False)


def test_meanings_are_read_from_the_sections_of_docstrings():
    @dataclass
    class Params:
        """Some.

        Attributes:
            one, two: both of
                these: ``here``.
            three: another.

        Raises:
            InputError: never.
        """

        one: int = 1
        two: bool = True
        three: str | None = None

    assert of_dataclass(Params) == (
        Parameter("one", 1, "both of these: here."),
        Parameter("two", True, "both of these: here."),
        Parameter("three", None, "another."),
    )
    assert [each.shown for each in of_dataclass(Params)] == ["1", "true", "null"]
    assert of_dataclass(Params(one=5))[0].default == 5
    assert meanings_in(None, "Args") == meanings_in("x", "Args") == {}


def test_methods_and_machines_are_short_where_they_are_printed():
    listed = repr(orsched.methods())
    assert len(listed.splitlines()) == len(orsched.methods())
    assert max(map(len, listed.splitlines())) <= 120
    vllm = next(each for each in orsched.methods() if each.name == "vllm")
    assert repr(vllm).startswith("Method vllm: continuous batching")
    assert "max_num_batched_tokens" in repr(vllm)
    assert len(repr(vllm)) < 460
    machine = orsched.machines()[0]
    assert repr(machine) == f"Machine {machine.name}: {machine.words}"


LONG = Instance(Requests([10, 3000, 20], [3, 2, 4], arrival_ns=[0, 10**9, 2 * 10**9]), Worker(2))
TWO = LONG.replace(workers=(Worker(2), Worker(2, name="b")))
PADS = LONG.replace(workers=(Worker(2, padding=True),))
ENDLESS = Instance(Requests([10, 20, 30], [2**31 - 1] * 3), Worker(2))
HUGE = LONG.replace(requests=Requests([2**31 - 1] * 41, [1] * 41))
WIDE = LONG.replace(requests=Requests([2**28], [1]))

SPLIT_NOT, THRESHOLD = {"mode": "prefill_first"}, "long_prefill_token_threshold"
MOST = "max_num_batched_tokens"
CHUNKED = ("vllm", "vtc", "gittins", "disaggregated", "conserve")
BESIDE_BULK = ("echo", "hygen", "conserve", "slack")
WRONG = (
    (LONG, "vtc", SPLIT_NOT, "mode", "does not split prompts, and request 1"),
    (LONG, "vllm", SPLIT_NOT, "mode", "raise max_num_batched_tokens to 3000"),
    (LONG, "vllm", SPLIT_NOT | {THRESHOLD: 4}, THRESHOLD, "leave it out, or set mode to mixed"),
    (LONG, "vllm", {"chunked_prefill": False}, "chunked_prefill", "has 3,000 tokens"),
    (LONG, "disaggregated", SPLIT_NOT, "mode", "does not split prompts"),
    (LONG, "disaggregated", {"dispatch": "soonest"}, "dispatch", "chooses workers itself"),
    (LONG, "vllm", {"moed": "mixed"}, "parameters", "unknown parameter 'moed'"),
    (LONG, "windows", {"threads": 0}, "threads", "0 is below 1"),
    (TWO, "windows", {}, "workers", "is for one worker"),
    (TWO, "offline", {}, "workers", "is for one worker"),
    (PADS, "vllm", {}, "padding", "does not pad"),
    (PADS, "gittins", {}, "padding", "does not pad"),
    *((HUGE, name, {}, MOST, "--max-steps 42991615") for name in CHUNKED),
    (WIDE, "vllm", {MOST: 1}, MOST, "268,435,456 prefill steps"),
    *((ENDLESS, name, {}, "output_tokens", "--max-steps 3221225470") for name in BESIDE_BULK),
    *(
        (ENDLESS, name, {}, "output_tokens", "decode steps are more than the")
        for name in ("scls", "scls_continuous")
    ),
    *(
        (LONG, name, {}, "predicted_tokens", "no predicted lengths")
        for name in ("mico", "offline@predicted", "online@predicted", "hybrid@predicted")
    ),
)


@pytest.mark.parametrize(("instance", "method", "parameters", "field", "said"), WRONG)
def test_it_is_refused_before_any_bound(instance, method, parameters, field, said, monkeypatch):
    def never(*_, **__):
        raise AssertionError("something ran")

    monkeypatch.setattr(bounds, "bound", never)
    error = refusal(orsched.solve, instance, method, parameters=parameters)
    assert error.field == field
    assert said in str(error)


@pytest.mark.parametrize("method", ["online", "fcfs", "offline", "hybrid", "auto", "vllm", "sjf"])
def test_without_predictions_the_others_run(method):
    assert orsched.solve(LONG, method, iterations=1).checked


@pytest.mark.parametrize("dispatch", [{}, {"max_num_batched_tokens": 4096}])
def test_what_fits_runs(dispatch):
    given = {"mode": "prefill_first", "max_num_batched_tokens": 3000} | dispatch
    assert orsched.solve(LONG, "vtc", parameters=given).checked


@pytest.mark.parametrize(("policy", "said"), [
    ("disaggregated", "is for workers of different roles"), ("offline", "serves one worker"),
    ("windows", "windows searches"), ("mico", "no predicted lengths"),
])  # fmt: skip
def test_capacity_refuses_policies_that_do_not_serve_such_fleets(policy, said):
    with pytest.raises(InputError, match=said):
        capacity(LONG, policy, slo_ttft=5)


MINE = """
from orsched.heuristics.pang import FirstComeFirstServed
class Mine(FirstComeFirstServed):
    name = "mine"
    def __init__(self, most=3):
        super().__init__()
        self.most = most
    def counted(self):
        return {"most": self.most}
"""
VIRTUAL = RunSettings("virtual")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a policy, and its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "my_one_policy.py").write_text(MINE)
    yield "my_one_policy:Mine"
    sys.modules.pop("my_one_policy", None)


UNIFORM = generate("uniform", requests=30, clients=4, seed=1)
NO_POLICIES = ("os:getcwd", "orsched.data.step:Step")


@pytest.fixture(params=[1, 2])
def problem(request):
    return with_workers(UNIFORM, request.param)


def bare(schedule):
    return schedule.replace(run={})


def test_every_way_of_naming_a_class_gives_one_schedule(mine, problem, tmp_path, capsys):
    given = {"most": 2, "dispatch": "least_work"}
    name = f"{mine}+most=2+dispatch=least_work"
    first = orsched.simulate(problem, mine, parameters=given)
    assert first.schedule.parameters == given
    assert first.schedule.run["counted"] == {"most": 2 * len(problem.workers)}
    for other in (
        orsched.simulate(problem, name),
        orsched.solve(problem, mine, parameters=given),
        orsched.solve(problem, choose(mine).method, parameters=given),
        orsched.compare(problem, [name])[0],
    ):
        assert bare(other.schedule) == bare(first.schedule)
    save_instance(problem, tmp_path / "p.json")
    options = ["--param", "most=2", "--param", "dispatch=least_work"]
    for arguments in (["simulate", "--policy", mine, *options], ["solve", "--method", name]):
        assert command([*arguments, "p.json", "-o", "s.json"]) == 0
        assert bare(load_schedule("s.json")) == bare(first.schedule)
    assert command(["compare", "p.json", "--methods", f"{name},fcfs", "--format", "json"]) == 0
    capsys.readouterr()
    policies = [name, {"name": mine, "parameters": given}]
    rows = run_study({"instances": [problem], "policies": policies}, "out", jobs=1).rows
    assert [row["makespan_ns"] for row in rows] == [first.schedule.makespan_ns]
    live = run_live(problem, name, VIRTUAL)
    assert live.violations == []
    assert live.trace.makespan_ns == live.plan.makespan_ns == first.schedule.makespan_ns
    assert live.plan.parameters == live.trace.parameters == given


@pytest.mark.parametrize("name", ["fcfs", "online", "vllm+max_num_batched_tokens=64", "hybrid"])
def test_simulate_takes_what_solve_takes(name):
    simulated = orsched.simulate(UNIFORM, name, seed=3)
    solved = orsched.solve(UNIFORM, name, seed=3, iterations=1)
    assert bare(simulated.schedule) == bare(solved.schedule)
    assert simulated.label == solved.label


def test_a_policy_object_runs_once_simulated_and_real():
    named = orsched.solve(UNIFORM, "fcfs").schedule.replace(parameters={})
    for run in (orsched.simulate, orsched.solve):
        assert bare(run(UNIFORM, FirstComeFirstServed()).schedule) == bare(named)
    assert bare(orsched.solve(UNIFORM, FirstComeFirstServed).schedule) == bare(named)
    live = run_live(UNIFORM, FirstComeFirstServed(), VIRTUAL)
    assert live.violations == []
    assert (live.plan.steps, live.plan.work) == (named.steps, named.work)
    assert live.trace.makespan_ns == named.makespan_ns


@pytest.mark.parametrize("name", ["online", "offline", "online@predicted+assignment=packing"])
def test_a_live_gate_knows_what_the_simulated_one_knows(name):
    """Service classes did not reach it: priority=service_class did nothing live."""
    instance = generate("uniform", requests=40, clients=3, seed=2)
    columns = {"service_class": [0, 1] * 20, "predicted_tokens": instance.requests.output_tokens}
    instance = instance.replace(requests=instance.requests.replace(**columns))
    name = f"{name}+priority=service_class"
    live = run_live(instance, name, VIRTUAL)
    assert live.plan.makespan_ns == live.trace.makespan_ns
    first, second = (bare(s).work for s in (live.plan, live.trace))
    assert first.request.tolist() == second.request.tolist()


def test_methods_that_plan_are_followed_and_not_observed():
    instance = generate("uniform", requests=20, clients=3, seed=2)
    assert not resolve("methods", "hybrid").live
    live = run_live(instance, "hybrid", VIRTUAL)
    assert live.trace.run["plan"]["followed"]
    with pytest.raises(InputError, match="plans beforehand"):
        orsched.simulate(instance, "hybrid", observer=lambda view, step: None)
    seen = []
    orsched.simulate(instance, "online", observer=lambda view, step: seen.append(step))
    assert seen


@pytest.mark.parametrize(("source", "field", "problem"), [
    ("fcsf", "method", "unknown method"),
    *((name, "method", "is not a subclass of Policy") for name in NO_POLICIES),
    ("no_such_module:X", "method", "no_such_module"),
    ("orsched.heuristics.pang:FirstComeFirstServed@none", "information", "class itself"),
    ("hybrid@none", "information", "does not run"),
    (3, "method", "is not a method"),
    (dict, "method", "is not a method"),
])  # fmt: skip
def test_what_is_none_is_refused_in_the_same_words(source, field, problem):
    instance = orsched.load("two-by-two")
    for use in (orsched.solve, orsched.simulate, lambda i, s: run_live(i, s, VIRTUAL)):
        error = refusal(use, instance, source)
        assert problem in str(error)
        called = "policy" if use is orsched.simulate else "method"  # the argument of each
        assert error.field == (called if field == "method" else field)


def test_a_package_registers_a_policy_class(mine, monkeypatch, capsys):
    known = {"policies": {"own-fcfs": mine, "no-policy": "os:getcwd", "fcfs": "os:getcwd"}}
    monkeypatch.setattr(registry, "_entry_points", lambda kind: known.get(kind, {}))
    instance = orsched.load("two-by-two")
    assert "own-fcfs" in method_names()
    named = orsched.solve(instance, "own-fcfs+most=2")
    assert named.schedule.parameters == {"most": 2}
    assert named.label == "own-fcfs+most=2"
    assert orsched.solve(instance, "fcfs").schedule.method == "fcfs"  # the library's own counts
    with pytest.raises(InputError, match="'no-policy' is not a subclass of Policy"):
        orsched.solve(instance, "no-policy")
    arguments = ["simulate", "two-by-two", "--policy", "own-fcfs", "--format", "json"]
    assert command([*arguments, "--param", "most=2"]) == 0
    assert json.loads(capsys.readouterr().out)["makespan_s"] == named.makespan
    del known["policies"]["no-policy"]
    assert command(["info"]) == 0
    assert "own-fcfs" in capsys.readouterr().out


def test_a_split_method_on_workers_without_roles_says_so():
    [said] = [n for n in orsched.solve(TWO, "disaggregated").notes if "prefill and decode" in n]
    assert "a split such as --workers 2P2D:free gives workers roles" in said
    split = orsched.simulate(LONG, "disaggregated", workers="1P1D:free")
    assert not any("prefill and decode" in note for note in split.notes)
