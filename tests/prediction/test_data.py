"""Labelled prompts, their parts by conversation, and the corpus with a stated law."""

import numpy as np
import pytest

from orsched.prediction import DOMAINS, LabelledPrompts, make_corpus
from orsched.prediction.corpus import SIGMA, Task, _request
from orsched.prediction.data import PARTS, joined
from tests.refusals import refusal

NAMES = [name for name, _ in PARTS]


def test_parts_are_all_rows_and_keep_conversations_and_samples_of_a_prompt_together():
    data = make_corpus("chat", 3000, 1)
    parts = [data.part(name, 7) for name in NAMES]
    assert sum(map(len, parts)) == len(data)
    talks = [set(part.conversations) for part in parts]
    assert sum(map(len, talks)) == len(set.union(*talks))
    assert [len(part) / len(data) for part in parts] == pytest.approx([0.6, 0.2, 0.2], abs=0.04)
    assert len(set(data.conversations)) < 0.8 * len(data)  # else the test says nothing
    prompts = [f"question {i // 4}" for i in range(400)]
    data = LabelledPrompts(prompts, np.arange(1, 401))
    for name in NAMES:
        part = data.part(name, 0)
        texts = [p.text for p in part.prompts]
        assert all(texts.count(text) == 4 for text in set(texts))


def test_a_part_is_the_same_in_any_order_and_beside_other_files_and_another_with_another_seed():
    data, other = make_corpus("code", 400, 1), make_corpus("math", 300, 1)
    back = data.rows(np.arange(400)[::-1])
    wanted = set(map(id, data.part("test", 3).prompts))
    assert set(map(id, back.part("test", 3).prompts)) == wanted
    both = joined([other, data])
    assert set(map(id, both.part("test", 3).prompts)) >= wanted
    assert set(map(id, data.part("test", 4).prompts)) != wanted


@pytest.mark.parametrize(("arguments", "field"), [
    ((["a"], [1, 2]), "output_tokens"), ((["a"], [0]), "output_tokens"),
    ((["a"], [1.5]), "output_tokens"), (([3], [1]), "prompts"), ((5, [1]), "prompts"),
    ((["a"], [1], ["x", "y"]), "conversations"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(arguments, field):
    assert refusal(LabelledPrompts, *arguments).field == field


def test_an_unknown_part_and_an_unknown_domain_are_refused():
    assert "train" in str(refusal(make_corpus("chat", 5).part, "validation", 0))
    assert "chat" in str(refusal(make_corpus, "chats"))


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_corpus_is_the_same_with_the_same_seed(domain):
    first, again, other = (make_corpus(domain, 100, seed) for seed in (3, 3, 4))
    assert first.prompts == again.prompts
    assert first.output_tokens.tolist() == again.output_tokens.tolist()
    assert first.prompts != other.prompts
    assert len(first) == 100


def test_the_corpus_keeps_its_law(monkeypatch):
    """Of one task and one text the logarithms have the stated middle and deviation."""
    monkeypatch.setitem(DOMAINS, "chat", (Task("Say {n}.", 100, each=20, most=2),))
    data = make_corpus("chat", 6000, 0)
    first = np.array([not p.asked and "brief" not in p.text for p in data.prompts])
    brief = np.array([not p.asked and "brief" in p.text for p in data.prompts])
    logs = np.log(data.output_tokens)
    assert logs[first].mean() == pytest.approx(np.log(140), abs=0.03)
    assert logs[first].std() == pytest.approx(SIGMA, abs=0.02)
    assert logs[brief].mean() == pytest.approx(np.log(56), abs=0.05)
    assert brief.sum() / (brief | first).sum() == pytest.approx(0.2, abs=0.03)
    assert max(len(p.asked) for p in data.prompts) == 3


def test_a_request_s_middle_follows_its_text():
    task = Task("{body}", 10, share=2.0)
    random = np.random.default_rng(0)
    for _ in range(20):
        text, middle = _request((task,), random)
        words = len(text.removesuffix(" Be brief.").split())
        assert middle in (10 + 2 * words, pytest.approx(0.4 * (10 + 2 * words)))
