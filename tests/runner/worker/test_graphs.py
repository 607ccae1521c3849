"""Rounds as graphs: which there are, that the host is not asked, that captures change nothing."""

import pytest
import torch

from benchmarks.reproductions.tokens import Case, differences
from orsched.runner.devices.device import TorchDevice
from orsched.runner.worker import graphs
from orsched.runner.worker.graphs import MOST_TOKENS, PROMPTS, WARM_UPS, Size
from orsched.runner.worker.layout import REACH_STEP, Chunk, Extent, nothing, unpack
from tests.runner.stand_in_gpu import Streams
from tests.runner.torch_workers import torch_worker

SIZES = {
    "row": (45, lambda rows: 1 + rows + (rows - 1) // 4, [1, 2, 5, 64, 200, 2000]),
    "token": (45, lambda tokens: tokens + max(16, tokens / 4), [16, 17, 100, 512]),
    "mixed_row": (20, lambda rows: rows + max(8, rows / 2), [1, 8, 9, 64, 200, 2000]),
}
"""Of each kind of sizes: how many there are at most, and below what one is rounded up."""


@pytest.mark.parametrize(("kind", "most"), [(k, most) for k in SIZES for most in SIZES[k][2]])
def test_sizes_are_few_and_rounded_up_by_little(kind, most):
    buckets, (count, below, _) = getattr(graphs, f"{kind}_buckets")(most), SIZES[kind]
    assert buckets == sorted(set(buckets))
    assert (buckets[0] > 0, buckets[-1]) == (True, most)
    assert len(buckets) <= count
    for size in range(1, most + 1):
        assert next(each for each in buckets if each >= size) < below(size)


@pytest.mark.usefixtures("small_graphs")
@pytest.mark.parametrize("family", ["tiny", "tiny-gpt-neo"])
def test_steps_as_graphs_yield_the_tokens_of_generate(family):
    _, differing = differences(family, "float64", 5, graphs="rehearse")
    assert differing == []


def prepared(slots=4, length=64, dtype="float64"):
    worker = torch_worker("tiny", slots, length, dtype=dtype, graphs="rehearse")
    assert worker.prepare() == len(worker.graphs.graphs) > 0
    return worker


def test_a_graph_serves_all_steps_of_its_size():
    worker = prepared(6, 160, "float32")
    seen = []
    worker.graphs.replay = lambda size: (seen.append(size), worker.graphs.graphs[size].replay())
    worker.prefill([Chunk(slot, 0, [slot + 1] * 8, True) for slot in range(6)])
    worker.decode(range(6), rounds=REACH_STEP - 8)
    worker.decode([0, 3], rounds=2)
    worker.step([Chunk(1, 64, [3] * 5, True)], [2, 4, 5])
    rounds = [Size(6, REACH_STEP)] * (REACH_STEP - 8) + [Size(2, 2 * REACH_STEP)] * 2
    assert seen == [Size(0, 0, 48, 8), *rounds, Size(6, 160, 16, 8)]
    assert (worker.padded_rows, worker.padded_tokens) == (3, 11)
    assert worker.forward_passes == REACH_STEP - 4  # captures are no steps


def test_a_step_that_no_graph_fits_runs_as_it_is():
    worker = prepared(70, 24)
    chunks = [Chunk(slot, 0, [slot + 1] * 9, True) for slot in range(70)]
    worker.prefill(chunks[:57])  # 513 tokens
    worker.prefill([c._replace(tokens=[7]) for c in chunks[:65]])  # 65 prompts
    assert (worker.graphs.replays, worker.padded_tokens) == (0, 0)
    worker.prefill(chunks[:56])
    assert (worker.graphs.replays, worker.padded_tokens) == (1, MOST_TOKENS - 504)
    assert PROMPTS[-1] == 64


@pytest.mark.parametrize("short", [{"graph_sizes": 0}, {"graph_bytes": 0}])
def test_captures_keep_to_their_budget(short, monkeypatch):
    worker = torch_worker("tiny", slots=4, length=64, graphs="rehearse", **short)
    worker.prefill([Chunk(0, 0, [1, 2, 3], True)])
    worker.decode([0])
    assert (worker.graphs.graphs, worker.graphs.replays) == (
        {},
        0,
    )  # before captures there are none
    held = iter(range(10**6))
    monkeypatch.setattr(worker.graphs, "_held_bytes", lambda: next(held))
    assert worker.prepare() == 0
    assert worker.graphs.left_out == len(list(worker.graphs._wanted(64)))
    worker.decode([0])
    assert (worker.graphs.replays, len(worker.take(0, 3))) == (0, 3)


def test_which_sizes_have_graphs_follows_from_sizes_alone():
    """The most sizes are the first that are wanted; a calibration says which there are."""
    some, every = (
        torch_worker("tiny", slots=4, length=64, graphs="rehearse", graph_sizes=most)
        for most in (3, 512)
    )
    wanted = list(some.graphs._wanted(64))
    assert (some.prepare(), some.prepare(), every.prepare()) == (3, 3, len(wanted))
    assert list(some.graphs.graphs) == wanted[:3] == [Size(rows, 64) for rows in (4, 3, 2)]
    expected = {"graphs": 3, "left_out": len(wanted) - 3, "rows": [2, 3, 4], "reach": [64],
                "tokens": [0], "prompts": [0]}  # fmt: skip
    assert TorchDevice(some).facts["graphs"] == expected
    assert every.graphs.sizes()["prompts"] == [0, *PROMPTS]


def test_a_capture_changes_nothing_that_is_read_again():
    plain, captured = (
        torch_worker("tiny", slots=4, length=64, dtype="float64", graphs=mode)
        for mode in ("off", "rehearse")
    )
    for worker in (plain, captured):
        worker.prefill([Chunk(0, 0, [1, 2, 3], True), Chunk(2, 0, [9] * 20, False)])
        worker.decode([0], rounds=3)
    captured.prepare()
    for worker in (plain, captured):
        worker.step([Chunk(2, 20, [7, 8], True)], [0])
        worker.decode([0, 2], rounds=4)
    assert captured.graphs.replays == 5
    for slot, prompt in ((0, 3), (2, 22)):
        found = captured.take(slot, prompt).tolist()
        assert (found, len(found)) == (plain.take(slot, prompt).tolist(), (9, 5)[slot // 2])


def test_padding_is_nobodys():
    """Beside a slot that is full, and one that waits: neither is written to."""
    plain, padded = torch_worker("tiny", slots=12, length=16, dtype="float64"), prepared(12, 16)
    kept = []
    for worker in (plain, padded):
        worker.prefill([Chunk(11, 0, [5] * 16, True), Chunk(4, 0, [6] * 3, True)])
        worker.prefill([Chunk(slot, 0, [slot] * 2, True) for slot in (0, 7, 9)])
        worker.step([Chunk(2, 0, [8] * 3, False)], [0, 7, 9])
        worker.decode([0, 2, 4, 7, 9], rounds=2)
        rows = [each[:-1].clone() for pair in worker.slots.rows for each in pair]
        kept.append([*rows, worker.slots.lengths, worker.written[:-1]])
    assert padded.graphs.replays == 5
    for one, other in zip(*kept, strict=True):
        torch.testing.assert_close(one, other)
    assert int(padded.slots.lengths[-1]) == 0


def test_a_step_asks_the_host_for_nothing(monkeypatch):
    """What would make the host wait for a GPU, or break a capture, fails here."""
    worker = torch_worker("tiny", slots=4, length=64)
    worker.prefill([Chunk(slot, 0, [slot + 1] * 3, True) for slot in range(3)])
    size = Size(2, 64, 16, 8)
    extent = Extent(16, 8, 8)
    numbers = torch.from_numpy(nothing(worker.slots, extent))
    worker._numbers[: len(numbers)].copy_(numbers)

    def waits(*_, **__):
        raise AssertionError("the host would wait")

    for name in ("item", "tolist", "numpy", "cpu", "nonzero", "__bool__", "__int__", "__index__"):
        monkeypatch.setattr(torch.Tensor, name, waits)
    for name in ("tensor", "from_numpy", "nonzero", "masked_select"):
        monkeypatch.setattr(torch, name, waits)
    worker.slots.order[:2] = worker.slots.begins[:2] // 64  # slots 0 and 1
    with torch.inference_mode():
        worker._graphed(Size(2, 64))
        worker._graphed(size)
    monkeypatch.undo()
    assert worker.slots.lengths.tolist() == [5, 5, 3, 0, 0]
    assert unpack(worker._numbers, extent).spans is None


def test_a_device_that_refuses_graphs_runs_steps_as_they_are():
    worker = torch_worker("tiny", slots=4, length=64, graphs="rehearse")
    worker.prefill([Chunk(slot, 0, [slot + 1] * 3, True) for slot in range(3)])

    def refuse(size):
        raise RuntimeError("operation not permitted when stream is capturing")

    worker.graphs._capture = refuse
    with pytest.warns(RuntimeWarning, match="do not run as graphs: operation not permitted"):
        assert worker.prepare() == 0
    worker.decode([0, 1, 2], rounds=3)
    assert (worker.graphs.mode, worker.graphs.replays, worker.prepare()) == ("off", 0, 0)
    assert [len(worker.take(slot, 3)) for slot in range(3)] == [4] * 3


def test_a_capture_warms_up_beside_the_steps_and_shares_one_pool(monkeypatch):
    worker = torch_worker("tiny", slots=2, length=64)
    worker.prefill([Chunk(slot, 0, [slot + 1] * 3, True) for slot in range(2)])
    cuda = Streams(monkeypatch)
    worker.graphs.mode = "capture"
    run = worker.graphs.run
    worker.graphs.run = lambda size: (
        cuda.log.append(("step", size, cuda.now, worker.slots.order.tolist())),
        run(size),
    )
    assert not worker.graphs.with_chunks  # the dense kernel has no graphs of chunks
    assert worker.prepare() == 2
    worker.decode([1])
    expected = [
        entry
        for rows in (2, 1)
        for entry in (
            ("side", "waits for", "main"), *[("step", Size(rows, 64), "side", [2, 2])] * WARM_UPS,
            ("main", "waits for", "side"), ("capture", "a", "side", "thread_local"),
            ("step", Size(rows, 64), "side", [2, 2]),
        )
    ]  # fmt: skip
    assert cuda.log == [*expected, ("replay", "main")]
    assert worker.slots.order.tolist() == [1, 2]
    assert worker.slots.lengths.tolist() == [3, 3, 0]  # replays of fakes do nothing
    cuda.fails = True
    worker.graphs.graphs.clear()
    with pytest.warns(RuntimeWarning, match="not permitted"):
        worker.prepare()
    assert cuda.now == "main"
    worker.decode([0])
    assert worker.slots.lengths.tolist() == [4, 3, 0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_captured_steps_yield_what_the_steps_themselves_do(dtype):
    served = []
    for mode in ("capture", "rehearse"):
        worker = torch_worker("tiny", 4, 160, "cuda", dtype, graphs=mode)
        assert worker.prepare()
        served.append(Case(3).serve(worker))
        assert worker.graphs.replays
    assert served[0] == served[1]
