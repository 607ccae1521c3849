"""vLLM as a worker, with a stand-in for vLLM: the device suite, and differences that are told."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from orsched.calibration.step_files import read_measurements
from orsched.cli.commands import run as command
from orsched.common.errors import MissingDependencyError, OrschedError
from orsched.files.native import load_fitted_cost
from orsched.runner import RunSettings, WorkerLostError, run
from orsched.runner.devices.device import open_device
from orsched.runner.devices.settings import WorkerSettings
from orsched.runner.loop.resume import Prompts
from orsched.runner.measuring import measure_worker
from orsched.runner.vllm_worker.engine import (
    HOOKS,
    PassDiffersError,
    differing,
    driven,
    require_version,
)
from orsched.runner.worker.layout import Chunk
from tests.refusals import refused
from tests.runner.devices.engine_suite import Suite, instance
from tests.simulator.prefix_workloads import prefix_instance, prefix_params, prefix_policy

pytest.importorskip("transformers", reason="the extra 'runner' is not installed")
STAND_IN = Path(__file__).parent / "stand_in"


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    """Put the stand-in in vLLM's place, in processes of workers, too."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if is_vllm(name)}
    monkeypatch.syspath_prepend(str(STAND_IN))
    import vllm

    assert Path(vllm.__file__).parent.parent == STAND_IN
    yield vllm
    for name in [name for name in sys.modules if is_vllm(name)]:
        del sys.modules[name]
    sys.modules.update(before)


def is_vllm(name):
    return name == "vllm" or name.startswith("vllm.")


class TestVllm(Suite):
    worker, vocabulary = "vllm", 512

    @staticmethod
    def next_token(tokens):
        return (7 * sum(tokens) + len(tokens)) % 512

    @pytest.mark.full
    def test_several_workers_in_processes_are_lost_and_come_back(self, monkeypatch):
        super().test_several_workers_in_processes_are_lost_and_come_back(monkeypatch)


class TestVllmOnePassAhead(TestVllm):
    arguments = (("async_scheduling", True),)


def device(slots=2, length=40, **arguments):
    given = tuple(arguments.items())
    return open_device(WorkerSettings(
        slots=slots, length=length, worker="vllm", device="auto", dtype="auto", arguments=given,
    ))  # fmt: skip


def test_a_request_enters_with_its_first_pass_and_leaves_when_it_is_released():
    made = device()
    engine = made.engine.scheduler
    made.begin([Chunk(0, 0, [], False, 5, whole=[5])], [], 1, 0)
    assert (list(engine.waiting), engine.running) == ([], [])
    made.begin([Chunk(1, 0, [1, 2], False, whole=[1, 2, 3])], [0], 1, 0)
    assert [len(one.tokens) for one in engine.running] == [3, 2]
    assert made.yielded([0]).tolist() == [[(7 * 5 + 1) % 512]]
    assert made.release(0, 1).tolist() == [36]
    assert [one.computed for one in engine.running] == [2]
    assert made.release(1, 3).tolist() == []
    assert engine.running == []
    assert made.facts == {"vllm": "0.33.0", "async_scheduling": False}


def test_a_pass_that_would_differ_is_a_lost_worker_with_requests_and_free_blocks():
    made = device(block_size=4, num_gpu_blocks_override=5)  # 4 blocks that requests can have
    made.begin([Chunk(0, 0, [1] * 8, True, whole=[1] * 8)], [], 1, 0)
    wrong = refused(
        r"slot1\.\d+-0f: 12 asked, 0 scheduled \(2 blocks are free\)", made.begin,
        [Chunk(1, 0, [2] * 12, True, whole=[2] * 12)], [], 1, 0, kind=WorkerLostError,
    )  # fmt: skip
    assert wrong.reason == "differs"
    assert len(made.release(0, 8)) == 1  # what was yielded before is kept
    made.restart()
    assert made.ready()
    made.begin([Chunk(1, 0, [2] * 12, True, whole=[2] * 12)], [], 1, 0)
    assert len(made.release(1, 12)) == 1


def test_a_run_whose_memory_is_too_small_for_vllm_is_stopped_and_says_why():
    small = (("num_gpu_blocks_override", 11), ("block_size", 4))
    done = run(instance(2), "fcfs", RunSettings(worker="vllm", arguments=small, length=32))
    assert "blocks are free" in done.stopped
    assert done.violations == []


@pytest.mark.parametrize("place", ["here", pytest.param("process", marks=pytest.mark.full)])
def test_differences_count_over_restarts_of_a_process(place):
    small = (("num_gpu_blocks_override", 17), ("block_size", 4))
    problem = instance(2, output_limit_tokens=9)
    prompts = [1, *[20] * 11]  # three requests at a time want 24 blocks, and 16 are there
    requests = replace(problem.requests, prompt_tokens=prompts, output_tokens=[9] * 12)
    settings = RunSettings(worker="vllm", arguments=small, length=32, place=place)
    done = run(problem.replace(requests=requests), "fcfs", settings)
    assert "was lost 3 times; the last time it could not do as it was asked" in done.stopped
    events = [event["what"] for event in done.trace.run["events"]]
    assert events == ["lost", "restarted", "lost", "restarted", "lost", "stopped"]


def test_one_pass_ahead_a_difference_ends_the_run_with_the_work_done():
    small = (("num_gpu_blocks_override", 11), ("block_size", 4), ("async_scheduling", True))
    done = run(instance(2), "fcfs", RunSettings(worker="vllm", arguments=small, length=32))
    assert "blocks are free" in done.stopped
    assert done.violations == []
    assert done.trace.run["events"][-1]["what"] == "stopped"


def test_one_pass_ahead_the_last_pass_is_under_way_until_it_is_asked_for():
    made = device(async_scheduling=True)
    assert made.looks_ahead
    made.start(0)
    made.begin([Chunk(0, 0, [5, 6], True, whole=[5, 6])], [], 1, 0)
    made.begin([], [0], 2, 0)
    assert [step.passes for step in made.steps] == [0, 1]
    first, tokens = made.end(), made.release(0, 2)
    assert (len(tokens), tokens[-1], len(made.passes)) == (3, -1, 1)
    expected = [5, 6]
    for _ in range(3):
        expected.append(TestVllm.next_token(expected))
    assert tokens.tolist() == expected[2:]  # waits for it
    second = made.end()
    assert first.start_ns <= first.end_ns <= second.start_ns <= second.end_ns
    made.close()


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("count", [4, pytest.param(12, marks=pytest.mark.full)])
def test_prefixes_are_found_in_its_cache_as_the_schedule_says(count, ahead):
    found = 0
    for seed in range(count):
        problem = prefix_instance(seed).replace(first_token="prefill")
        policy = prefix_policy(problem, prefix_params(seed, problem.worker.clients))
        settings = RunSettings(worker="vllm", arguments=(("async_scheduling", ahead),))
        done = run(problem, policy, settings)
        assert (done.stopped, done.violations) == ("", [])
        assert done.tokens == reference_with_prefixes(problem)
        found += int(done.trace.work.hit.sum())
    assert found > 5 * count


@pytest.mark.parametrize("ahead", [False, True])
def test_a_difference_with_a_prefix_cache_ends_the_run(vllm, monkeypatch, ahead):
    nothing = SimpleNamespace(blocks=([],)), 0, 0
    monkeypatch.setattr(vllm.Blocks, "get_computed_blocks", lambda blocks, request: nothing)
    problem = prefix_instance(6).replace(first_token="prefill")
    policy = prefix_policy(problem, prefix_params(6, problem.worker.clients))
    settings = RunSettings(worker="vllm", arguments=(("async_scheduling", ahead),))
    said = "its prefix cache with it: in the prefix cache, .* asked, 0 scheduled"
    refused(said, run, problem, policy, settings, kind=OrschedError)


def reference_with_prefixes(problem):
    """Return what each request yields by the formula."""
    prompts, found = Prompts(problem, 0, 512), []
    for request, output in enumerate(problem.requests.output_tokens.tolist()):
        tokens = prompts.of(request)
        for _ in range(output):
            tokens.append(TestVllm.next_token(tokens))
        found.append(tokens[-output:])
    return found


def test_a_hit_that_vllm_does_not_have_differs():
    made = open_device(WorkerSettings(
        slots=1, length=40, worker="vllm", device="auto", dtype="auto", stored_blocks=4,
        block_tokens=4,
    ))  # fmt: skip
    whole = list(range(9))
    beyond = [Chunk(0, 4, whole[4:], True, whole=whole)]
    said = r"in the prefix cache, .* 4 asked, 0 scheduled"
    refused(said, made.begin, beyond, [], 1, 0, kind=WorkerLostError)
    made.restart()
    made.begin([Chunk(0, 0, whole, True, whole=whole)], [], 1, 0)
    made.release(0, 9)
    made.begin(beyond, [], 1, 0)
    assert made.release(0, 9).tolist() == [TestVllm.next_token(whole)]


def test_the_self_test_refuses_a_version_that_does_not_do_as_asked(vllm, monkeypatch):
    def stubborn(self, request, num_computed_tokens, num_new_tokens):
        return num_new_tokens

    monkeypatch.setattr(
        "orsched.runner.vllm_worker.engine.driven",
        lambda base: type("Kept", (driven(base),), {HOOKS[0]: stubborn}),
    )
    said = "fails the self-test at the start: vLLM's pass differs in tokens: request slot0"
    assert refused(said, device).field == "worker"


def test_a_model_that_its_kernels_do_not_take_is_refused(vllm, monkeypatch):
    def unsupported(self, chunks, active, rounds):
        raise RuntimeError("head size 16 is not supported")

    monkeypatch.setattr("orsched.runner.vllm_worker.device.VllmDevice.compute", unsupported)
    assert refused("at the start: head size 16", device).field == "worker"


@pytest.mark.parametrize(("change", "said", "field"), [
    ({"model": "no-such"}, "unknown model", "model"),
    ({"length": 40_000}, "max_model_len is larger than the derived one", "worker"),
    ({"arguments": (("speculation", 1),)}, "unexpected keyword argument 'speculation'", "worker"),
    ({"arguments": (("max_num_seqs", 1),)}, "max_num_seqs is set by orsched", "--engine-arg"),
    ({"arguments": (("enforce_eager", False), ("sped_up", 1))}, "argument 'sped_up'", "worker"),
    ({"device": "cuda:1"}, "this vLLM runs on cpu", "device"),
])  # fmt: skip
def test_what_vllm_cannot_be_is_refused(change, said, field):
    given = {"slots": 2, "worker": "vllm", "device": "auto", "dtype": "auto"}
    assert refused(said, open_device, WorkerSettings(**given | change)).field == field


@pytest.mark.parametrize("version", ["0.31.2", "1.0", "0.33", "0.32.0+cpu"])
def test_versions_are_refused_by_name(version):
    if version.startswith(("0.32", "0.33")):
        require_version(version)
    else:
        assert (
            "0.33" in refused(f"vLLM {version} is not supported", require_version, version).remedy
        )


def test_without_vllm_the_package_is_named_before_anything_runs(monkeypatch):
    monkeypatch.setattr("orsched.runner.vllm_worker.device.find_spec", lambda name: None)
    settings = RunSettings(worker="vllm")
    refused("pip install vllm", run, instance(), "fcfs", settings, kind=MissingDependencyError)


class Base:
    """A scheduler with the second hook alone, which asks it where it is told to."""

    need_mamba_block_aligned_split, block_size = False, 4
    kv_cache_manager = SimpleNamespace(get_computed_blocks=None)

    def __init__(self, tokens):
        self.tokens = tokens

    def _mamba_block_aligned_split(self, request, num_new_tokens, *computed):
        return num_new_tokens

    def schedule(self):
        assert self.need_mamba_block_aligned_split
        request = SimpleNamespace(request_id="a")
        found = self._mamba_block_aligned_split(request, self.tokens, 0, 0)
        passed = {"a": found} if found else {}
        return SimpleNamespace(num_scheduled_tokens=passed, scheduled_new_reqs=[])


def test_the_second_hook_serves_where_the_first_is_missing():
    scheduler = driven(Base)(7)
    assert scheduler.schedule().num_scheduled_tokens == {}
    scheduler.asked = {"a": 3}
    assert scheduler.schedule().num_scheduled_tokens == {"a": 3}
    scheduler.asked = {"a": 9}
    refused("request a: 9 asked, 7 scheduled", scheduler.schedule, kind=PassDiffersError)
    refused("has none of", driven, object)


def test_many_differences_are_counted():
    said = differing({str(n): 1 for n in range(5)}, {"0": 1, "9": 2}, None)
    assert said.count("asked") == 3
    assert said.endswith("; 2 more")


def test_it_is_calibrated_by_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = (
        "calibrate --worker vllm --slots 2 --length 40 --prefill-cap 48 --repeats 1 --requests 4 "
        "--engine-arg async_scheduling=true --cost-model affine -o cost.json "
        "--measurements rows.csv"
    )
    assert command(line.split()) == 0, capsys.readouterr().err
    cost, report = load_fitted_cost("cost.json")
    assert report["worker"]["worker"] == "vllm"
    assert report["worker"]["async_scheduling"] is True
    assert cost.round_ns(2, 10, 5) > 0
    assert {"prefill", "decode", "mixed"} <= set(read_measurements(Path("rows.csv")).phase)
    for more, said in (
        ("--memory 1GiB", "of a torch worker"),
        ("--engine-arg speculation=1", "unexpected keyword argument"),
        ("--engine-arg speculation", "--engine-arg"),
    ):
        assert command([*line.split(), *more.split()]) == 2
        assert said in capsys.readouterr().err


def test_looks_at_the_machine_leave_the_rehearsal_s_requests_alone(monkeypatch):
    monkeypatch.setattr("orsched.runner.speed.EVERY_NS", 0)
    for slots in (1, 3):
        made = device(slots)
        _, speed = measure_worker(made, 40, repeats=1, requests=6)
        assert made.engine.scheduler.running == []
        assert len(speed.reference_ns) >= 3
