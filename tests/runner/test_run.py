"""A run on a virtual worker is the simulation; on a real one it is valid and complete."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import orsched
from orsched.calibration.runs import gaps_ns
from orsched.common.errors import InfeasibleError, InputError, MissingDependencyError
from orsched.common.registry import names
from orsched.files import load_schedule, save_instance, save_schedule
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.metrics.timeline import Timeline
from orsched.runner import RunSettings, plan_against_run, run
from orsched.runner.capacity import Size, require_room
from orsched.simulator import simulate_policy
from tests.blocking import run_without
from tests.refusals import refused
from tests.runner.loop.spec import build

VIRTUAL = RunSettings("virtual")

SLOW = {"exact", "auto", "windows", "latency_search"}


@pytest.fixture(scope="module")
def instance():
    return orsched.load("pang-100x20")


def few(instance, count, clients, **changes):
    """Return the first requests alone, on a worker of so many clients."""
    changes = {"workers": orsched.Worker(clients, instance.worker.cost), **changes}
    return instance.replace(requests=instance.requests.take(range(count)), **changes)


@pytest.fixture
def torch():
    """Torch, whose threads are as many as before when the test is over."""
    module = pytest.importorskip("torch")
    threads = module.get_num_threads()
    yield module
    module.set_num_threads(threads)


@pytest.mark.parametrize("name", [name for name in names("methods") if name not in SLOW])
def test_on_a_virtual_worker_the_trace_is_the_simulation(instance, name):
    given = {"iterations": 2} if name == "fleet" else {}
    plan = orsched.solve(instance, name, **given).schedule
    done = run(instance, name, VIRTUAL, **given)
    assert done.trace.steps == plan.steps == done.plan.steps
    assert (done.trace.work, done.violations) == (plan.work, [])
    assert done.trace.is_measured
    assert done.trace.parameters == plan.parameters
    expected = {**plan.results, "ttft_ns": None, "tpot_ns": None}
    assert {**done.trace.results, "ttft_ns": None, "tpot_ns": None} == expected
    assert (done.trace.bound, done.trace.run["busy_share"]) == (plan.bound, 1.0)


@pytest.mark.parametrize("name", ["hybrid", "windows"])
def test_methods_that_plan_are_followed_and_policies_decide(instance, name):
    followed = run(instance, name, VIRTUAL, iterations=1)
    assert followed.trace.run["plan"]["followed"] is True
    assert followed.trace.work == followed.plan.work
    live = run(instance, "online", VIRTUAL)
    assert live.trace.run["plan"]["followed"] is False


def test_a_schedule_from_a_file_is_followed(instance, tmp_path):
    plan = orsched.solve(instance, "offline", seed=3).schedule
    save_schedule(plan, tmp_path / "plan.json")
    done = run(instance, load_schedule(tmp_path / "plan.json"), VIRTUAL)
    assert (done.trace.work, done.trace.seed) == (plan.work, 3)
    assert done.trace.method == "offline"
    save_schedule(done.trace, tmp_path / "run.json")
    again = load_schedule(tmp_path / "run.json")
    assert again.is_measured
    assert orsched.check(instance, again, times="measured") == []
    assert run(instance, again, VIRTUAL).trace.work == plan.work


def test_specifications_have_parameters(instance):
    done = run(instance, "hybrid@clairvoyant+gate=waited_time", VIRTUAL, iterations=1)
    assert done.trace.parameters["gate"] == "waited_time"
    refused("gate", run, instance, "online", VIRTUAL, parameters={"gate": "none"})


def test_a_schedule_takes_no_parameters_no_other_instance_and_no_other_ends(instance):
    plan = orsched.solve(instance, "fcfs").schedule
    refused("has its information", run, instance, plan, VIRTUAL, parameters={"a": 1})
    refused("another instance", run, orsched.load("two-by-two"), plan, VIRTUAL)
    refused("schedule says", run, instance, plan, VIRTUAL, end_of_sequence=[2])
    refused("virtual", run, instance, "fcfs", VIRTUAL, end_of_sequence=[2])


@pytest.mark.parametrize(("field", "value"), [
    ("slots", 3), ("length", 10), ("worker", "gpu"), ("dtype", "int8"), ("threads", 0),
    ("threads", 100_000), ("place", "there"), ("peaks", True),
    *(("worker_timeout", bad) for bad in (0, -1, float("nan"), 1e400, True, "5")),
    ("worker_timeout", 5.0),  # a virtual worker does not hang
])  # fmt: skip
def test_what_does_not_fit_is_refused(instance, field, value):
    def start():
        run(instance, "fcfs", RunSettings(**{"worker": "virtual", field: value}))

    assert refused("", start).field == field


def test_a_plan_that_uses_few_clients_needs_few_slots(instance):
    plan = orsched.solve(few(instance, 100, 3), "fcfs").schedule
    many = few(instance, 100, 50)
    moved = plan.replace(instance_sha256=many.sha256, results={}, bound=None)
    assert run(many, moved, RunSettings("virtual", slots=3)).violations == []


def test_positions_and_memory_are_refused_with_what_would_fit(monkeypatch):
    size = Size(positions=4096, vocabulary=10, weight_bytes=1000, token_bytes=10)
    refused("4,096 positions", require_room, size, 1, 5000, "cpu")
    monkeypatch.setattr("orsched.runner.capacity.free_bytes", lambda device: 11_112)
    require_room(size, 9, 100, "cpu")
    refused("9 slots fit", require_room, size, 10, 100, "cpu")
    refused("weights alone", require_room, size, 10, 100, "cpu", workers=10)
    monkeypatch.setattr("orsched.runner.capacity.free_bytes", lambda device: None)
    require_room(size, 10_000, 100, "cpu")


def test_gaps_do_not_count_waiting_for_requests(instance):
    requests = instance.requests
    arrivals = np.zeros(len(requests), np.int64)
    arrivals[-1] = 1000 * 10**9
    late = instance.replace(requests=requests.replace(arrival_ns=arrivals))
    done = run(late, "fcfs", VIRTUAL)
    assert done.trace.run["gap_ns"]["total"] == 0
    assert done.trace.run["busy_share"] < 0.2
    steps = done.trace.steps
    moved = replace(steps, start_ns=steps.start_ns + 5, end_ns=steps.end_ns + 5)
    moved = done.trace.replace(steps=moved)
    assert gaps_ns(late, Timeline(late, moved)).sum() == 5  # those before the late request


def test_prompts_longer_than_a_stage_are_split_live_and_from_a_schedule(instance):
    short = instance.replace(workers=replace(instance.worker, prefill_cap_tokens=64))
    assert short.needs_chunks
    live = run(short, "gittins", VIRTUAL)
    assert live.violations == []
    followed = run(short, live.plan, VIRTUAL)
    assert (followed.violations, followed.trace.work) == ([], live.trace.work)
    refused("", run, short, "fcfs", VIRTUAL, kind=InfeasibleError)


def test_an_empty_instance_is_run(instance):
    done = run(instance.replace(requests=orsched.Requests([], [])), "fcfs", VIRTUAL)
    assert (done.trace.makespan_ns, done.violations) == (0, [])


def test_torch_is_asked_for_where_it_is_missing(instance, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    refused(r"orsched\[runner\]", run, instance, "fcfs", kind=MissingDependencyError)


@pytest.mark.usefixtures("torch")
def test_a_run_on_torch_is_valid_and_yields_every_token(instance):
    small = few(instance, 25, 5)
    plan = simulate_policy(small, FirstComeFirstServed()).schedule
    done = run(small, plan, RunSettings(threads=1, peaks=True))
    assert (done.violations, done.trace.work) == ([], plan.work)
    assert [len(tokens) for tokens in done.tokens] == small.requests.output_tokens.tolist()
    block, said = done.trace.run, {"model": "tiny", "dtype": "float32", "device": "cpu", "slots": 5}
    assert said.items() <= block.items()
    assert 0 < block["busy_share"] <= 1
    assert block["memory_bytes"] > 10**6
    assert block["utilization"]["bandwidth_utilization"] > 0
    refused("cannot use", run, small, plan, RunSettings(device="cuda:77"))


@pytest.mark.full
def test_several_workers_are_processes_and_a_schedule_on_them_is_followed(instance):
    pytest.importorskip("torch")
    worker = orsched.Worker(4, instance.worker.cost)
    small = few(instance, 20, 4, workers=(worker, replace(worker, name="other")))
    plan = simulate_policy(small, build(small, "gittins@none")).schedule
    done = run(small, plan, RunSettings(threads=1))
    assert (done.violations, done.trace.run["place"]) == ([], "process")
    assert [len(tokens) for tokens in done.tokens] == small.requests.output_tokens.tolist()
    found = plan_against_run(small, plan, done.trace)
    assert found.followed == len(found.stages.worker)
    refused("2 workers in one process", run, small, plan, RunSettings(place="here"))


@pytest.mark.usefixtures("torch")
def test_lengths_turn_out_in_the_run(instance):
    small, ends = few(instance, 8, 4, output_limit_tokens=512), range(0, 512, 8)
    done = run(small, "vllm", RunSettings(threads=1), end_of_sequence=ends)
    assert done.violations == []
    assert done.plan is None
    lengths = done.instance.requests.output_tokens.tolist()
    assert [len(tokens) for tokens in done.tokens] == lengths
    assert all(tokens[-1] in ends or len(tokens) == 512 for tokens in done.tokens)
    assert not any(token in ends for tokens in done.tokens for token in tokens[:-1])
    assert plan_against_run(done.instance, None, done.trace).run_makespan_ns > 0


@pytest.mark.parametrize("token", [-1, 512])
def test_a_token_that_the_model_never_yields_is_refused(instance, token):
    pytest.importorskip("torch")
    given = instance, "fcfs", RunSettings()
    wrong = refused(f"{token} is (below|above)", run, *given, end_of_sequence=[2, token])
    assert wrong.field == "end_of_sequence"


@pytest.mark.parametrize(
    ("config", "problem"),
    [(None, "no such file"), ("{nonsense", "not valid JSON"),
     ('{"model_type": "nobody"}', "'nobody' are not supported")],
)  # fmt: skip
def test_a_folder_without_a_model_is_refused(instance, tmp_path, config, problem):
    pytest.importorskip("torch")
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    wrong = refused(problem, run, instance, "fcfs", RunSettings(model=str(tmp_path)))
    assert wrong.file == str(tmp_path / "config.json")


def test_a_folder_without_weights_is_refused(instance, tmp_path):
    pytest.importorskip("torch")
    from orsched.runner.worker.language_model import preset_config

    preset_config("tiny").save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no weights"):
        run(instance, "fcfs", RunSettings(model=str(tmp_path), threads=1))


BLOCKED = (
    "pyscipopt", "ortools", "pydantic", "plotly", "ray", "jsonschema", "click", "matplotlib",
    "pandas",
)  # fmt: skip

PROGRAM = """
import orsched.runner
from orsched.files import load_instance, load_schedule, save_schedule
from orsched.runner import RunSettings, plan_against_run, run

for name in orsched.runner.__all__:
    getattr(orsched.runner, name)
instance, plan = load_instance("instance.json"), load_schedule("plan.json")
done = run(instance, plan, RunSettings({worker!r}, threads=1))
assert done.violations == [], done.violations
found = plan_against_run(instance, done.plan, done.trace)
assert found.followed == len(found.stages.worker)
assert done.trace.bound == plan.bound or {worker!r} == "torch"
save_schedule(done.trace, "run.json")
assert load_schedule("run.json").work == plan.work
print(sorted(name for name in BLOCKED if name in sys.modules))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, instance):
    path, small = tmp_path_factory.mktemp("plan"), few(instance, 30, 20)
    save_instance(small, path / "instance.json")
    plan = orsched.solve(small, "hybrid", iterations=2).schedule
    save_schedule(plan, path / "plan.json")
    return path


@pytest.mark.parametrize("worker", ["virtual", pytest.param("torch", marks=pytest.mark.full)])
def test_a_schedule_file_is_executed(folder, worker):
    if worker == "torch":
        pytest.importorskip("torch")
    found = run_without(BLOCKED, PROGRAM.format(worker=worker), folder)
    assert found.returncode == 0, found.stderr
    assert worker == "torch" or found.stdout.strip() == "[]"


def test_import_alone_loads_neither_torch_nor_transformers():
    program = "import sys, orsched.runner; print({'torch', 'transformers'} & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "set()"
