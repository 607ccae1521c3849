"""The largest batch: predicted by bytes, found by trying, without a crash."""

import pytest

from orsched.runner import capacity
from orsched.runner.capacity import Footprint, Found, largest, memory_profile, within_memory
from orsched.runner.devices.settings import WorkerSettings
from tests.refusals import refused


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 17, 99, 120])
@pytest.mark.parametrize("guess", [0, 1, 5, 17, 99, 400])
def test_the_largest_is_found_from_any_guess(limit, guess):
    tried = []

    def fits(slots):
        tried.append(slots)
        return slots <= limit

    assert largest(fits, guess, most=120) == limit
    assert len(set(tried)) == len(tried)
    assert all(1 <= slots <= 120 for slots in tried)


@pytest.mark.parametrize("limit", [1000, 12_345, 2**19])
def test_large_ones_are_found_to_one_percent_with_few_tries(limit):
    tried = []
    found = largest(lambda slots: tried.append(slots) or slots <= limit, round(limit * 1.04))
    assert 0.99 * limit <= found <= limit
    assert len(tried) <= 8


def test_bytes_of_a_token_by_hand():
    from orsched.runner.worker.language_model import Shape

    # keys and values of 32 layers, 8 heads of 128 numbers of two bytes: 128 KiB a token
    shape = Shape(layers=32, kv_heads=8, head_dim=128, vocabulary=128_256, positions=1024)
    assert capacity.cache_bytes(shape, 2) == 131_072
    assert Footprint(16_000, 100).slots(9, 18_999) == 2
    assert Footprint(16_000, 100).slots(9, 15_000) == 0


def test_each_length_is_tried_and_the_fewest_tokens_become_blocks():
    told, guess = [], lambda tokens: 1200 // tokens
    found = memory_profile((10, 100), guess, lambda n, k: n * k <= 1000, report=told.append)
    assert found == [Found(10, 120, 100), Found(100, 12, 10)]
    assert "12 slots of 100 tokens" in told
    model = capacity.block_memory([*found, Found(200, 6, 4)], 16)
    assert (model.blocks, model.block_tokens) == (800 // 16, 16)
    refused("no slot of 5 tokens fits", memory_profile, (5,), lambda _: 3, lambda *_: False)
    refused("less than a block", capacity.block_memory, [Found(10, 1, 1)], 16)


def test_a_cpu_has_the_limit_that_it_is_given():
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    torch.set_num_threads(1)
    from orsched.runner.capacity import footprint
    from orsched.runner.measuring import WorkerOptions, largest_batches
    from tests.runner.torch_workers import torch_worker

    refused("no limit of its own", largest_batches, WorkerOptions(device="cpu"), 64, None)
    worker = torch_worker("tiny", slots=5, length=31)
    bytes_of = footprint(worker)
    assert bytes_of.weights == sum(p.nbytes for p in worker.model.parameters())
    assert worker.slots.bytes() <= bytes_of.token * 5 * 32
    limit = bytes_of.weights + bytes_of.token * 5 * 32
    fits = capacity.fits_on(WorkerSettings(), 64, bytes_of, limit)
    found = memory_profile([31], lambda length: bytes_of.slots(length, limit), fits)
    assert found == [Found(31, 5, 5)]
    batches = largest_batches(WorkerOptions(device="cpu", length=31), 64, limit)
    assert [item.length for item in batches] == [7, 15, 31]
    assert batches[-1] == Found(31, 5, 5)
    assert [item.slots for item in batches] == sorted((b.slots for b in batches), reverse=True)


def test_running_out_of_memory_is_an_answer_and_other_errors_are_not():
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")

    def fail(error):
        raise error

    assert within_memory(lambda: 3) == 3
    for error in (
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("cuBLAS: CUBLAS_STATUS_ALLOC_FAILED"),
    ):
        assert within_memory(lambda error=error: fail(error)) is None
    refused("shape", within_memory, lambda: fail(RuntimeError("wrong shape")), kind=RuntimeError)


SIZES = {"17": 17, "2GiB": 2**31, "3 MiB": 3 * 2**20, "1KiB": 1024}


@pytest.mark.parametrize("text", SIZES)
def test_bytes_are_read(text):
    assert capacity.read_bytes(text) == SIZES[text]


@pytest.mark.parametrize("text", ["", "0", "-1", "2GB", "1.5GiB", "GiB", "9" * 30])
def test_what_is_no_number_of_bytes_is_refused(text):
    refused("", capacity.read_bytes, text)
