"""What kernels are asked for: one call for all requests of a step does what each alone does."""

import pytest
import torch

from benchmarks.reproductions.tokens import TOLERANCES, Case, differences
from orsched.runner.worker import attention
from orsched.runner.worker.kernels import DenseChunks, DenseRounds, FlashChunks, FlashRounds
from orsched.runner.worker.language_model import Shape
from orsched.runner.worker.layout import Chunk, Slots
from tests.refusals import refused
from tests.runner.torch_workers import torch_worker


def flash(
    query, key, value, queries, keys, longest, reach, dropout, is_causal, debug, *, scale,
    window_size_left=None, window_size_right=None, seqused_k=None,
):  # fmt: skip
    """The operator, by its definition: the last query of a request sees its last key."""
    assert {x.dtype for x in (queries, keys, seqused_k)} == {torch.int32}
    assert (dropout, is_causal, debug) == (0.0, True, False)
    assert len(queries) == len(keys) == len(seqused_k) + 1
    sizes = (queries[1:] - queries[:-1]).tolist()
    assert longest >= max(sizes)
    assert int(seqused_k.max()) <= reach
    groups, found = query.shape[1] // key.shape[1], torch.zeros_like(query)
    if query.dtype == torch.bfloat16:  # sums are in float32
        query, key, value = query.float(), key.float(), value.float()
    for i, size in enumerate(sizes):
        begin, used = int(keys[i]), int(seqused_k[i])
        q = query[int(queries[i]) :][:size].transpose(0, 1)
        k, v = (x[begin : begin + used].repeat_interleave(groups, 1) for x in (key, value))
        scores = q @ k.permute(1, 2, 0) * scale
        at = torch.arange(used - size, used)[:, None]
        place = torch.arange(used)
        hidden = place > at
        if window_size_left is not None:
            assert window_size_right == 0
            hidden |= place < at - window_size_left
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        found[int(queries[i]) :][:size] = (weights @ v.transpose(0, 1)).transpose(0, 1)
    return found, None


def with_flash(worker):
    """Let a worker ask for the kernels that a GPU has."""
    own = worker.attention
    own.rounds, own.chunks = FlashRounds(worker.slots), FlashChunks(worker.slots)
    own.rounds.operator = own.chunks.operator = flash
    worker.graphs.step = worker.slots.length
    return worker


@pytest.mark.usefixtures("small_graphs")
@pytest.mark.parametrize(("family", "graphs"), [
    ("tiny", "off"), ("tiny-gpt2", "off"), ("tiny-gpt-neo", "off"), ("tiny", "rehearse"),
])  # fmt: skip
def test_one_call_for_all_requests_attends_as_each_alone(family, graphs):
    length, seed, longest = (160, 4, 30) if graphs == "off" else (64, 6, 20)
    settings = {"dtype": "float64", "seed": 4}
    dense, one = (torch_worker(family, 4, length, graphs=x, **settings) for x in ("off", graphs))
    with_flash(one).prepare()
    case = {"requests": 5, "longest": longest}
    assert Case(seed, **case).serve(one) == Case(seed, **case).serve(dense)
    assert (one.graphs.replays > 0) == (graphs == "rehearse")


def test_each_part_of_a_step_is_told_of_its_requests_only():
    worker = with_flash(torch_worker("tiny", slots=3, length=64))
    worker.prefill([Chunk(slot, 0, [5] * 9, True) for slot in range(3)])
    worker.decode([0, 2])
    rounds, chunks = worker.attention.rounds, worker.attention.chunks
    assert (rounds.used.tolist(), rounds.keys.tolist()) == ([10, 10], [0, 128, 0])
    worker.step([Chunk(1, 9, [4, 4, 4], True)], [0])
    assert (rounds.used.tolist(), rounds.queries.tolist()) == ([11], [0, 1])
    assert (chunks.used.tolist(), chunks.queries.tolist()) == ([12], [0, 3])
    assert (chunks.keys.tolist(), chunks.longest) == ([64, 0], 3)


def test_the_operator_takes_the_arguments_that_it_is_given():
    schema = torch.ops.aten._flash_attention_forward.default._schema
    names = [argument.name for argument in schema.arguments]
    assert names[:10] == [
        "query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k",
        "dropout_p", "is_causal", "return_debug_mask",
    ]  # fmt: skip
    assert {"scale", "window_size_left", "window_size_right", "seqused_k"} <= set(names[10:])


def test_without_a_gpu_the_kernel_is_not_chosen():
    worker = torch_worker("tiny", slots=1, length=16, dtype="bfloat16")
    assert not FlashRounds.serves(worker.slots)
    assert isinstance(worker.attention.rounds, DenseRounds)
    assert isinstance(worker.attention.chunks, DenseChunks)


def test_attention_makes_its_masks_once_a_step():
    worker = torch_worker("tiny-gpt-neo", slots=3, length=64)
    worker.prefill([Chunk(0, 0, [3] * 20, True), Chunk(1, 0, [3] * 5, False)])
    assert len(worker.attention.chunks.masks) == 1  # one prompt is longer than the window
    worker.step([Chunk(1, 5, [3] * 5, True)], [0])
    assert len(worker.attention.chunks.masks) == 2  # with a window and without
    assert len(worker.attention.rounds.masks) == 2


@pytest.mark.parametrize("part", [(FlashRounds, DenseRounds), (FlashChunks, DenseChunks)])
@pytest.mark.parametrize("fault", ["none", "a key too few", "no window", "no operator"])
def test_a_kernel_that_attends_otherwise_is_found(fault, part):
    def operator(*given, **named):
        if fault == "a key too few":
            named["seqused_k"] = (named["seqused_k"] - 1).clamp(min=1)
        elif fault == "no window":
            named["window_size_left"] = None
        return flash(*given, **named)

    for heads, size in ((2, 16), (8, 128)):
        like = torch.zeros((), dtype=torch.bfloat16)
        slots = Slots(Shape(1, heads, size, 0, 0), 4, 96, like)
        fast, dense = (kind(slots) for kind in part)
        if fault == "no operator":  # it is there, but not for this device: the error says so
            refused("CPU", attention.agrees, fast, dense, slots, kind=RuntimeError)
            continue
        fast.operator = operator
        assert attention.agrees(fast, dense, slots) == (fault == "none")


class Wrong(DenseRounds):
    """Attends to a key too many."""

    def begin(self, layout):
        super().begin(layout._replace(positions=layout.positions + 1))


class Broken(DenseRounds):
    def __init__(self, slots):
        raise SystemError("no compiler")


@pytest.mark.parametrize(
    ("kernel", "said"), [(Wrong, "attends otherwise"), (Broken, "no compiler")]
)
def test_the_next_kernel_serves_where_one_cannot_be_trusted(kernel, said, monkeypatch):
    class Other(DenseRounds):
        """One that attends as the dense one does."""

    slots = Slots(Shape(1, 2, 16, 0, 0), 4, 96, torch.zeros(()))
    monkeypatch.setattr(attention, "DecodeRounds", kernel)
    with pytest.warns(RuntimeWarning, match=f"slower: {kernel.__name__}: .*{said}"):
        assert type(attention.rounds_kernel(slots)) is DenseRounds
    monkeypatch.setattr(attention, "DecodeRounds", Other)
    assert type(attention.rounds_kernel(slots)) is Other


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("family", ["tiny", "tiny-gpt2", "tiny-gpt-neo"])
def test_on_a_gpu_tokens_differ_only_where_logits_nearly_tie(family):
    assert FlashRounds.serves(torch_worker(family, 2, 32, "cuda", "bfloat16").slots)
    _, differing = differences(family, "bfloat16", 2, device="cuda")
    assert [each for each in differing if each.margin >= TOLERANCES["bfloat16"]] == []
