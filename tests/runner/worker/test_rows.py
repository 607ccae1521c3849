"""The rows of a round are its requests: nothing depends on which slots they have."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
pytest.importorskip("transformers", reason="the extra 'runner' is not installed")

from orsched.common.errors import InputError  # noqa: E402
from orsched.runner.worker import kernels  # noqa: E402
from orsched.runner.worker.layout import (  # noqa: E402
    Chunk,
    Run,
    runs_of,
)
from tests.runner.torch_workers import torch_worker  # noqa: E402

PACKED, SCATTERED = (0, 1, 2, 3, 4), (18, 3, 11, 4, 7)
PROMPTS = ([1, 2, 3], [9] * 20, [4, 5], [6] * 11, [8] * 3)


def served(slots: tuple[int, ...], graphs: str, family: str = "tiny") -> tuple[list, list, list]:
    """Return tokens, rows of each forward pass, and graphs that were replayed."""
    worker = torch_worker(family, 20, 40, dtype="float64", graphs=graphs, graph_seconds=3600)
    worker.prepare()
    rows, keys = [], []
    forward, replay = worker.forward, worker.graphs.replay
    worker.forward = lambda tokens, at: rows.append(len(tokens)) or forward(tokens, at)
    worker.graphs.replay = lambda size: keys.append(size) or replay(size)
    worker.prefill([Chunk(at, 0, p, True) for at, p in zip(slots[:4], PROMPTS, strict=False)])
    worker.decode(slots[:4], rounds=3)
    worker.step([Chunk(slots[4], 0, PROMPTS[4], True)], slots[:3])
    worker.decode([slots[k] for k in (4, 0, 3)], rounds=8)
    tokens = [worker.take(at, len(p)).tolist() for at, p in zip(slots, PROMPTS, strict=True)]
    return tokens, rows, keys


@pytest.mark.parametrize("family", ["tiny", "tiny-gpt-neo"])
@pytest.mark.parametrize("copied", [0, 10**9], ids=["views", "copies"])
@pytest.mark.usefixtures("small_graphs")
@pytest.mark.parametrize("graphs", ["off", "rehearse"])
def test_scattered_slots_do_as_packed_ones(
    graphs: str, copied: int, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "COPIED_BYTES", copied)
    packed, scattered = (served(slots, graphs, family) for slots in (PACKED, SCATTERED))
    assert packed == scattered
    if graphs == "off":
        sizes = [len(p) for p in PROMPTS]
        assert packed[1] == [sum(sizes[:4]), *[4] * 3, 3 + sizes[4], *[3] * 8]
    else:
        assert len(packed[2]) == 13


def test_neighbours_attend_in_one_call_as_far_as_the_longest_of_them() -> None:
    lengths = [3, 70, 5, 0, 120, 127, 128]
    assert runs_of([0, 1, 2, 4], lengths, 200) == (Run(0, 0, 3, 128), Run(3, 4, 1, 128))
    assert runs_of([5, 6], lengths, 200) == (Run(0, 5, 2, 192),)
    assert runs_of([6], lengths, 150) == (Run(0, 6, 1, 150),)
    assert runs_of([], lengths, 150) == ()


def test_a_slot_that_is_full_takes_no_token() -> None:
    """It would write into the first row of the next one."""
    worker = torch_worker("tiny", slots=2, length=8)
    worker.prefill([Chunk(0, 0, [1] * 7, True), Chunk(1, 0, [2] * 3, True)])
    worker.decode([0])
    with pytest.raises(InputError, match="full"):
        worker.decode([0])
    assert worker.slots.lengths.tolist() == [8, 3, 0]
