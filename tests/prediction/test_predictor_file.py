"""Predictors in files, and applied to instances."""

import copy
import json
import random
import subprocess
import sys

import numpy as np
import pytest

from orsched.common.errors import InputError
from orsched.instances.catalog import load_named
from orsched.prediction import KINDS, load_predictor, predict_instance, save_predictor
from orsched.prediction.predictor_file import load_with_seed
from tests.refusals import refusal


@pytest.fixture(scope="module")
def documents(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("predictors")
    for kind, predictor in fitted.items():
        save_predictor(predictor, folder / f"{kind}.json", seed=2)
    return {kind: (folder / f"{kind}.json").read_text() for kind in fitted}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_loaded_predicts_and_is_saved_the_same(kind, fitted, corpus, documents, tmp_path):
    path = tmp_path / "m.json"
    path.write_text(documents[kind])
    found, seed = load_with_seed(path)
    assert seed == 2
    one, two = (p.predict(corpus.prompts[:300]) for p in (fitted[kind], found))
    assert np.array_equal(one.values, two.values)
    assert one.longest == two.longest
    save_predictor(found, tmp_path / "again.json", seed=2)
    assert (tmp_path / "again.json").read_text() == documents[kind]


def refused(tmp_path, text):
    path = tmp_path / "m.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    error = refusal(load_predictor, path)
    assert error.file == str(path)
    assert error.remedy
    return error


@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_is_refused(kind, share, documents, tmp_path):
    text = documents[kind]
    refused(tmp_path, text[: min(int(share * len(text)), len(text) - 3)])


HOSTILE = [
    ("lexical", {"features": ["characters"]}, "features"),  # an older version's
    ("lexical", {"levels": [0.5]}, "trees"),
    ("prompt_length", {"edges": []}, "logs"),
    ("online", {"base": {}}, "kind"),
]
WRONG = {  # each value is named by its own field
    "lexical": {
        "format": ["orsched/instance", None], "version": [2, 0], "kind": ["os.system", ["lexical"]],
        "seed": [-1], "trees": [None], "shift": [[0.0], None], "levels": [[0.5, 0.5], [], "x"],
        "longest": [0, "9", 1e300],
    },
    "constant": {"logs": [[1.0], [[1.0]] * 7]},
    "prompt_length": {"edges": [[2.0, 1.0]], "logs": [3]},
    "online": {"rate": [0], "base": [None], "shift": [[0.0]]},
}  # fmt: skip
HOSTILE += [
    (kind, {field: value}, field)
    for kind, fields in WRONG.items()
    for field, values in fields.items()
    for value in values
]


@pytest.mark.parametrize(("kind", "values", "field"), HOSTILE)
def test_a_field_that_is_wrong_is_named(kind, values, field, documents, tmp_path):
    error = refused(tmp_path, json.dumps({**json.loads(documents[kind]), **values}))
    assert error.field == field


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_is_missing_is_named(kind, documents, tmp_path):
    document = json.loads(documents[kind])
    for name in document.keys() - {"seed"}:
        rest = {key: value for key, value in document.items() if key != name}
        assert refused(tmp_path, json.dumps(rest)).field == name


def test_values_that_overflow_have_a_prediction_or_are_refused(documents, tmp_path):
    document = json.loads(documents["constant"])
    document["logs"] = [1e308] * 7
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    assert np.isfinite(load_predictor(path).predict("a").values).all()
    document["logs"] = [float("nan")] * 7
    refused(tmp_path, json.dumps(document))
    document = json.loads(documents["online"])
    document["base"] = copy.deepcopy(document)
    assert refused(tmp_path, json.dumps(document)).field == "base.kind"


def test_a_pickle_and_a_foreign_file_are_refused_and_nothing_is_run(tmp_path):
    import pickle

    class Hostile:
        def __reduce__(self):
            return (open, (str(tmp_path / "run"), "w"))

    refused(tmp_path, pickle.dumps(Hostile()))
    refused(tmp_path, b"\x08\0\0\0\0\0\0\0{}      ")  # safetensors
    refused(tmp_path, "[1, 2]")
    refused(tmp_path, "[" * 100_000)
    assert not (tmp_path / "run").exists()


def mutated(document, source):
    """Return a document with one value, somewhere in it, that is another."""
    document = copy.deepcopy(document)
    here = document
    while True:
        keys = list(here) if isinstance(here, dict) else range(len(here))
        key = source.choice(list(keys))
        inner = here[key]
        if isinstance(inner, (dict, list)) and inner and source.random() < 0.9:
            here = inner
            continue
        here[key] = source.choice([None, -1, 0, 2**70, 1e308, "x", [], {}, True, 0.5, [[1]]])
        return document


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_file_predicts_finite_lengths_or_is_refused(kind, documents, tmp_path):
    source, document = random.Random(7), json.loads(documents[kind])
    path, refusals = tmp_path / "m.json", 0
    for _ in range(150 if kind != "online" else 60):
        path.write_text(json.dumps(mutated(document, source)))
        try:
            found = load_predictor(path)
        except InputError:
            refusals += 1
            refused(tmp_path, path.read_text())
            continue
        lengths = found.predict(["a", "Explain this in detail?"])
        assert np.isfinite(lengths.values).all()
        assert np.isfinite(lengths.mean()).all()
    assert refusals > 10


def test_saving_something_else_is_refused(tmp_path):
    refusal(save_predictor, {"kind": "lexical"}, tmp_path / "m.json")
    assert not (tmp_path / "m.json").exists()


def test_loading_and_predicting_import_neither_scikit_learn_nor_pandas(documents, tmp_path):
    path = tmp_path / "m.json"
    path.write_text(documents["lexical"])
    program = f"""
import sys
import orsched.prediction
assert "numpy" not in sys.modules or "orsched.prediction.trees" not in sys.modules
orsched.prediction.load_predictor({str(path)!r}).predict("hello").tokens()
heavy = {{"sklearn", "scipy", "pandas", "torch", "pyarrow", "transformers", "matplotlib"}}
sys.exit(", ".join(heavy & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def instance():
    return load_named("two-by-two").replace(output_limit_tokens=2000)


def named(instance, ids):
    return instance.replace(requests=instance.requests.replace(ids=tuple(ids)))


def test_the_column_has_the_points_of_the_distribution(instance, fitted):
    prompts = [f"Write about tides in {n} words." for n in range(20, 20 + len(instance))]
    found = predict_instance(instance, fitted["lexical"], prompts, point=0.75)
    wanted = fitted["lexical"].predict(prompts).tokens(0.75).clip(1, instance.output_limit_tokens)
    assert found.requests.predicted_tokens.tolist() == wanted.tolist()
    values = fitted["lexical"].predict(prompts).values
    quantiles = found.requests.predicted_quantiles
    assert quantiles.tolist() == values.round().clip(1, instance.output_limit_tokens).tolist()
    assert found.requests.quantile_levels == tuple(fitted["lexical"].predict(prompts).levels)
    assert found.requests.output_tokens.tolist() == instance.requests.output_tokens.tolist()


def test_names_decide_the_order_where_both_have_them(instance, fitted):
    n = len(instance)
    ids = [f"r{i}" for i in range(n)]
    prompts = ["Is it true?", "Write a story of 5 paragraphs about tea.", *["What?"] * (n - 2)]
    straight = predict_instance(named(instance, ids), fitted["lexical"], prompts, ids=ids)
    given, back = named(instance, ids), {"ids": ids[::-1], "point": "median"}
    back = predict_instance(given, fitted["lexical"], prompts[::-1], **back)
    tokens = straight.requests.predicted_tokens.tolist()
    assert back.requests.predicted_tokens.tolist() == tokens
    assert tokens[0] != tokens[1]


def test_prompts_that_do_not_fit_are_refused(instance, fitted):
    n = len(instance)
    ids = [f"r{i}" for i in range(n)]
    model, asked = fitted["constant"], ["a"] * n
    assert "prompts for" in str(refusal(predict_instance, instance, model, asked[1:]))
    for wrong, problem in ((["r0"] * n, "twice"), ([*ids[1:], "x"], "no prompt for request 'r0'")):
        with pytest.raises(InputError, match=problem):
            predict_instance(named(instance, ids), model, asked, ids=wrong)
    with pytest.raises(InputError, match="no request for prompt 'x'"):
        predict_instance(named(instance, ids), model, [*asked, "a"], ids=[*ids, "x"])
