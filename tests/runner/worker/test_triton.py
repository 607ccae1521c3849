"""Our Triton kernels, in Triton's interpreter: all of them but the launch on a device."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from orsched.runner.worker import decoder
from orsched.runner.worker.kernels import DecodeRounds
from tests.runner.torch_workers import torch_worker

if find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)


COUNTS = {"few": (4, 3, 2, 3), "every": (48, 3, 36, 3)}


@pytest.fixture(scope="module", params=["few", pytest.param("every", marks=pytest.mark.full)])
def cases(request):
    done = subprocess.run(
        [sys.executable, "-m", "tests.runner.worker.triton_cases", request.param],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {each["case"]: each for each in map(json.loads, done.stdout.splitlines())}
    parts = zip(("decode", "fault", "fused", "trust"), COUNTS[request.param], strict=True)
    for part, count in parts:
        assert sum(name.startswith(part) for name in found) == count
    return found


@pytest.mark.parametrize("part", ["decode", "fault", "fused", "trust"])
def test_kernels_compute_what_the_plain_ones_do_and_faults_are_found(cases, part):
    found = {name: each["right"] for name, each in cases.items() if name.startswith(part)}
    assert [name for name, right in found.items() if not right] == []


def test_a_worker_on_our_kernels_yields_the_same_tokens(cases):
    plain, ours = cases["worker"]["tokens"]
    assert plain == ours
    assert [len(tokens) for tokens in ours] == [5, 8, 3]


def test_without_a_gpu_they_are_not_chosen():
    worker = torch_worker("tiny", slots=1, length=16, dtype="bfloat16")
    assert not DecodeRounds.serves(worker.slots)
    assert worker.forward.fused == decoder.Fused()


def test_a_compiler_that_fails_leaves_the_plain_kernels(monkeypatch):
    slots = torch_worker("tiny", slots=1, length=16).slots
    monkeypatch.setattr(decoder, "fusible", lambda slots: True)

    def fails(*_):
        raise SystemError("no compiler")

    monkeypatch.setattr(decoder, "agrees", fails)
    with pytest.warns(RuntimeWarning, match="fused kernels: SystemError: no compiler"):
        assert decoder.fused_for(slots, 4) == decoder.Fused()
    monkeypatch.setattr(decoder, "agrees", lambda *_: False)
    with pytest.warns(RuntimeWarning, match="otherwise on this device"):
        assert decoder.fused_for(slots, 4) == decoder.Fused()
    monkeypatch.setattr(decoder, "agrees", lambda *_: True)
    assert decoder.fused_for(slots, 4) == decoder.fused()
