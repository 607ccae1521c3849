"""Training of proxy models: rows of tokens, targets, all heads, early stopping, going on."""

import json
import re
import zlib

import numpy as np
import pytest

from orsched.prediction import LabelledPrompts, Prompt, evaluate, train_proxy
from orsched.prediction.data import by_prompt
from orsched.prediction.predictor import LEVELS
from orsched.prediction.proxies import token_rows as module
from orsched.prediction.proxies.network import (
    HEADS,
    SSJF_HEADS,
    Phase,
    loss_of,
    sample_loss,
    targets_for,
)
from orsched.prediction.proxies.token_rows import RuleTokens, token_rows, tokens_of
from tests.refusals import refusal


def weights(predictor):
    return {name: t.numpy() for name, t in predictor.network.state_dict().items()}


def same(one, two):
    return all(np.array_equal(one[name], two[name]) for name in one.keys() | two.keys())


@pytest.mark.parametrize("head", SSJF_HEADS)
def test_ssjfs_two_phases_end_to_end(head, trained, rows):
    words = []
    found = trained("bert_ssjf", head, progress=words.append)
    lengths = found.predict(rows.prompts[:20])
    assert np.isfinite(lengths.values).all()
    assert found.network["head"][-1].out_features == {"classes": 5, "binary": 2}.get(head, 1)
    assert [w[:7] for w in words] == ["phase 1"] * 2 + ["phase 2"] * 2
    held = rows.part("calibrate", 2)
    below = (held.output_tokens[:, None] <= found.predict(held.prompts).values).mean(axis=0)
    # Shifted on these rows: each quantile covers its share, up to one row and ties.
    assert np.allclose(below, found.levels, atol=0.06)


def test_micos_training_end_to_end(models, rows):
    found = models["distilbert_mico"]
    assert found.network["head"][-1].out_features == 10
    figures = evaluate(found, rows.part("test", 2), latency=False)
    assert all(np.isfinite(value) for value in figures.values())


def test_the_second_phase_leaves_the_encoder_as_it_is(trained):
    head, data, start = "regression_mse", separable(), Phase(1, 1e-3)
    first = trained("bert_ssjf", head, data=data, phases=(start,))
    both = trained("bert_ssjf", head, data=data, phases=(start, Phase(2, 3e-3, frozen=True)))
    one, two = weights(first), weights(both)
    assert all(np.array_equal(one[n], two[n]) for n in one if n.startswith("encoder."))
    assert not same(one, two)


KEYWORDS = ("brief", "essay")


def separable(count=240):
    """Return prompts where one word decides the length."""
    random = np.random.default_rng(5)
    long = random.integers(2, size=count)
    texts = [f"please write {KEYWORDS[flag]} number {place}" for place, flag in enumerate(long)]
    lengths = np.where(long, 400, 20) + random.integers(1, 10, size=count)
    return LabelledPrompts(texts, lengths)


@pytest.mark.parametrize(("kind", "head"), [
    *(("bert_ssjf", head) for head in SSJF_HEADS), ("distilbert_mico", None), ("bert_ranker", None),
])  # fmt: skip
def test_what_one_word_decides_is_learnt(kind, head, trained):
    found = trained(kind, head, data=separable(), phases=(Phase(16, 3e-3),), patience=16)
    short, long = found.predict([f"please write {w} number 7" for w in KEYWORDS]).quantile(0.5)
    assert long > 5 * short, (short, long)


@pytest.mark.parametrize(
    ("kind", "head"), [("bert_ssjf", "regression_l1"), ("bert_ssjf", "regression_mse")]
)
def test_samples_of_one_prompt_are_one_row_of_a_batch(kind, head, trained, rows):
    """Each reply twice is what it is once: the same steps, the same losses."""
    places = np.repeat(np.arange(len(rows)), 2)
    once, twice = (
        weights(trained(kind, head, data=data, phases=(Phase(1, 3e-3),)))
        for data in (rows, rows.rows(places))
    )
    for name, values in once.items():
        # AdamW makes a step of a gradient that rounding alone keeps from 0.
        assert np.abs(values - twice[name]).mean() < 1e-4, name


def test_other_conversations_are_no_samples_of_a_prompt():
    named = LabelledPrompts(["a", "b", "a", "a"], [1, 2, 3, 4], ["x", "x", "y", "x"])
    prompts, lengths, counts = by_prompt(named)
    assert [p.text for p in prompts] == ["a", "b", "a"]
    assert (lengths.tolist(), counts.tolist()) == ([1, 4, 2, 3], [2, 1, 1])
    prompts, lengths, counts = by_prompt(LabelledPrompts(["a", "b", "a"], [1, 2, 3]))
    assert [p.text for p in prompts] == ["a", "b"]
    assert (lengths.tolist(), counts.tolist()) == ([1, 3, 2], [2, 1])


def test_the_loss_of_samples_by_hand():
    """Prompts with lengths 1 and 3, and 5: each prompt counts once."""
    import torch

    outputs = torch.tensor([[2.0], [2.0], [4.0]], requires_grad=True)
    labels, shares = torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0.5, 0.5, 1.0])
    assert sample_loss("regression_l1", outputs, labels, shares).item() == pytest.approx(1.0)
    assert sample_loss("regression_mse", outputs, labels, shares).item() == pytest.approx(1.0)
    pairs = [(3, 1, 0.0, 0.25), (5, 1, 2.0, 0.5), (5, 3, 2.0, 0.5)]
    wanted = sum(w * np.log1p(np.exp(-gap)) for _, _, gap, w in pairs) / 1.25
    assert sample_loss("ranks", outputs, labels, shares).item() == pytest.approx(wanted)
    scores = torch.tensor([[0.0, 1.0], [0.0, 1.0], [2.0, 0.0]])
    classes, heavy = torch.tensor([0.0, 1.0, 0.0]), torch.tensor([1.0, 3.0])
    each = [np.log1p(np.exp(1)), np.log1p(np.exp(-1)), np.log1p(np.exp(-2))]
    wanted = (0.5 * each[0] + 1.5 * each[1] + each[2]) / (0.5 + 1.5 + 1)
    found = sample_loss("binary", scores, classes, shares, heavy)
    assert found.item() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("head", [*SSJF_HEADS, "buckets", "ranks"])
def test_with_one_sample_each_it_is_the_plain_loss(head):
    import torch

    random = np.random.default_rng(3)
    outputs = torch.from_numpy(random.normal(size=(9, 5)))
    labels = torch.from_numpy(random.integers(0, 5, 9).astype(float))
    heavy = torch.from_numpy(random.uniform(1, 2, 5)) if head == "classes" else None
    one = loss_of(head, outputs, labels, heavy)
    other = sample_loss(head, outputs, labels, torch.ones(9, dtype=torch.float64), heavy)
    assert one.item() == pytest.approx(other.item())


def test_the_ranker_keeps_its_order(models, rows):
    found = models["bert_ranker"]
    scores = found.outputs(rows.prompts[:60])[:, 0]
    logs = found.log_quantiles(rows.prompts[:60])[:, 3]
    assert found.line[1] > 0
    assert np.array_equal(np.argsort(scores, kind="stable"), np.argsort(logs, kind="stable"))


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(trained, models):
    import torch

    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    again = trained("bert_ssjf")
    assert torch.equal(before, torch.random.get_rng_state()), "global state of torch was touched"
    assert same(weights(models["bert_ssjf"]), weights(again))
    assert not same(weights(again), weights(trained("bert_ssjf", seed=3)))


class Killed(BaseException):
    pass


def killed_after(count):
    left = iter(range(count - 1))

    def say(words):
        if next(left, None) is None:
            raise Killed

    return say


@pytest.mark.parametrize("kind", ["bert_ssjf", "distilbert_mico"])
@pytest.mark.parametrize("after", [1, 3, 5, 8])
def test_what_goes_on_after_a_kill_ends_with_the_same_bits(kind, after, trained, models, tmp_path):
    path = tmp_path / "c.safetensors"
    with pytest.raises(Killed):
        trained(kind, checkpoint=path, every=2, progress=killed_after(after))
    words = []
    found = trained(kind, checkpoint=path, every=2, progress=words.append)
    assert path.exists()
    # The first word of an epoch comes after its checkpoint, the last before it.
    assert words[0] == "carried on from the checkpoint"
    assert same(weights(models[kind]), weights(found))
    assert np.array_equal(models[kind].shift, found.shift)


def test_a_finished_training_is_not_repeated(trained, models, tmp_path):
    path = tmp_path / "c.safetensors"
    trained("bert_ssjf", checkpoint=path)
    words = []
    found = trained("bert_ssjf", checkpoint=path, progress=words.append)
    assert words == ["carried on from the checkpoint"]
    assert same(weights(models["bert_ssjf"]), weights(found))


def test_a_phase_ends_when_held_out_rows_get_no_better(trained):
    words = []
    trained("bert_ssjf", phases=(Phase(40, 0.5),), patience=1, progress=words.append)
    assert len(words) < 40
    losses = [float(text.rsplit(" ", 1)[1]) for text in words]
    assert losses[-1] >= min(losses[:-1])


def test_truncated_checkpoints_and_those_of_another_training_are_refused(trained, tmp_path):
    path, options = tmp_path / "c.safetensors", {"phases": (Phase(1, 1e-3),)}
    trained("bert_ssjf", checkpoint=path, **options)
    raw = path.read_bytes()
    for change in ({"seed": 3}, {"batch": 8}, {"head": "classes"}):
        error = refusal(trained, "bert_ssjf", checkpoint=path, **options, **change)
        assert "other rows, seed or numbers" in str(error)
    for share in (0.0, 0.001, 0.5, 0.999):
        path.write_bytes(raw[: int(share * len(raw))])
        error = refusal(trained, "bert_ssjf", checkpoint=path, **options)
        assert error.file == str(path)
        assert "start" in error.remedy


@pytest.mark.parametrize(("options", "field"), [
    ({"kind": "bert"}, "kind"), ({"head": "ranks"}, "head"), ({"seed": -1}, "seed"),
    ({"device": "abacus"}, "device"), ({"batch": 0}, "batch"), ({"every": 0}, "every"),
    ({"below": 2}, "below"), ({"model": {"vocab_size": -1}}, "vocab_size"),
    ({"model": {"hidden_size": 10}}, "hidden_size"), ({"below": 3}, "output_tokens"),
])  # fmt: skip
def test_a_wrong_option_is_named(options, field, rows):
    assert refusal(train_proxy, rows, **{"device": "cpu", **options}).field == field


LENGTHS = np.random.default_rng(3).geometric(0.01, 2000)
LEVEL = np.array(LEVELS)


@pytest.mark.parametrize("longest", [10, 97, 100, 511])
def test_micos_buckets_are_the_papers_floor(longest):
    lengths = np.arange(1, longest + 1)
    found = targets_for("buckets", lengths).labels(lengths)
    by_paper = np.minimum(np.floor(lengths / (longest / 10) + 1e-12), 9)
    # Buckets that no length falls into have no number.
    assert np.array_equal(np.unique(by_paper, return_inverse=True)[1], found)


def test_ssjfs_classes_end_at_the_percentiles_and_two_at_the_median():
    five, two = targets_for("classes", LENGTHS), targets_for("binary", LENGTHS)
    assert np.array_equal(five.edges, np.percentile(LENGTHS, (25, 50, 75, 99)))
    shares = np.bincount(five.labels(LENGTHS).astype(int)) / len(LENGTHS)
    assert np.allclose(shares, (0.25, 0.25, 0.25, 0.24, 0.01), atol=0.02)
    assert two.outputs() == 2
    assert abs(two.labels(LENGTHS).mean() - 0.5) < 0.02


@pytest.mark.parametrize("head", ["classes", "binary", "buckets"])
def test_a_sure_class_has_its_quantiles_inside_it(head):
    targets = targets_for(head, LENGTHS)
    ends = np.concatenate(([1.0], targets.edges, [targets.longest]))
    outputs = np.where(np.eye(targets.outputs()), 50.0, 0.0)
    found = np.exp(targets.logs(outputs, LEVEL))
    for place, row in enumerate(found):
        assert (row >= ends[place] - 1e-6).all()
        assert (row <= ends[place + 1] + 1e-6).all()


def test_true_shares_give_true_quantiles_at_the_edges():
    targets = targets_for("classes", LENGTHS)
    shares = np.bincount(targets.labels(LENGTHS).astype(int)) / len(LENGTHS)
    found = np.exp(targets.logs(np.log(shares)[None], np.cumsum(shares)[:-1]))[0]
    assert np.allclose(found, np.percentile(LENGTHS, (25, 50, 75, 99)))


@pytest.mark.parametrize("head", [h for h in HEADS if h.startswith(("regression", "ordinal"))])
def test_the_exact_answer_gives_the_length_back(head):
    targets = targets_for(head, LENGTHS)
    found = np.exp(targets.logs(targets.labels(LENGTHS)[:, None], LEVEL))
    wanted = LENGTHS
    if head.startswith("ordinal"):
        wanted = targets.middles[targets.labels(LENGTHS).astype(int)]
        assert (np.diff(targets.middles) > 0).all()
    assert np.allclose(found, wanted[:, None])


def test_lengths_in_one_class_are_refused():
    assert "one class" in str(refusal(targets_for, "classes", np.full(50, 7)))


def test_the_last_tokens_of_all_rounds_are_kept_between_marks():
    tokens = RuleTokens(1000)
    prompt = Prompt("last words 7", ("first question",), ("long answer",), "be kind")
    whole = tokens("be kind first question long answer last words 7")
    assert whole[-1] == 3 + zlib.crc32(b"7") % 997
    (row,) = token_rows([prompt], tokens, 512)
    assert row.tolist() == [1, *whole, 2]
    (cut,) = token_rows([prompt], tokens, 6)
    assert cut.tolist() == [1, *whole[-4:], 2]


def test_the_rule_knows_no_case_and_no_blanks_and_padding_is_masked():
    tokens = RuleTokens(8)
    assert tokens("Ab  12,\n") == tokens("ab 1 2 ,")
    assert set(tokens("a b c d e f g é \ud800 漢 1 2 3")) <= set(range(3, 8))
    assert tokens("") == []
    numbers, mask = module.padded([np.array([1, 5, 2]), np.array([1, 2])], 0)
    assert numbers.tolist() == [[1, 5, 2], [1, 2, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0]]


def word_file(marks=("[PAD]", "[CLS]", "[SEP]", "[UNK]")):
    words = {word: place for place, word in enumerate((*marks, "hello", "world"))}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
    cut = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    split = {"type": "Whitespace"}
    document = {"version": "1.0", "model": model, "pre_tokenizer": split, "truncation": cut}
    return json.dumps(document)


def test_a_tokenizers_file_is_used_whole_without_its_own_cut(tmp_path):
    (tmp_path / "tokenizer.json").write_text(word_file())
    tokens = tokens_of(module.tokenizer_text(tmp_path), 64)
    assert tokens("hello world hello") == [4, 5, 4]
    assert (tokens.pad, tokens.first, tokens.last) == (0, 1, 2)
    assert tokens_of(tokens.source(), 64)("world x") == [5, 3]


@pytest.mark.parametrize(("text", "most", "problem"), [
    ("{}", 64, "not a tokenizer"), (word_file(("[UNK]",)), 64, "no .PAD"),
    (word_file()[:90], 64, "not a token"), (word_file(), 5, "the model 5"),
])  # fmt: skip
def test_another_file_is_refused(text, most, problem):
    error = refusal(tokens_of, text, most)
    assert re.search(problem, str(error))
    assert (error.field, bool(error.remedy)) == ("tokenizer", True)
