"""The rows of a round are its requests: nothing depends on which slots they have."""

import random

import pytest

from orsched.runner.worker import kernels
from orsched.runner.worker.layout import Chunk, Run, runs_of
from orsched.runner.worker.torch_worker import in_waves
from tests.refusals import refused
from tests.runner.torch_workers import torch_worker

PACKED, SCATTERED = (0, 1, 2, 3, 4), (18, 3, 11, 4, 7)
PROMPTS = ([1, 2, 3], [9] * 20, [4, 5], [6] * 11, [8] * 3)


def served(slots, graphs, family="tiny"):
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
def test_scattered_slots_do_as_packed_ones(graphs, copied, family, monkeypatch):
    monkeypatch.setattr(kernels, "COPIED_BYTES", copied)
    packed, scattered = (served(slots, graphs, family) for slots in (PACKED, SCATTERED))
    assert packed == scattered
    if graphs == "off":
        sizes = [len(p) for p in PROMPTS]
        assert packed[1] == [sum(sizes[:4]), *[4] * 3, 3 + sizes[4], *[3] * 8]
    else:
        assert len(packed[2]) == 13


def test_neighbours_attend_in_one_call_as_far_as_the_longest_of_them():
    lengths = [3, 70, 5, 0, 120, 127, 128]
    assert runs_of([0, 1, 2, 4], lengths, 200) == (Run(0, 0, 3, 128), Run(3, 4, 1, 128))
    assert runs_of([5, 6], lengths, 200) == (Run(0, 5, 2, 192),)
    assert runs_of([6], lengths, 150) == (Run(0, 6, 1, 150),)
    assert runs_of([], lengths, 150) == ()


def test_a_slot_that_is_full_takes_no_token():
    """It would write into the first row of the next one."""
    worker = torch_worker("tiny", slots=2, length=8)
    worker.prefill([Chunk(0, 0, [1] * 7, True), Chunk(1, 0, [2] * 3, True)])
    worker.decode([0])
    refused("full", worker.decode, [0])
    assert worker.slots.lengths.tolist() == [8, 3, 0]


SIZE = 4


def worker(stored=8):
    """Return a small worker, in double precision so that no logits tie."""
    return torch_worker("tiny", 4, 64, dtype="float64", stored_blocks=stored, block_tokens=SIZE)


def prompt(seed, tokens):
    return random.Random(seed).choices(range(512), k=tokens)


def alone(tokens, rounds):
    """Return what a request yields on a worker without reuse."""
    plain = worker(stored=0)
    plain.prefill([Chunk(0, 0, tokens, True)])
    plain.decode([0], rounds)
    return plain.take(0, len(tokens)).tolist()


def test_a_stored_prefix_yields_the_tokens_of_one_that_is_computed():
    shared, reusing = prompt(1, 2 * SIZE), worker()
    first, second = shared + prompt(2, 5), shared + prompt(3, 7)
    reusing.prefill([Chunk(0, 0, first, True, saves=[(0, 5), (1, 2)])])
    reusing.release(0)
    reusing.prefill([Chunk(0, 0, prompt(4, 30), True)])  # the slot is written over
    reusing.step([Chunk(3, 2 * SIZE, second[2 * SIZE :], True, loads=[(0, 5), (1, 2)])], [0])
    reusing.decode([0, 3], 6)
    assert reusing.take(3, len(second)).tolist() == alone(second, 6)
    assert reusing.take(0, 30).tolist() == alone(prompt(4, 30), 7)
    empty = worker()  # without what was saved the tokens differ
    empty.step([Chunk(3, 2 * SIZE, second[2 * SIZE :], True, loads=[(0, 5), (1, 2)])], [])
    empty.decode([3], 6)
    assert empty.take(3, len(second)).tolist() != alone(second, 6)


def test_requests_of_one_step_share_what_the_first_of_them_computes():
    shared, reusing = prompt(1, 2 * SIZE), worker()
    texts = [shared + prompt(seed, seed) for seed in (3, 5, 6)]
    blocks = [(0, 1), (1, 0)]
    chunks = [
        Chunk(2, 0, texts[0], True, saves=blocks),
        Chunk(0, 2 * SIZE, texts[1][2 * SIZE :], True, loads=blocks),
        Chunk(1, 2 * SIZE, texts[2][2 * SIZE :], True, loads=blocks),
    ]
    assert [len(wave) for wave in in_waves(chunks)] == [1, 2]
    reusing.prefill([Chunk(3, 0, prompt(9, 9), True)])
    reusing.step(chunks, [3])
    reusing.decode([0, 1, 2, 3], 5)
    for slot, text in zip((2, 0, 1), texts, strict=True):
        assert reusing.take(slot, len(text)).tolist() == alone(text, 5)
    assert reusing.take(3, 9).tolist() == alone(prompt(9, 9), 6)


def test_a_chain_of_reuse_in_one_step_takes_a_wave_each():
    chain = [
        Chunk(0, 0, [1], False, saves=[(0, 0)]),
        Chunk(1, 4, [1], False, loads=[(0, 0)], saves=[(1, 1)]),
        Chunk(2, 8, [1], False, loads=[(0, 0), (1, 1)]),
        Chunk(3, 0, [1], False),
    ]
    assert [[chunk.slot for chunk in wave] for wave in in_waves(chain)] == [[0, 3], [1], [2]]


def test_what_a_request_that_leaves_has_cached_comes_back_with_it():
    text, reusing = prompt(7, 2 * SIZE + 1), worker()
    reusing.prefill([Chunk(0, 0, text, True)])
    reusing.decode([0], 4)
    yielded = reusing.take(0, len(text)).tolist()
    leaving = Chunk(0, 0, [], False, saves=[(0, 0), (1, 1), (2, 2)])
    assert leaving.only_saves
    reusing.save([leaving])
    reusing.release(0)
    reusing.prefill([Chunk(0, 0, prompt(4, 30), True)])
    whole = text + yielded
    again = Chunk(1, 3 * SIZE, whole[3 * SIZE :], True, loads=leaving.saves)
    reusing.step([again], [])
    reusing.decode([1], 3)
    assert yielded + reusing.take(1, len(whole)).tolist() == alone(text, 8)
