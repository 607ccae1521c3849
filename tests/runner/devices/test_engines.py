"""Another engine as a worker: the example's, through the whole suite; and what is refused."""

from pathlib import Path

import pytest

from orsched.runner import RunSettings, run
from orsched.runner.devices.device import open_device
from orsched.runner.devices.settings import WorkerSettings
from tests.refusals import refused
from tests.runner.devices.engine_suite import Suite, instance

OWN = f"{Path(__file__).resolve().parents[3] / 'examples' / 'own_engine.py'}:FormulaEngine"


class TestFormulaEngine(Suite):
    worker, vocabulary = OWN, 509

    @staticmethod
    def next_token(tokens):
        return sum(tokens) % 509


@pytest.mark.parametrize(("settings", "said", "field"), [
    ({"worker": "torhc"}, "unknown worker", "worker"),
    ({"arguments": (("a", 1),)}, "no arguments of its own", "arguments"),
    ({"worker": "virtual", "arguments": (("a", 1),)}, "no arguments of its own", "arguments"),
])  # fmt: skip
def test_settings_are_refused(settings, said, field):
    assert refused(said, RunSettings, **settings).field == field


@pytest.mark.parametrize(("target", "said"), [
    ("no_such_module:Engine", "cannot load"), ("decimal:Decimal", "not a subclass of EngineDevice"),
    (OWN.replace("FormulaEngine", "Formula"), "has no class 'Formula'"),
])  # fmt: skip
def test_what_is_no_engine_is_refused_before_anything_runs(target, said):
    assert refused(said, run, instance(), "fcfs", RunSettings(worker=target)).field == "worker"
    assert refused(said, open_device, WorkerSettings(worker=target)).field == "worker"


def test_a_token_that_the_engine_does_not_have_and_peaks_are_refused():
    settings = RunSettings(worker=OWN)
    refused("below|above|most", run, instance(), "vllm", settings, end_of_sequence=[509])
    refused("only of a torch worker", run, instance(), "vllm", RunSettings(worker=OWN, peaks=True))
    refused("unknown device", WorkerSettings, worker=OWN, device="tpu")
    refused("unknown device", WorkerSettings, device="auto")
