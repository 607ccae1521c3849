"""``orsched predict proxy``, and the other commands with what it wrote."""

from __future__ import annotations

import json

import pytest

from orsched.cli.commands import run
from orsched.cli.predict_proxy_command import _HEADS, _KINDS
from orsched.predict import make_corpus
from orsched.predict.corpus import write_labelled_prompts
from orsched.predict.proxies.recipes import RECIPES, SSJF_HEADS

pytest.importorskip("torch")
pytest.importorskip("transformers")


def test_the_choices_are_those_of_the_library():
    assert tuple(RECIPES) == _KINDS
    assert SSJF_HEADS == _HEADS


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_labelled_prompts(make_corpus("math", 60, 3), tmp_path / "math.jsonl")
    return tmp_path


def test_trained_evaluated_and_carried_on(here, capsys):
    words = ["predict", "proxy", "math.jsonl", "-o", "m.json", "--kind", "distilbert_mico",
             "--device", "cpu", "--checkpoint", "c.safetensors", "--format", "json"]  # fmt: skip
    assert run(words) == 0
    shown = capsys.readouterr()
    (row,) = json.loads(shown.out)
    assert (row["kind"], row["head"]) == ("distilbert_mico", "buckets")
    assert "trained on 60 rows" in shown.err
    first = (here / "m.json").read_bytes(), (here / "m.safetensors").read_bytes()
    assert run([*words, "-q"]) == 0
    assert first == ((here / "m.json").read_bytes(), (here / "m.safetensors").read_bytes())
    capsys.readouterr()
    assert run(["predict", "evaluate", "m.json", "math.jsonl", "--held-out",
                "--format", "json"]) == 0  # fmt: skip
    (again,) = json.loads(capsys.readouterr().out)
    assert again["pinball"] == row["pinball"]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--checkpoint", "m.safetensors"], "--checkpoint"),
        (["--checkpoint", "c.pt"], "--checkpoint"),
        (["--model", "nowhere"], "model"),
        (["--kind", "bert_ranker", "--head", "classes"], "head"),
        (["--device", "abacus"], "device"),
    ],
)
def test_a_wrong_word_is_named(words, field, here, capsys):
    assert run(["predict", "proxy", "math.jsonl", "-o", "m.json", *words]) == 2
    assert field in capsys.readouterr().err
    assert not (here / "m.json").exists()
