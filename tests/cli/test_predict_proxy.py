"""``orsched predict proxy``, and the other commands with what it wrote."""

from __future__ import annotations

import json

import pytest

from orsched.cli.commands import run
from orsched.cli.predict_commands import _HEADS, _PROXIES
from orsched.prediction import evaluate, load_predictor, make_corpus, read_labelled_prompts
from orsched.prediction.corpus import write_labelled_prompts
from orsched.prediction.proxies.network import RECIPES, SSJF_HEADS

pytest.importorskip("torch")
pytest.importorskip("transformers")


def test_the_choices_are_those_of_the_library():
    assert tuple(RECIPES) == _PROXIES
    assert SSJF_HEADS == _HEADS


@pytest.fixture
def here(tmp_path, monkeypatch):
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    write_labelled_prompts(make_corpus("math", 60, 3), tmp_path / "math.jsonl")
    yield tmp_path
    torch.set_num_threads(before)


def test_trained_evaluated_and_carried_on(here, capsys):
    words = ["predict", "proxy", "math.jsonl", "-o", "m.json", "--kind", "distilbert_mico",
             "--device", "cpu", "--checkpoint", "c.safetensors", "--format", "json"]  # fmt: skip
    assert run(words) == 0
    shown = capsys.readouterr()
    (row,) = json.loads(shown.out)
    assert (row["kind"], row["head"]) == ("distilbert_mico", "buckets")
    assert "trained on 60 rows" in shown.err
    first = (here / "m.json").read_bytes(), (here / "m.safetensors").read_bytes()
    assert run(words) == 0
    assert first == ((here / "m.json").read_bytes(), (here / "m.safetensors").read_bytes())
    data = read_labelled_prompts(here / "math.jsonl").part("test", 0)
    again = evaluate(load_predictor(here / "m.json"), data, latency=False)
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
def test_a_wrong_word_is_named(words, field, here, refused):
    refused(field, "predict proxy math.jsonl -o m.json", *words)
    assert not (here / "m.json").exists()
