"""A run on a virtual worker is the simulation; on a real one it is valid and complete."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import orsched
from orsched.calibration.stages import gaps_ns
from orsched.common.errors import InfeasibleError, InputError, MissingDependencyError
from orsched.common.registry import names, resolve
from orsched.files import load_schedule, save_instance, save_schedule
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.metrics.timeline import Timeline
from orsched.runner import RunSettings, plan_against_run, run
from orsched.runner.capacity import Size, require_room
from orsched.simulator import simulate_policy
from tests.blocking import run_without
from tests.in_order import in_order

VIRTUAL = RunSettings("virtual")
NAN = float("nan")
SLOW = {"exact", "auto", "windows", "latency_search"}


@pytest.fixture(scope="module")
def instance():
    return orsched.load("pang-100x20")


@pytest.mark.parametrize("name", [name for name in names("methods") if name not in SLOW])
def test_on_a_virtual_worker_the_trace_is_the_simulation(instance, name):
    plan = orsched.solve(instance, name).schedule
    done = run(instance, name, VIRTUAL)
    assert done.trace.steps == plan.steps == done.plan.steps
    assert done.trace.work == plan.work
    assert done.violations == []
    assert done.trace.is_measured
    assert done.trace.parameters == plan.parameters
    expected = {**plan.results, "ttft_ns": None, "tpot_ns": None}
    assert {**done.trace.results, "ttft_ns": None, "tpot_ns": None} == expected
    assert done.trace.bound == plan.bound
    assert done.trace.run["busy_share"] == 1.0


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
    assert done.trace.work == plan.work
    assert done.trace.seed == 3
    assert done.trace.method == "offline"
    save_schedule(done.trace, tmp_path / "run.json")
    again = load_schedule(tmp_path / "run.json")
    assert again.is_measured
    assert orsched.check(instance, again, times="measured") == []
    assert run(instance, again, VIRTUAL).trace.work == plan.work


def test_specifications_have_parameters(instance):
    done = run(instance, "hybrid@clairvoyant+gate=waited_time", VIRTUAL, iterations=1)
    assert done.trace.parameters["gate"] == "waited_time"
    with pytest.raises(InputError, match="gate"):
        run(instance, "online", VIRTUAL, parameters={"gate": "none"})


def test_a_schedule_takes_no_parameters_and_no_other_instance(instance):
    plan = orsched.solve(instance, "fcfs").schedule
    with pytest.raises(InputError, match="has its information"):
        run(instance, plan, VIRTUAL, parameters={"a": 1})
    with pytest.raises(InputError, match="another instance"):
        run(orsched.load("two-by-two"), plan, VIRTUAL)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"slots": 3}, "slots"),
        ({"length": 10}, "length"),
        ({"worker": "gpu"}, "worker"),
        ({"dtype": "int8"}, "dtype"),
        ({"threads": 0}, "threads"),
        ({"threads": 100_000}, "threads"),
        ({"place": "there"}, "place"),
        ({"peaks": True}, "peaks"),
        *(({"worker_timeout": bad}, "worker_timeout") for bad in (0, -1, NAN, 1e400, True, "5")),
        ({"worker_timeout": 5.0}, "worker_timeout"),  # a virtual worker does not hang
    ],
)
def test_what_does_not_fit_is_refused(instance, changes, field):
    with pytest.raises(InputError) as caught:
        run(instance, "fcfs", RunSettings(**{"worker": "virtual", **changes}))
    assert caught.value.field == field


def test_a_plan_that_uses_few_clients_needs_few_slots(instance):
    few = instance.replace(workers=orsched.Worker(3, instance.worker.cost))
    plan = orsched.solve(few, "fcfs").schedule
    many = instance.replace(workers=orsched.Worker(50, instance.worker.cost))
    moved = plan.replace(instance_sha256=many.sha256, results={}, bound=None)
    assert run(many, moved, RunSettings("virtual", slots=3)).violations == []


def test_positions_and_memory_are_refused_with_what_would_fit(monkeypatch):
    size = Size(positions=4096, vocabulary=10, weight_bytes=1000, token_bytes=10)
    with pytest.raises(InputError, match="4,096 positions"):
        require_room(size, 1, 5000, "cpu")
    monkeypatch.setattr("orsched.runner.capacity.free_bytes", lambda device: 11_112)
    require_room(size, 9, 100, "cpu")
    with pytest.raises(InputError, match="9 slots fit"):
        require_room(size, 10, 100, "cpu")
    with pytest.raises(InputError, match="weights alone"):
        require_room(size, 10, 100, "cpu", workers=10)
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
    moved = done.trace.replace(
        steps=in_order(
            orsched.Steps,
            steps.worker,
            steps.phase,
            steps.start_ns + 5,
            steps.end_ns + 5,
            steps.rounds,
        )
    )
    assert gaps_ns(late, Timeline(late, moved)).sum() == 5  # those before the late request


def test_prompts_longer_than_a_stage_are_split_live_and_from_a_schedule(instance):
    short = instance.replace(workers=replace(instance.worker, prefill_cap_tokens=64))
    assert short.needs_chunks
    live = run(short, "gittins", VIRTUAL)
    assert live.violations == []
    followed = run(short, live.plan, VIRTUAL)
    assert followed.violations == []
    assert followed.trace.work == live.trace.work
    with pytest.raises(InfeasibleError):
        run(short, "fcfs", VIRTUAL)


def test_an_empty_instance_is_run(instance):
    empty = instance.replace(requests=orsched.Requests([], []))
    done = run(empty, "fcfs", VIRTUAL)
    assert done.trace.makespan_ns == 0
    assert done.violations == []


def test_torch_is_asked_for_where_it_is_missing(instance, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"orsched\[runner\]"):
        run(instance, "fcfs")


def test_a_run_on_torch_is_valid_and_yields_every_token():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    instance = orsched.load("pang-100x20")
    kept = instance.requests.take(range(25))
    small = instance.replace(requests=kept, workers=orsched.Worker(5, instance.worker.cost))
    plan = simulate_policy(small, FirstComeFirstServed()).schedule
    try:
        done = run(small, plan, RunSettings(threads=1, peaks=True))
    finally:
        torch.set_num_threads(threads)
    assert done.violations == []
    assert done.trace.work == plan.work
    assert [len(tokens) for tokens in done.tokens] == kept.output_tokens.tolist()
    block = done.trace.run
    assert block["model"] == "tiny"
    assert block["dtype"] == "float32"
    assert block["device"] == "cpu"
    assert block["slots"] == 5
    assert 0 < block["busy_share"] <= 1
    assert block["memory_bytes"] > 10**6
    assert block["utilization"]["bandwidth_utilization"] > 0
    with pytest.raises(InputError, match="cannot use"):
        run(small, plan, RunSettings(device="cuda:77"))


@pytest.mark.full
def test_several_workers_are_processes_and_a_schedule_on_them_is_followed():
    pytest.importorskip("torch")
    instance = orsched.load("pang-100x20")
    kept = instance.requests.take(range(20))
    worker = orsched.Worker(4, instance.worker.cost)
    small = instance.replace(requests=kept, workers=(worker, replace(worker, name="other")))
    policy = resolve("methods", "gittins").build(small, "none", {}, 0)[0]
    plan = simulate_policy(small, policy).schedule
    done = run(small, plan, RunSettings(threads=1))
    assert done.violations == []
    assert done.trace.run["place"] == "process"
    assert [len(tokens) for tokens in done.tokens] == kept.output_tokens.tolist()
    found = plan_against_run(small, plan, done.trace)
    assert found.followed == len(found.stages.worker)
    with pytest.raises(InputError, match="2 workers in one process"):
        run(small, plan, RunSettings(place="here"))


def test_lengths_turn_out_in_the_run():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    instance = orsched.load("pang-100x20")
    small = instance.replace(
        requests=instance.requests.take(range(8)),
        workers=orsched.Worker(4, instance.worker.cost),
        output_limit_tokens=512,
    )
    ends = range(0, 512, 8)
    try:
        done = run(small, "vllm", RunSettings(threads=1), end_of_sequence=ends)
    finally:
        torch.set_num_threads(threads)
    assert done.violations == []
    assert done.plan is None
    lengths = done.instance.requests.output_tokens.tolist()
    assert [len(tokens) for tokens in done.tokens] == lengths
    assert all(
        tokens[-1] in ends or len(tokens) == small.output_limit_tokens for tokens in done.tokens
    )
    assert not any(token in ends for tokens in done.tokens for token in tokens[:-1])
    assert plan_against_run(done.instance, None, done.trace).run_makespan_ns > 0


def test_lengths_turn_out_under_policies_on_workers_that_yield_tokens(instance):
    with pytest.raises(InputError, match="virtual"):
        run(instance, "fcfs", VIRTUAL, end_of_sequence=[2])
    plan = orsched.solve(instance, "fcfs").schedule
    with pytest.raises(InputError, match="schedule says"):
        run(instance, plan, VIRTUAL, end_of_sequence=[2])


@pytest.mark.parametrize("token", [-1, 512])
def test_a_token_that_the_model_never_yields_is_refused(instance, token):
    pytest.importorskip("torch")
    with pytest.raises(InputError, match=f"{token} is (below|above)") as caught:
        run(instance, "fcfs", RunSettings(), end_of_sequence=[2, token])
    assert caught.value.field == "end_of_sequence"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (None, "no such file"),
        ("{nonsense", "not valid JSON"),
        ('{"model_type": "nobody"}', "'nobody' are not supported"),
    ],
)
def test_a_folder_without_a_model_is_refused(instance, tmp_path, config, problem):
    pytest.importorskip("torch")
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(InputError, match=problem) as caught:
        run(instance, "fcfs", RunSettings(model=str(tmp_path)))
    assert caught.value.file == str(tmp_path / "config.json")


def test_a_folder_without_weights_is_refused(instance, tmp_path):
    pytest.importorskip("torch")
    from orsched.runner.worker.language_model import preset_config

    preset_config("tiny").save_pretrained(tmp_path)
    with pytest.raises(InputError, match="there are no weights"):
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
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan")
    instance = orsched.load("pang-100x20")
    small = instance.replace(requests=instance.requests.take(range(30)))
    save_instance(small, path / "instance.json")
    plan = orsched.solve(small, "hybrid", iterations=2).schedule
    save_schedule(plan, path / "plan.json")
    return path


def execute(folder, worker):
    return run_without(BLOCKED, PROGRAM.format(worker=worker), folder)


def test_a_schedule_file_is_executed_by_a_virtual_worker(folder):
    found = execute(folder, "virtual")
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"


def test_a_schedule_file_is_executed_on_torch(folder):
    pytest.importorskip("torch")
    found = execute(folder, "torch")
    assert found.returncode == 0, found.stderr


def test_import_alone_loads_neither_torch_nor_transformers():
    program = "import sys, orsched.runner; print({'torch', 'transformers'} & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "set()"
