"""Workers in processes of their own: they are lost in every way, and nothing else is."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest

from orsched import AffineCost, Instance, Requests, Worker, check
from orsched.runner.devices.device import WorkerLostError, start_together, wait
from orsched.runner.devices.processes import ProcessDevice
from orsched.runner.loop.live import execute_policy
from tests.in_order import in_order
from tests.refusals import refused
from tests.runner.devices import remote_devices as common
from tests.runner.loop.spec import build

pytest.importorskip("torch", reason="the extra 'runner' is not installed")
pytest.importorskip("transformers", reason="the extra 'runner' is not installed")


class Mortal(ProcessDevice):
    """Is killed some time after its next step has begun, if a test says so."""

    doom_s = None

    def begin(self, *step):
        super().begin(*step)
        if self.doom_s is not None:
            sleep(self.doom_s)
            self.doom_s = None
            os.kill(self.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def devices():
    """Two workers that all tests share: a process that imports torch takes seconds."""
    both = [Mortal(common.SETTINGS, f"worker {index}") for index in range(2)]
    start_together(both)
    yield both
    for device in both:
        device.close()


@pytest.fixture
def device(devices):
    return devices[0]


def descriptors():
    return set(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else set()


def gone(pid, seconds=120.0):
    """Say whether a process ends within some seconds, its number included."""
    end = monotonic() + seconds
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if monotonic() >= end:
            return False
        sleep(0.01)


def test_tokens_are_those_of_a_worker_in_this_process(devices):
    common.yields_what_a_worker_here_yields(devices[0])
    assert (devices[0].name, devices[0].facts["vocabulary"]) == ("worker 0", 512)
    assert devices[0].facts["threads"] == 1
    common.lets_steps_wait_for_one_another(devices[0])


def test_two_workers_run_at_one_time(devices):
    for device in devices:
        common.prefill(device)
    for device in devices:
        device.begin([], [0], 60, 0)
    times = []
    while any(device.begun for device in devices):
        wait([device for device in devices if device.begun])
        times += [device.end() for device in devices if device.done()]
    first, second = sorted(times)
    assert second.start_ns < first.end_ns  # one clock tells it
    assert devices[0].yields[0] == devices[1].yields[0]
    for device in devices:
        assert len(device.release(0, 5)) == 61


@pytest.mark.full
def test_a_worker_that_is_killed_comes_back_while_the_other_goes_on(devices):
    common.begin_a_long_step(devices[0])
    os.kill(devices[0].pid, signal.SIGKILL)
    message = common.ends_with(devices[0], "died")
    assert "SIGKILL" in message
    known = list(devices[0].yields[0])
    devices[0].restart()
    common.prefill(devices[1])
    rounds = 0
    while not devices[0].ready():
        devices[1].begin([], [0], 1 if rounds < 80 else 0, 0)
        devices[1].end()
        rounds += 1
    assert rounds > 10
    assert devices[1].release(0, 5)[:3].tolist() == known
    assert devices[0].release(0, 5).tolist() == known
    common.prefill(devices[0])
    assert devices[0].release(0, 5).tolist() == known[:1]


@pytest.mark.full
@pytest.mark.parametrize("survives", [
    common.survives_want_of_memory, common.survives_an_error, common.survives_a_kill_between_steps,
])  # fmt: skip
def test_a_worker_survives(device, survives):
    survives(device)


@pytest.mark.full
def test_a_worker_that_hangs_is_ended(device):
    pid = device.pid
    common.survives_a_hang(device)
    assert gone(pid)


@pytest.mark.full
def test_a_worker_that_is_stopped_is_ended(device):
    common.begin_a_long_step(device)
    pid = device.pid
    os.kill(pid, signal.SIGSTOP)
    device.deadline_ns = 0
    common.ends_with(device, "hung")
    assert gone(pid)
    common.comes_back(device)


@pytest.mark.full
def test_a_worker_may_be_lost_while_it_comes_to_life(device):
    for pause in (0.0, 0.3, 1.5):
        device.restart()
        sleep(pause)
        os.kill(device.pid, signal.SIGKILL)
        wait([device], until_ns=60 * 10**9)
        assert device.ready()
        refused("SIGKILL", device.begin, [], [], 1, 0, kind=WorkerLostError)
    device.boot_ns = 10**8
    device.restart()
    refused(r"not ready after 0\.1 s", device.start, kind=WorkerLostError)
    device.boot_ns = 900 * 10**9
    device.restart()
    device.start()
    common.prefill(device)
    assert len(device.release(0, 5)) == 1


class Killer:
    """Sends kill -9 to workers: when the policy decides for some worker, or while a step runs."""

    def __init__(self, devices, decisions, seed):
        self.devices, self.rng = devices, random.Random(seed)
        self.due = sorted(decisions)
        self.seen = 0
        self.killed = []

    def __call__(self, view, step):
        self.seen += 1
        if not self.due or self.seen < self.due[0]:
            return
        able = [d for d, v in zip(self.devices, view.workers, strict=True) if self.may(d, v)]
        victim = self.rng.choice(able) if able else None
        pid = None if victim is None else victim.pid
        if pid is not None:  # it has not ended since
            del self.due[0]
            self.killed.append(pid)
            if victim is self.devices[view.index] and self.rng.random() < 0.8:
                victim.doom_s = self.rng.uniform(0, 0.003)  # it is to begin a step
            else:
                os.kill(pid, signal.SIGKILL)  # its step may be in progress

    def may(self, device, view):
        """Say whether a worker has enough to do, and nothing else is about to happen to it."""
        near = {device.steps - 1, device.steps} & set(device.faults)
        new = device.pid not in self.killed
        return device.ready() and len(view.running) == view.worker.clients and new and not near


def two_workers(requests, seed):
    rng = random.Random(seed)
    outputs = [rng.randint(1, 60) for _ in range(requests)]
    arrivals = [round(index * 2e6) for index in range(requests)]  # many wait at any time
    cost = in_order(AffineCost, 300_000, 10_000, 500_000, 50_000)
    made = Requests([rng.randint(1, 30) for _ in outputs], outputs, arrival_ns=arrivals)
    return Instance(made, [Worker(4, cost, name=name) for name in "ab"], first_token="decode")


def undisturbed(instance, seed):
    """Return the tokens of a run on one worker in this process."""
    alone = instance.replace(workers=instance.workers[0])
    with common.in_process() as device:
        done = execute_policy(alone, build(alone, "fcfs", 0), device, seed, vocabulary=512)
    assert not done.events
    return done.tokens


@pytest.mark.full
@pytest.mark.parametrize(
    ("spec", "requests", "kills", "seed"),
    [("vllm", 40, 3, 1), ("vllm", 150, 20, 2), ("fcfs", 60, 6, 2)],
)
def test_nothing_is_lost_with_workers(devices, spec, requests, kills, seed):
    """Every request finishes once with the tokens of a run in which nothing happens."""
    instance = two_workers(requests, seed)
    moments = random.Random(seed).sample(range(2, requests), kills)
    killer = Killer(devices, moments, seed)
    last = devices[1].steps
    memory, hang = last + requests // 3, last + requests // 2
    devices[1].faults = {memory: "out_of_memory", hang: "hang"}
    for device in devices:
        device.hang_ns = 3 * 10**9
    done = execute_policy(instance, build(instance, spec, 0), devices, seed, 512, killer)
    for device in devices:
        device.hang_ns = 120 * 10**9
    assert done.stopped == ""
    assert check(instance, done.schedule, times="measured") == []
    assert done.tokens == undisturbed(instance, seed)
    assert [len(tokens) for tokens in done.tokens] == instance.requests.output_tokens.tolist()
    lost = Counter(event["reason"] for event in done.events if event["what"] == "lost")
    assert len(set(killer.killed)) == kills
    assert lost["died"] == kills
    # while a worker is being started again and again the other one may take most of the steps
    assert lost["out_of_memory"] == 1 or (lost["out_of_memory"] == 0 and devices[1].steps <= memory)
    assert lost["hung"] >= 1 or devices[1].steps <= hang
    moments = [event["time_ns"] for event in done.events]
    assert moments == sorted(moments)


def test_nothing_is_left_of_a_device_that_was_closed():
    before = descriptors()
    device = ProcessDevice(common.SETTINGS)
    pid = device.pid
    device.restart()
    second = device.pid
    device.close()
    device.close()
    assert gone(pid, 0)
    assert gone(second, 0)
    assert descriptors() == before
    refused("closed", device.start, kind=WorkerLostError)


def test_a_process_that_cannot_be_started_is_a_lost_worker(monkeypatch):
    def refuse(*arguments, **named):
        raise OSError("too many processes")

    before = descriptors()
    monkeypatch.setattr(subprocess, "Popen", refuse)
    device = ProcessDevice(common.SETTINGS)
    refused("too many processes", device.start, kind=WorkerLostError)
    device.close()
    assert descriptors() == before


@pytest.mark.full
def test_settings_that_no_worker_can_have_are_an_error_of_their_own():
    device = ProcessDevice(replace(common.SETTINGS, length=10**6))
    assert refused("positions", device.start).field == "length"
    assert device.pid is None
    device.close()


PARENT = """
import os, signal
from orsched.runner.devices.processes import ProcessDevice
from orsched.runner.devices.settings import WorkerSettings
print(ProcessDevice(WorkerSettings()).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_ends_with_its_parent():
    done = subprocess.run(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, check=False, text=True
    )
    assert done.returncode == -signal.SIGKILL
    assert gone(int(done.stdout))
