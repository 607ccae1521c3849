"""Our Triton kernels, in Triton's interpreter: all of them but the launch on a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
pytest.importorskip("transformers", reason="the extra 'runner' is not installed")
if find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

from orsched.runner.worker import decoder  # noqa: E402
from orsched.runner.worker.kernels import DecodeRounds  # noqa: E402
from tests.runner.torch_workers import torch_worker  # noqa: E402

LIMITS = {"float32": 2e-6, "bfloat16": 0.02}
"""Differences of means of standard normal values, as measured on a GPU for bfloat16."""


@pytest.fixture(scope="module")
def cases() -> dict[str, dict]:
    """The results of all cases, by name."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runner.worker.triton_cases"],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return {each["case"]: each for each in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("group", [1, 4, 8])
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("window", [None, 1, 5, 70])
def test_the_decode_kernel_attends_as_the_dense_one(
    cases: dict[str, dict], dtype: str, group: int, size: int, window: int | None
) -> None:
    found = cases[f"decode-{dtype}-{group}-{size}-{window}"]
    assert found["worst"] <= LIMITS[dtype]
    assert found["moving"] > 0.05


@pytest.mark.parametrize("fault", ["none", "begins", "a key too few"])
def test_the_comparison_sees_what_is_wrong(cases: dict[str, dict], fault: str) -> None:
    assert cases[f"fault-{fault}"]["agree"] == (fault == "none")


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("kv", [1, 3])
@pytest.mark.parametrize("group", [1, 4, 8])
@pytest.mark.parametrize("size", [16, 64, 128])
def test_fused_kernels_compute_what_the_plain_ones_do(
    cases: dict[str, dict], dtype: str, kv: int, group: int, size: int
) -> None:
    assert cases[f"fused-{dtype}-{kv}-{group}-{size}"]["agree"]


@pytest.mark.parametrize("fault", ["none", "caches swapped", "halves swapped"])
def test_fused_kernels_that_compute_otherwise_are_found(cases: dict[str, dict], fault: str) -> None:
    assert cases[f"trust-{fault}"]["agree"] == (fault == "none")


def test_a_worker_on_our_kernels_yields_the_same_tokens(cases: dict[str, dict]) -> None:
    plain, ours = cases["worker"]["tokens"]
    assert plain == ours
    assert [len(tokens) for tokens in ours] == [5, 8, 3]


def test_without_a_gpu_they_are_not_chosen() -> None:
    worker = torch_worker("tiny", slots=1, length=16, dtype="bfloat16")
    assert not DecodeRounds.serves(worker.slots)
    assert worker.forward.fused == decoder.Fused()


def test_a_compiler_that_fails_leaves_the_plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = torch_worker("tiny", slots=1, length=16).slots
    monkeypatch.setattr(decoder, "fusible", lambda slots: True)

    def fails(*_: object) -> bool:
        raise SystemError("no compiler")

    monkeypatch.setattr(decoder, "agrees", fails)
    with pytest.warns(RuntimeWarning, match="fused kernels: SystemError: no compiler"):
        assert decoder.fused_for(slots, 4) == decoder.Fused()
    monkeypatch.setattr(decoder, "agrees", lambda *_: False)
    with pytest.warns(RuntimeWarning, match="otherwise on this device"):
        assert decoder.fused_for(slots, 4) == decoder.Fused()
    monkeypatch.setattr(decoder, "agrees", lambda *_: True)
    assert decoder.fused_for(slots, 4) == decoder.fused()
