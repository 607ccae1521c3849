"""The program behind the page on predicted lengths, and the sources of real text."""

import json

import pytest

from benchmarks import predict_lengths
from benchmarks.text_sources import functions, standard_library
from orsched.prediction import distribution, make_corpus, train
from orsched.prediction.evaluation import evaluate

SOURCE = '''
def add(a, b):
    """Return the sum."""
    total = a + b
    return total


def bare(a):
    return a


def only():
    """Says something."""
'''


def test_functions_are_split_into_head_docstring_and_body(tmp_path):
    (tmp_path / "m.py").write_text(SOURCE)
    (found,) = functions(tmp_path / "m.py")
    assert found == ("def add(a, b):", "Return the sum.", "    total = a + b\n    return total")
    (tmp_path / "broken.py").write_text("def (")
    assert list(functions(tmp_path / "broken.py")) == []


def test_the_program_prints_its_tables_and_writes_them(tmp_path, monkeypatch, capsys):
    small = {"text": make_corpus("math", 400, 9)}
    monkeypatch.setattr(predict_lengths, "standard_library", lambda: small)
    monkeypatch.setattr(predict_lengths, "DOMAINS", {"chat": ()})
    monkeypatch.setattr(distribution, "LEAST_ROWS", 0)
    path = tmp_path / "f.json"
    predict_lengths.main(["--rows", "400", "--large", "500", "--splits", "1", "--out", str(path)])
    shown = capsys.readouterr().out
    found = json.loads(path.read_text())
    names = ["within", "splits", "across", "online", "tails", "times"]
    assert [line[3:] for line in shown.splitlines() if line.startswith("## ")] == names
    assert (list(found), len(found["within"])) == (names, 2 * 3)
    assert {row["source"] for row in found["splits"]} == {"chat", "text"}
    assert all(row["time"] > 0 for row in found["times"])


@pytest.mark.full
def test_the_default_orders_real_text_better_than_its_length_does():
    sources = standard_library()
    assert min(map(len, sources.values())) > 3000
    for name, data in sources.items():
        gains = []
        for seed in range(3):
            test = data.part("test", seed)
            long, lexical = (
                evaluate(train(data, kind, seed=seed), test, latency=False)["tau"]
                for kind in ("prompt_length", "lexical")
            )
            gains.append(lexical - long)
        assert sum(gains) / 3 > 0.01, name


@pytest.mark.full
def test_the_default_is_fitted_on_a_hundred_thousand_rows_in_a_minute():
    fit, *latencies = predict_lengths.times(100_000, 0)
    assert fit["time"] < 60
    assert [row["what"].split(",")[0] for row in latencies] == 2 * ["batch of 1", "batch of 64"]
