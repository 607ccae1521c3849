"""Labelled prompts and the corpus with a stated law; their files, and where a mistake is."""

import json
import sys

import numpy as np
import pytest

from orsched.common.errors import MissingDependencyError
from orsched.prediction import (
    DOMAINS,
    LabelledPrompts,
    make_corpus,
    read_labelled_prompts,
    read_prompts,
)
from orsched.prediction.data import (
    PARTS,
    SIGMA,
    Prompt,
    Task,
    _request,
    joined,
    write_labelled_prompts,
)
from orsched.prediction.readers import count_by_rule, token_counter
from tests.refusals import place, refusal


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_prompts_conversations_and_instructions(tmp_path):
    talk = [
        {"role": "system", "content": "s"},
        {"from": "human", "value": "a"},
        {"from": "gpt", "value": "b"},
        {"role": "user", "content": "c"},
    ]
    rows = [
        {"prompt": "hello", "output_tokens": 7},
        {"prompt": "hello", "output_tokens": 9.0},  # a second sample
        {"conversation": talk, "output_tokens": 3},
        {"conversation": [*talk, {"role": "assistant", "content": "one two"}]},
        {"instruction": "Add", "input": "1 2", "output": "the sum is 3"},
        {"instruction": "Add", "input": "", "output": "x"},
        {"prompt": "no reply", "output_tokens": 0},
    ]
    found = read_labelled_prompts(write(tmp_path / "p.jsonl", *rows))
    asked = [Prompt("c", ("a",), ("b",), "s")] * 2
    assert found.prompts == [*[Prompt("hello")] * 2, *asked, Prompt("Add\n\n1 2"), Prompt("Add")]
    assert found.output_tokens.tolist() == [7, 9, 3, 2, 4, 1]
    assert found.conversations is None


def test_a_list_in_one_json_file_and_prompts_alone_with_names(tmp_path):
    rows = [{"instruction": "a", "output": "b c"}, {"instruction": "d", "output": "e"}]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    found = read_labelled_prompts(tmp_path / "a.json")
    assert found.output_tokens.tolist() == [2, 1]
    path = write(tmp_path / "p.jsonl", {"prompt": "a", "id": "x"}, {"prompt": "b", "id": 2})
    assert read_prompts(path) == ([Prompt("a"), Prompt("b")], ["x", "2"])
    path = write(tmp_path / "q.jsonl", {"prompt": "a", "id": "x"}, {"prompt": "b"})
    assert read_prompts(path)[1] is None


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_what_is_written_is_read(tmp_path, suffix):
    data = make_corpus("chat", 200, 4)
    write_labelled_prompts(data, tmp_path / "c.jsonl")
    if suffix == "parquet":
        pa, pq = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
        rows = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    found = read_labelled_prompts(tmp_path / f"c.{suffix}")
    assert found.prompts == data.prompts
    assert found.output_tokens.tolist() == data.output_tokens.tolist()
    assert found.conversations == data.conversations


BAD = [
    ({"output_tokens": 3}, "prompt"), ({"prompt": 5, "output_tokens": 3}, "prompt"),
    ({"prompt": "a"}, "output_tokens"), ({"prompt": "a", "output_tokens": -1}, "output_tokens"),
    ({"prompt": "a", "output_tokens": 1.5}, "output_tokens"),
    ({"prompt": "a", "output_tokens": True}, "output_tokens"),
    ({"prompt": "a", "output_tokens": "7"}, "output_tokens"),
    ({"prompt": "a", "output_tokens": 2**40}, "output_tokens"),
    ({"prompt": "a", "output": 7}, "output"),
    ({"instruction": "a", "input": 7, "output": "x"}, "input"),
    ({"conversation": [], "output_tokens": 1}, "conversation"),
    ({"conversation": "hi", "output_tokens": 1}, "conversation"),
    ({"conversation": ["hi"], "output_tokens": 1}, "conversation[0]"),
    ({"conversation": [{"role": "judge", "content": "x"}]}, "conversation[0].role"),
    ({"conversation": [{"role": ["user"], "content": "x"}]}, "conversation[0].role"),
    ({"conversation": [{"role": "user"}], "output_tokens": 1}, "conversation[0].content"),
    ({"conversation": [{"role": "assistant", "content": "x"}]}, "conversation"),
    ({"prompt": "a", "output_tokens": 1, "conversation_id": [1]}, "conversation_id"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "field"), BAD)
def test_a_wrong_row_is_named_with_its_field(tmp_path, row, field):
    path = write(tmp_path / "p.jsonl", {"prompt": "a", "output_tokens": 3}, row)
    error = refusal(read_labelled_prompts, path)
    assert (error.file, *place(error)) == (str(path), 2, field)


@pytest.mark.parametrize(("raw", "row"), [
    (b"", None), (b"\xff\xfe\x00", None),
    (b'{"prompt": "a", "output_tokens": 3}\n{"prompt": "a", "outp', 2),
    (b'{"prompt": "a", "output_tokens": NaN}\n', 1),
    (b'{"prompt": "a", "prompt": "b", "output_tokens": 1}\n', 1),
    (b"7\n", 1), (b"[[1]]", 0), (b'[{"prompt": "a"', None), (b'{"prompt": ' + b"[" * 100_000, 1),
    (b'{"prompt": "a", "output_tokens": 1' + b"0" * 5000 + b"}", 1),
    (b'{"prompt": "no reply", "output_tokens": 0}\n', None),
])  # fmt: skip
def test_a_file_that_is_damaged_is_refused_with_its_place(tmp_path, raw, row):
    path = tmp_path / "p.jsonl"
    path.write_bytes(raw)
    error = refusal(read_labelled_prompts, path)
    assert (error.file, error.row) == (str(path), row)


@pytest.mark.parametrize("raw", [b"", b"PAR1 not a table", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_parquet_file_that_is_damaged_is_refused(tmp_path, raw):
    pytest.importorskip("pyarrow")
    path = tmp_path / "p.parquet"
    path.write_bytes(raw)
    assert refusal(read_labelled_prompts, path).file == str(path)


def test_the_rule_of_tokens_by_hand():
    assert count_by_rule("") == 0
    assert count_by_rule("the sum is 3") == 4
    assert count_by_rule("extraordinary, isn't it?") == 3 + 1 + 1 + 1 + 1 + 1 + 1
    assert count_by_rule("a\n\n  b") == 3
    assert count_by_rule("日本 12") == 4


def test_a_tokenizer_s_file_counts_where_there_is_one(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    for folder in (tmp_path, tmp_path / "tokenizer.json"):
        assert token_counter(folder)("a extraordinary a") == 3
    (tmp_path / "tokenizer.json").write_text('{"version": ')
    assert "not a tokenizer" in str(refusal(token_counter, tmp_path))
    assert "does not exist" in str(refusal(token_counter, tmp_path / "other.json"))


def test_a_tokenizer_without_its_package_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingDependencyError, match=r"orsched\[runner\]"):
        token_counter(tmp_path)


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
