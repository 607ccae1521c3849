"""Every place that passes a device on passes it with its index (a stand-in for the GPU)."""

import pytest

torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
pytest.importorskip("transformers", reason="the extra 'runner' is not installed")

import orsched  # noqa: E402
from orsched.runner.devices.settings import (  # noqa: E402
    WorkerSettings,
    choose,
    one_each,
)
from orsched.runner.execution import run  # noqa: E402
from orsched.runner.measuring import WorkerOptions, largest_batches  # noqa: E402
from orsched.runner.utilization import SIZES  # noqa: E402
from orsched.runner.worker.language_model import settled  # noqa: E402
from orsched.runner.worker_pool import RunSettings  # noqa: E402
from tests.refusals import refused  # noqa: E402
from tests.runner.stand_in_gpu import indexed, one_gpu  # noqa: E402
from tests.runner.torch_workers import torch_worker  # noqa: E402


@pytest.fixture
def gpu(monkeypatch):
    with one_gpu(monkeypatch) as asked:
        yield asked


def test_the_stand_in_is_as_strict_as_a_gpu(gpu):
    for device in ("cuda", torch.device("cuda")):
        refused("specified index", torch.cuda.set_device, device, kind=ValueError)
        refused("specified index", torch.zeros, 3, device=device, kind=ValueError)
        refused("specified index", torch.zeros(3).to, device, kind=ValueError)
    assert indexed("cuda:1") == 1
    assert torch.zeros(3, device="cuda:0").device.type == "cpu"


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0"])
def test_a_run_settles_the_index_once(gpu, device, monkeypatch):
    monkeypatch.setitem(SIZES, "cuda", (64, 2**12))
    instance = orsched.Instance(
        orsched.Requests([5, 9, 3], [4, 2, 6]),
        orsched.Worker(2, orsched.AffineCost()),
        first_token="decode",
    )
    settings = RunSettings(model="tiny", device=device, dtype="float32", peaks=True)
    found = run(instance, "fcfs", settings)
    assert (found.trace.run["device"], found.trace.run["memory_bytes"]) == ("stand-in", 12345)
    assert {"set_device", "mem_get_info", "max_memory_allocated", "synchronize"} <= set(gpu)


def test_a_calibration_settles_the_index_once(gpu):
    options = WorkerOptions(slots=2, length=32, dtype="float32")
    assert (options.resolved().device, options.settings().device) == ("cuda:0", "cuda:0")
    assert [found.slots for found in largest_batches(options, 64, 2**24)]


def test_several_workers_have_a_gpu_each_and_one_has_the_current(gpu):
    assert choose("auto").device == choose("cuda").device == settled("cuda") == "cuda:0"
    assert choose("cpu").device == settled("cpu") == "cpu"
    assert torch_worker("tiny", slots=1, length=8, device="cuda").device == torch.device("cuda:0")
    assert [each.device for each in one_each(WorkerSettings(device="cuda"), 1)] == ["cuda"]
