"""``orsched predict`` and ``orsched convert --predict``."""

from __future__ import annotations

import csv
import io
import json

import pytest

from orsched.cli.commands import run
from orsched.files import load_instance, read_requests_csv, save_instance
from orsched.prediction import evaluate, load_predictor, make_corpus, read_labelled_prompts
from orsched.prediction.corpus import write_labelled_prompts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    for domain in ("chat", "code"):
        write_labelled_prompts(make_corpus(domain, 1500, 3), folder / f"{domain}.jsonl")
    assert run(["-q", "predict", "train", f"{folder}/chat.jsonl", "-o", f"{folder}/m.json",
                "--seed", "4", "--trees", "15"]) == 0  # fmt: skip
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def test_train_prints_the_figures_beside_simpler_predictors(here, tmp_path, capsys):
    words = ["predict", "train", "chat.jsonl", "-o", f"{tmp_path}/m.json", "--seed", "4"]
    assert run([*words, "--trees", "15", "--format", "json"]) == 0
    shown = capsys.readouterr()
    rows = {row["kind"]: row for row in json.loads(shown.out)}
    assert list(rows) == ["constant", "prompt_length", "lexical"]
    assert rows["constant"]["tau"] is None
    assert rows["lexical"]["tau"] > rows["prompt_length"]["tau"] + 0.2
    assert rows["lexical"]["pinball"] < rows["prompt_length"]["pinball"]
    assert "lexical fitted on 1,500 rows" in shown.err
    assert (tmp_path / "m.json").read_bytes() == (here / "m.json").read_bytes()


def test_tails_are_fitted_and_kept_in_the_file(here, tmp_path, refused):
    words = ["predict", "train", "chat.jsonl", "-o", f"{tmp_path}/t.json", "--tails", "log-t"]
    refused("too few for a tail", "-q", *words, "--trees", "5")
    assert run(["-q", "predict", "corpus", "chat", f"{tmp_path}/more.jsonl", "--rows", "4000"]) == 0
    words[2] = f"{tmp_path}/more.jsonl"
    assert run(["-q", *words, "--trees", "5"]) == 0
    assert load_predictor(f"{tmp_path}/t.json").tails is not None
    assert load_predictor(here / "m.json").tails is None
    refused("constant has none", *words, "--kind", "constant")


def test_evaluate_in_and_across(here, done):
    inside, across = csv.DictReader(
        io.StringIO(done("predict evaluate m.json chat.jsonl code.jsonl --held-out --format csv"))
    )
    assert (inside["source"], across["source"]) == ("chat.jsonl", "code.jsonl")
    assert 200 < int(inside["rows"]) < 400
    assert float(inside["tau"]) > float(across["tau"])
    (whole,) = csv.DictReader(io.StringIO(done("predict evaluate m.json chat.jsonl --format csv")))
    assert whole["rows"] == "1500"


def test_held_out_rows_are_those_that_training_left_out(here, done):
    words = ["predict", "evaluate", "m.json", "chat.jsonl", "--held-out", "--format", "json"]
    (row,) = json.loads(done(*words))
    test = read_labelled_prompts("chat.jsonl").part("test", 4)
    wanted = evaluate(load_predictor("m.json"), test, latency=False)
    assert {name: row[name] for name in wanted} == wanted


def test_edges_are_taken_and_the_table_is_printed(here, done, refused):
    words = ["predict", "evaluate", "m.json", "chat.jsonl", "--edges"]
    heading, _, row = done(*words, "58,147,280,499").splitlines()
    assert heading.split()[:3] == ["source", "kind", "rows"]
    assert row.split()[:3] == ["chat.jsonl", "lexical", "1,500"]
    for wrong in ("58;147", "9,5", ""):
        refused("edges", *words, wrong)


def test_apply_adds_the_column(here, tmp_path, capsys, done, refused):
    texts = ["Is it true?", "Write a story of 5 paragraphs about tea.", "What?", "Why?"]
    lines = [json.dumps({"prompt": text}) + "\n" for text in texts]
    (tmp_path / "p.jsonl").write_text("".join(lines))
    words = ["predict", "apply", "m.json", "two-by-two", f"{tmp_path}/p.jsonl"]
    assert run([*words, f"{tmp_path}/t.json", "--point", "0.25"]) == 0
    found = load_instance(tmp_path / "t.json")
    wanted = load_predictor("m.json").predict(texts).tokens(0.25).clip(1, found.output_limit_tokens)
    assert found.requests.predicted_tokens.tolist() == wanted.tolist()
    model = load_predictor("m.json").predict(texts)
    assert found.requests.quantile_levels == tuple(model.levels)
    quantiles = model.values.round().clip(1, found.output_limit_tokens)
    assert found.requests.predicted_quantiles.tolist() == quantiles.tolist()
    capsys.readouterr()
    assert "0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95" in done("info", f"{tmp_path}/t.json")
    (tmp_path / "p.jsonl").write_text("".join(lines[1:]))
    refused(f"{tmp_path}/p.jsonl, field 'prompts': 3 prompts for 4", *words, f"{tmp_path}/u.json")
    assert not (tmp_path / "u.json").exists()


@pytest.mark.parametrize("method", ["gittins@predicted", "robust", "ssjf"])
def test_schedules_of_predicted_distributions_are_checked(here, tmp_path, capsys, method):
    (tmp_path / "p.jsonl").write_text('{"prompt": "Why?"}\n' * 4)
    case, schedule = f"{tmp_path}/t.json", f"{tmp_path}/s.json"
    assert run(["predict", "apply", "m.json", "two-by-two", f"{tmp_path}/p.jsonl", case]) == 0
    assert run(["solve", case, "--method", method, "-o", schedule]) == 0
    assert run(["check", case, schedule]) == 0
    # The same schedule is not one of the instance with other distributions.
    loaded = load_instance(case)
    rows = loaded.requests.predicted_quantiles.copy()
    rows[0, -1] += 1
    changed = loaded.requests.replace(
        predicted_tokens=loaded.requests.predicted_tokens, predicted_quantiles=rows
    )
    save_instance(loaded.replace(requests=changed), case)
    capsys.readouterr()
    assert run(["check", case, schedule]) != 0
    assert "for another instance" in capsys.readouterr().out


def test_convert_takes_prompts_from_the_requests_in_their_order(here, tmp_path, capsys, refused):
    texts = ["Write a story of 5 paragraphs about tea.", "Is it true that tea helps?", "Why?"]
    rows = [
        {"prompt_tokens": 5, "output_tokens": 600, "arrival_s": time, "prompt": text}
        for time, text in zip((9, 2, 5), texts, strict=True)
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["convert", f"{tmp_path}/r.jsonl", f"{tmp_path}/c.json", "--clients", "2"]
    assert run([*words, "--predict", "m.json"]) == 0
    found = load_instance(tmp_path / "c.json").requests
    wanted = load_predictor("m.json").predict(texts).tokens().clip(1, 600).tolist()
    by_time = dict(zip((9, 2, 5), wanted, strict=True))
    assert [by_time[t // 10**9] for t in found.arrival_ns] == found.predicted_tokens.tolist()
    assert len(set(wanted)) == 3
    assert found.predicted_quantiles.shape == (3, len(found.quantile_levels))
    table = ["convert", f"{tmp_path}/r.jsonl", f"{tmp_path}/c.csv", "--clients", "2"]
    assert run([*table, "--predict", "m.json"]) == 0
    assert read_requests_csv(tmp_path / "c.csv") == found
    capsys.readouterr()
    refused("--predict MODEL", *words, "--prompts", f"{tmp_path}/r.jsonl")
    refused(
        "give --prompts FILE", "convert two-by-two", f"{tmp_path}/d.json", "--predict", "m.json"
    )


REFUSED = [
    (["train", "missing.jsonl", "-o", "x.json"], "missing.jsonl: there is no such file"),
    (["train", "chat.jsonl", "-o", "x.pkl"], "'.pkl' is not a suffix"),
    (["train", "chat.jsonl", "-o", "none/x.json"], "none"),
    (["train", "chat.jsonl", "-o", "x.json", "--kind", "bert"], "'bert' is not one of"),
    (["train", "chat.jsonl", "-o", "x.json", "--seed", "-1"], "seed"),
    (["train", "m.json", "-o", "x.json"], "m.json, row 1: not valid JSON"),
    (["train", "chat.jsonl", "-o", "x.json", "--tokenizer", "none"], "none"),
    (["evaluate", "chat.jsonl", "chat.jsonl"], "chat.jsonl: not valid JSON"),
    (["evaluate", "missing.json", "chat.jsonl"], "missing.json: there is no such file"),
    (["apply", "m.json", "two-by-two", "chat.jsonl", "m.json"], "would be overwritten"),
    (["apply", "m.json", "two-by-two", "chat.jsonl", "x.csv"], "'.csv' is not a suffix"),
    (["apply", "m.json", "two-by-two", "chat.jsonl", "x.json", "--point", "best"], "'point'"),
    (["corpus", "poems", "x.jsonl"], "chat, code, math"),
    (["corpus", "chat", "x.json"], "'.json' is not a suffix"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=lambda value: " ".join(value)[:40])
def test_wrong_input_is_one_line_and_nothing_is_written(here, words, said, capsys):
    before = sorted(here.iterdir())
    assert run(["predict", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("orsched: error: ")
    assert said in line
    assert sorted(here.iterdir()) == before


def test_a_predictor_without_a_seed_has_no_held_out_rows(here, tmp_path, refused):
    document = json.loads((here / "m.json").read_text())
    del document["seed"]
    (tmp_path / "m.json").write_text(json.dumps(document))
    refused("field 'seed'", "predict evaluate", f"{tmp_path}/m.json", "chat.jsonl", "--held-out")


def test_a_predictor_where_an_instance_belongs_is_named(here, refused):
    refused("load_predictor", "info m.json")


def test_the_kinds_of_the_command_are_those_of_the_package():
    from orsched.cli.predict_commands import _KINDS
    from orsched.prediction import KINDS

    assert _KINDS == KINDS
