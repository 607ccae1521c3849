"""Rows of tokens: the last ones of a conversation, by a rule or by a tokenizer's file."""

import json
import re
import zlib

import numpy as np
import pytest

from orsched.prediction import Prompt
from orsched.prediction.proxies import token_rows as module
from orsched.prediction.proxies.token_rows import RuleTokens, token_rows, tokens_of
from tests.refusals import refusal


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
