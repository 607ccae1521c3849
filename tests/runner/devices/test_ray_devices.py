"""Workers as Ray actors do what those in processes do."""

import importlib.util
import os
import signal

import pytest

from orsched.common.errors import MissingDependencyError
from orsched.runner.devices.processes import RayDevice, boot_id, connect
from orsched.runner.devices.settings import WorkerSettings
from tests.refusals import refused

RAY = importlib.util.find_spec("ray") is not None


@pytest.mark.skipif(RAY, reason="ray is installed")
def test_without_ray_the_extra_is_named():
    refused(r"orsched\[ray\]", RayDevice, WorkerSettings(), kind=MissingDependencyError)


def test_a_machine_keeps_its_clock_between_starts():
    assert boot_id() == boot_id() != ""


@pytest.fixture(scope="module")
def common():
    pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    return importlib.import_module("tests.runner.devices.remote_devices")


@pytest.fixture(scope="module")
def device(common):
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    connect(cpus=2)
    device = RayDevice(common.SETTINGS)
    device.start()
    yield device
    device.close()
    ray.shutdown()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # ray's own
class TestActor:
    def test_tokens_are_those_of_a_worker_in_this_process(self, common, device):
        common.yields_what_a_worker_here_yields(device)
        common.lets_steps_wait_for_one_another(device)

    def test_it_survives_a_kill(self, common, device):
        common.survives_a_kill_while_a_step_runs(device)
        common.survives_a_kill_between_steps(device)

    def test_it_survives_want_of_memory_and_errors(self, common, device):
        common.survives_want_of_memory(device)
        common.survives_an_error(device)

    def test_it_survives_a_hang(self, common, device):
        common.survives_a_hang(device)

    def test_a_stopped_actor_is_ended(self, common, device):
        common.begin_a_long_step(device)
        os.kill(device.facts["pid"], signal.SIGSTOP)
        device.deadline_ns = 0
        common.ends_with(device, "hung")
        common.comes_back(device)

    def test_a_clock_of_another_machine_is_asked_for(self, device):
        here = device._far_ns(0)
        device.facts["boot_id"] = "elsewhere"
        assert here == 0
        assert abs(device._far_ns(0)) < 10**8  # it is the same clock after all
