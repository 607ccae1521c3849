"""What kernels are asked for: one call for all requests of a step does what each alone does."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
pytest.importorskip("transformers", reason="the extra 'runner' is not installed")

from benchmarks.reproductions.tokens import TOLERANCES, Case, differences  # noqa: E402
from orsched.runner.worker.chunk import Chunk  # noqa: E402
from orsched.runner.worker.dense import DenseAttention  # noqa: E402
from orsched.runner.worker.flash import FlashAttention, agrees, serves  # noqa: E402
from orsched.runner.worker.language_model import Shape  # noqa: E402
from orsched.runner.worker.slots import Slots  # noqa: E402
from orsched.runner.worker.torch_worker import TorchWorker  # noqa: E402


def flash(
    query, key, value, queries, keys, longest, reach, dropout, is_causal, debug, *, scale,
    window_size_left=None, window_size_right=None, seqused_k=None,
):  # fmt: skip
    """The operator, by its definition: the last query of a request sees its last key."""
    assert {x.dtype for x in (queries, keys, seqused_k)} == {torch.int32}
    assert (dropout, is_causal, debug) == (0.0, True, False)
    assert len(queries) == len(keys) == len(seqused_k) + 1
    sizes = (queries[1:] - queries[:-1]).tolist()
    assert longest == max(sizes)
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


def with_flash(worker: TorchWorker) -> TorchWorker:
    """Let a worker ask for the kernel that a GPU has."""
    kernel = FlashAttention(worker.slots)
    kernel.operator = flash
    worker.attention.kernel = kernel
    worker.rounds.step = None
    return worker


@pytest.mark.parametrize("family", ["tiny", "tiny-gpt2", "tiny-gpt-neo"])
def test_one_call_for_all_requests_attends_as_each_alone(family: str) -> None:
    dense, one = (TorchWorker(family, 4, 160, dtype="float64", seed=4) for _ in range(2))
    found = Case(4, requests=5, longest=30).serve(with_flash(one))
    assert found == Case(4, requests=5, longest=30).serve(dense)


def test_a_slot_that_yields_nothing_reads_one_key() -> None:
    worker = with_flash(TorchWorker("tiny", slots=3, length=64))
    worker.prefill([Chunk(slot, 0, [5] * 9, True) for slot in range(3)])
    worker.decode([0, 2])
    assert worker.attention.kernel.used.tolist() == [10, 1, 10]
    worker.step([Chunk(1, 10, [4, 4, 4], True)], [0])
    assert worker.attention.kernel.used.tolist() == [11, 13]
    assert worker.attention.kernel.keys.tolist() == [0, 64, 0]
    assert worker.attention.kernel.queries.tolist() == [0, 1, 4]


def test_the_operator_takes_the_arguments_that_it_is_given() -> None:
    schema = torch.ops.aten._flash_attention_forward.default._schema
    names = [argument.name for argument in schema.arguments]
    assert names[:10] == [
        "query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k",
        "dropout_p", "is_causal", "return_debug_mask",
    ]  # fmt: skip
    assert {"scale", "window_size_left", "window_size_right", "seqused_k"} <= set(names[10:])


def test_without_a_gpu_the_kernel_is_not_chosen() -> None:
    worker = TorchWorker("tiny", slots=1, length=16, dtype="bfloat16")
    assert not serves(worker.slots)
    assert not worker.attention.kernel.any_reach


def test_attention_makes_its_masks_once_a_step() -> None:
    worker = TorchWorker("tiny-gpt-neo", slots=3, length=64)
    worker.prefill([Chunk(0, 0, [3] * 20, True), Chunk(1, 0, [3] * 5, False)])
    assert len(worker.attention.kernel.masks) == 1  # one prompt is longer than the window
    worker.step([Chunk(1, 5, [3] * 5, True)], [0])
    assert len(worker.attention.kernel.masks) == 4  # the round and the chunk, each with and without


@pytest.mark.parametrize("fault", ["none", "a key too few", "no window", "no operator"])
def test_a_kernel_that_attends_otherwise_is_found(fault: str) -> None:
    def operator(*given, **named):
        if fault == "a key too few":
            named["seqused_k"] = (named["seqused_k"] - 1).clamp(min=1)
        elif fault == "no window":
            named["window_size_left"] = None
        return flash(*given, **named)

    for heads, size in ((2, 16), (8, 128)):
        slots = Slots(Shape(1, heads, size, 0, 0), 3, 32, torch.zeros((), dtype=torch.bfloat16))
        fast = FlashAttention(slots)
        if fault == "no operator":  # it is there, but not for this device: the error says so
            with pytest.raises(RuntimeError, match="CPU"):
                agrees(fast, DenseAttention(slots), slots)
            continue
        fast.operator = operator
        assert agrees(fast, DenseAttention(slots), slots) == (fault == "none")


def test_a_chunk_beside_a_round_is_not_written_over_by_its_own_slot() -> None:
    """The round's rows include slot 0, which yields nothing: its place is the chunk's first."""
    worker = TorchWorker("tiny", slots=2, length=32)
    worker.prefill([Chunk(0, 0, [1, 2, 3], False), Chunk(1, 0, [4, 5], True)])
    worker.step([Chunk(0, 3, [6, 7], True)], [1])
    places = worker.attention.places.tolist()
    assert places == [64, 32 + 2, 3, 4]
    assert worker.slots.rows[0][0].shape[0] == 65


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("family", ["tiny", "tiny-gpt2", "tiny-gpt-neo"])
def test_on_a_gpu_tokens_differ_only_where_logits_nearly_tie(family: str) -> None:
    assert serves(TorchWorker(family, 2, 32, "cuda", "bfloat16").slots)
    _, differing = differences(family, "bfloat16", 2, device="cuda")
    assert [each for each in differing if each.margin >= TOLERANCES["bfloat16"]] == []
