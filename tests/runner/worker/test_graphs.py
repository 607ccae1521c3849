"""Rounds as graphs: which there are, that the host is not asked, that captures change nothing."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
pytest.importorskip("transformers", reason="the extra 'runner' is not installed")

from benchmarks.reproductions.tokens import Case, differences  # noqa: E402
from orsched.runner.worker.chunk import Chunk  # noqa: E402
from orsched.runner.worker.graphs import WARM_UPS, row_buckets  # noqa: E402
from orsched.runner.worker.torch_worker import REACH_STEP, TorchWorker  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("slots", [1, 2, 5, 64, 200, 2000])
def test_rows_are_rounded_up_by_at_most_a_quarter(slots: int) -> None:
    buckets = row_buckets(slots)
    assert buckets == sorted(set(buckets))
    assert (buckets[0], buckets[-1]) == (1, slots)
    for rows in range(1, slots + 1):
        above = next(each for each in buckets if each >= rows)
        assert above <= rows + (rows - 1) // 4
    assert len(buckets) <= 45


@pytest.mark.parametrize("family", ["tiny", "tiny-gpt-neo"])
def test_rounds_as_graphs_yield_the_tokens_of_generate(family: str) -> None:
    _, differing = differences(family, "float64", 5, graphs="rehearse")
    assert differing == []


def test_a_graph_serves_all_rounds_of_its_rows_and_reach() -> None:
    worker = TorchWorker("tiny", slots=6, length=160, graphs="rehearse")
    worker.prefill([Chunk(slot, 0, [slot + 1] * 8, True) for slot in range(6)])
    worker.decode(range(6), rounds=REACH_STEP - 8)
    assert list(worker.rounds.graphs) == [(6, REACH_STEP)]
    worker.decode([0, 3], rounds=2)
    assert list(worker.rounds.graphs) == [(6, REACH_STEP), (4, 2 * REACH_STEP)]
    assert worker.rounds.replays == REACH_STEP - 6
    assert worker.forward_passes == REACH_STEP - 5  # captures are no steps
    assert worker.prepare() == len(worker.rounds.rows) * 3
    assert worker.prepare(10) == len(worker.rounds.rows) * 3


def test_a_capture_changes_nothing_that_is_read_again() -> None:
    plain, captured = (TorchWorker("tiny", slots=4, length=64, dtype="float64") for _ in range(2))
    captured.rounds.mode = "rehearse"
    for worker in (plain, captured):
        worker.prefill([Chunk(0, 0, [1, 2, 3], True), Chunk(2, 0, [9] * 20, False)])
        worker.decode([0], rounds=3)
    captured.prepare()
    for worker in (plain, captured):
        worker.step([Chunk(2, 20, [7, 8], True)], [0])
        worker.decode([0, 2], rounds=4)
    for slot, prompt in ((0, 3), (2, 22)):
        found = captured.take(slot, prompt).tolist()
        assert found == plain.take(slot, prompt).tolist()
        assert len(found) == (9, 5)[slot // 2]


def test_a_round_asks_the_host_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would make the host wait for a GPU, or break a capture, fails here."""
    worker = TorchWorker("tiny", slots=4, length=64)
    worker.prefill([Chunk(slot, 0, [slot + 1] * 3, True) for slot in range(3)])

    def waits(*_: object, **__: object) -> None:
        raise AssertionError("the host would wait")

    for name in ("item", "tolist", "numpy", "cpu", "nonzero", "__bool__", "__int__", "__index__"):
        monkeypatch.setattr(torch.Tensor, name, waits)
    for name in ("tensor", "from_numpy", "nonzero", "masked_select"):
        monkeypatch.setattr(torch, name, waits)
    worker._active = (0, 1, 2)  # the transfer of the mask is before the round
    with torch.inference_mode():
        worker.rounds.run(3, 64)
    monkeypatch.undo()
    assert worker.slots.lengths.tolist() == [3, 3, 3, 0]


def test_rounds_without_graphs_have_as_many_rows_as_there_are() -> None:
    worker = TorchWorker("tiny", slots=12, length=64)
    seen = []
    worker.rounds.run = lambda rows, reach: seen.append((rows, reach))
    worker.decode([0, 8])
    assert (seen, worker.rounds.graphs, worker.prepare()) == ([(9, 64)], {}, 0)


def test_a_device_that_refuses_graphs_runs_rounds_as_they_are() -> None:
    worker = TorchWorker("tiny", slots=4, length=64, graphs="rehearse")
    worker.prefill([Chunk(slot, 0, [slot + 1] * 3, True) for slot in range(3)])

    def refuse(rows: int, reach: int) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    worker.rounds._capture = refuse
    with pytest.warns(RuntimeWarning, match="do not run as graphs: operation not permitted"):
        worker.decode([0, 1, 2], rounds=3)
    assert (worker.rounds.mode, worker.rounds.replays, worker.prepare()) == ("off", 0, 0)
    assert [len(worker.take(slot, 3)) for slot in range(3)] == [4] * 3


class FakeCuda:
    """What a capture asks of torch.cuda, written down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[tuple] = []
        self.now: object = "main"
        self.fails = False
        fake = self

        class Stream:
            def __init__(self, name: object) -> None:
                self.name = "side" if isinstance(name, torch.device) else name

            def wait_stream(self, other: Stream) -> None:
                fake.log.append((self.name, "waits for", other.name))

        @contextmanager
        def stream(which: Stream):
            before, fake.now = fake.now, which.name
            try:
                yield
            finally:
                fake.now = before

        @contextmanager
        def graph(which: object, pool: object, stream: Stream, capture_error_mode: str):
            fake.now = stream.name
            fake.log.append(("capture", pool, stream.name, capture_error_mode))
            if fake.fails:
                raise RuntimeError("not permitted")
            yield
            fake.now = "main"

        class Graph:
            def replay(self) -> None:
                fake.log.append(("replay", fake.now))

        pools = iter("abc")
        for name, value in {
            "Stream": Stream,
            "stream": stream,
            "graph": graph,
            "CUDAGraph": Graph,
            "graph_pool_handle": lambda: next(pools),
            "current_stream": lambda device: Stream(fake.now),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)


def test_a_capture_warms_up_beside_the_steps_and_shares_one_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = TorchWorker("tiny", slots=4, length=64)
    worker.prefill([Chunk(slot, 0, [slot + 1] * 3, True) for slot in range(3)])
    cuda = FakeCuda(monkeypatch)
    worker.rounds.mode = "capture"
    run = worker.rounds.run
    worker.rounds.run = lambda rows, reach: (
        cuda.log.append(("round", rows, reach, cuda.now, worker.slots.active.tolist())),
        run(rows, reach),
    )
    for active in ([0, 1], [1], [0, 1, 2]):
        worker.decode(active)
    captured = [
        entry
        for rows in (2, 3)
        for entry in (
            ("side", "waits for", "main"),
            *[("round", rows, 64, "side", [0] * 4)] * WARM_UPS,
            ("main", "waits for", "side"),
            ("capture", "a", "side", "thread_local"),
            ("round", rows, 64, "side", [0] * 4),
            *[("replay", "main")] * (4 - rows),
        )
    ]
    assert cuda.log == captured
    assert worker.slots.active.tolist() == [1, 1, 1, 0]
    assert worker.slots.lengths.tolist() == [3, 3, 3, 0]  # replays of fakes do nothing
    cuda.fails = True
    with pytest.warns(RuntimeWarning, match="not permitted"):
        worker.decode([0, 1, 2, 3])
    assert cuda.now == "main"
    assert worker.slots.lengths.tolist() == [4, 4, 4, 1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_captured_rounds_yield_what_the_rounds_themselves_do(dtype: str) -> None:
    served = [
        Case(3).serve(TorchWorker("tiny", 4, 160, "cuda", dtype, graphs=mode))
        for mode in ("capture", "rehearse")
    ]
    assert served[0] == served[1]
