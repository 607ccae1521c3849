"""What every device has to do whose worker lives elsewhere."""

import os
import random
import signal
from contextlib import contextmanager

import pytest

from orsched.runner.devices.device import TorchDevice, WorkerLostError, wait, wait_until_ready
from orsched.runner.devices.settings import WorkerSettings
from orsched.runner.worker.layout import Chunk
from orsched.runner.worker.torch_worker import TorchWorker
from tests.refusals import refused

SETTINGS = WorkerSettings("tiny", slots=4, length=96, dtype="float64", seed=3, threads=1)


@contextmanager
def in_process():
    """Give a device with the same worker here; it computes with as many threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(SETTINGS.threads)
    device = TorchDevice(TorchWorker(SETTINGS))
    device.start()
    yield device
    torch.set_num_threads(before)


def serve(device, seed, steps=25):
    """Take random steps; return what the requests yielded in the order of their ends."""
    rng, found = random.Random(seed), []
    at = {}  # slot -> prompt, how much of it is cached, tokens yielded
    moment = device.now_ns()
    for _ in range(steps):
        chunks, active = [], []
        for slot in range(SETTINGS.slots):
            if slot not in at:
                at[slot] = [[rng.randrange(512) for _ in range(rng.randint(1, 20))], 0, 0]
            prompt, cached, yielded = at[slot]
            left = len(prompt) - cached
            if left and rng.random() < 0.6:
                size = rng.choice((left, rng.randint(1, left)))
                tokens = prompt[cached : cached + size]
                chunks.append(Chunk(slot, cached, tokens, size == left))
                at[slot][1:] = [cached + size, yielded + (size == left)]
            elif not left and rng.random() < 0.8:
                active.append(slot)
        rounds = 1 if chunks else rng.randint(1, 5)
        if not (chunks or active):
            continue
        for slot in active:
            at[slot][2] += rounds
        device.begin(chunks, active, rounds, 0)
        times = device.end()
        assert moment <= times.start_ns < times.end_ns <= device.now_ns()
        moment = times.end_ns
        for slot, (prompt, cached, yielded) in list(at.items()):
            if cached == len(prompt) and rng.random() < 0.2:
                tokens = device.release(slot, len(prompt)).tolist()
                assert len(tokens) == yielded
                found.append(tokens)
                del at[slot]
    for slot, (prompt, *_) in at.items():
        found.append(device.release(slot, len(prompt)).tolist())
    return found


def yields_what_a_worker_here_yields(device):
    with in_process() as here:
        for seed in range(3):
            expected = serve(here, seed)
            assert serve(device, seed) == expected
            assert sum(map(len, expected)) > 50


def prefill(device, slot=0, size=5):
    device.begin([Chunk(slot, 0, list(range(size)), True)], [], 1, 0)
    return device.end()


def ends_with(device, reason):
    """The step in progress is lost; return what is said about it."""
    wrong = refused("", device.end, kind=WorkerLostError)
    assert wrong.reason == reason
    assert not device.done()
    with pytest.raises(WorkerLostError):  # until it is restarted
        device.begin([], [0], 1, 0)
    return wrong.message


def comes_back(device):
    """A worker that was lost begins anew; what it had yielded is known."""
    (known,) = device.yielded([0], 3).tolist()
    assert len(known) == 3
    device.restart()
    assert (device.yielded([0], 3).tolist(), device.release(0, 5).tolist()) == ([known], known)
    wait_until_ready([device])
    before = device.now_ns()
    assert prefill(device).start_ns >= before  # time has gone on
    assert device.yielded([0]).tolist() == [known[:1]]
    device.release(0, 5)


def begin_a_long_step(device):
    yield_three(device)
    device.begin([], [0], 80, 0)


def yield_three(device):
    prefill(device)
    device.begin([], [0], 2, 0)
    device.end()


def survives_a_kill_while_a_step_runs(device):
    begin_a_long_step(device)
    os.kill(device.facts["pid"], signal.SIGKILL)
    wait([device], until_ns=60 * 10**9)
    assert device.done()
    message = ends_with(device, "died")
    comes_back(device)
    return message


def survives_a_kill_between_steps(device):
    yield_three(device)
    os.kill(device.facts["pid"], signal.SIGKILL)
    refused("died", take_steps, device, kind=WorkerLostError)
    comes_back(device)


def take_steps(device):
    """Take steps that do nothing: before a worker dies it may take some."""
    for _ in range(10_000):
        device.begin([], [], 1, 0)
        device.end()


def survives(device, fault, reason, said):
    device.faults[device.steps + 2] = fault
    begin_a_long_step(device)
    assert said in ends_with(device, reason)
    comes_back(device)


def survives_want_of_memory(device):
    survives(device, "out_of_memory", "out_of_memory", "Memory")


def survives_an_error(device):
    survives(device, "fail", "failed", "a test asked for this error")


def survives_a_hang(device):
    device.faults[device.steps + 2] = "hang"
    begin_a_long_step(device)
    device.hang_ns = 10**9
    device.deadline_ns = 0  # its time is over
    assert "too long" in ends_with(device, "hung")
    device.hang_ns = 120 * 10**9
    comes_back(device)


def lets_steps_wait_for_one_another(device):
    prefill(device)
    for rounds in (3, 1, 2):
        device.begin([], [0], rounds, 0)
    times = [device.end() for _ in range(3)]
    assert times == sorted(times)
    assert len(device.release(0, 5)) == 7
