"""``orsched predict`` and ``orsched convert --predict``."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from orsched.cli.commands import run
from orsched.cli.predict_commands import _HEADS, _KINDS, _PROXIES
from orsched.files import load_instance, read_requests_csv
from orsched.prediction import KINDS, evaluate, load_predictor, make_corpus, read_labelled_prompts
from orsched.prediction.data import write_labelled_prompts


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    for domain in ("chat", "code"):
        write_labelled_prompts(make_corpus(domain, 1500, 3), folder / f"{domain}.jsonl")
    assert run(["-q", "predict", "train", f"{folder}/chat.jsonl", "-o", f"{folder}/m.json",
                "--seed", "4", "--trees", "15"]) == 0  # fmt: skip
    return folder


@pytest.fixture(autouse=True)
def here(trained, folder):
    """Copy two corpora and a predictor of the first into the folder."""
    shutil.copytree(trained, folder, dirs_exist_ok=True)


def prompts_of(texts, name="p.jsonl"):
    Path(name).write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))


def test_train_prints_the_figures_beside_simpler_predictors(call):
    code, out, err = call(
        "predict train chat.jsonl -o again.json --seed 4 --trees 15 --format json"
    )
    assert (code, "lexical fitted on 1,500 rows" in err) == (0, True)
    rows = {row["kind"]: row for row in json.loads(out)}
    assert list(rows) == ["constant", "prompt_length", "lexical"]
    assert rows["constant"]["tau"] is None
    assert rows["lexical"]["tau"] > rows["prompt_length"]["tau"] + 0.2
    assert rows["lexical"]["pinball"] < rows["prompt_length"]["pinball"]
    assert Path("again.json").read_bytes() == Path("m.json").read_bytes()


def test_tails_are_fitted_and_kept_in_the_file(done, refused):
    tails = "-q predict train {} -o t.json --tails log-t"
    refused("too few for a tail", f"{tails} --trees 5".format("chat.jsonl"))
    done("-q predict corpus chat more.jsonl --rows 4000")
    done(f"{tails} --trees 5".format("more.jsonl"))
    assert load_predictor("t.json").tails is not None
    assert load_predictor("m.json").tails is None
    refused("constant has none", f"{tails} --kind constant".format("more.jsonl"))


def test_evaluate_in_and_across(done):
    inside, across = csv.DictReader(
        io.StringIO(done("predict evaluate m.json chat.jsonl code.jsonl --held-out --format csv"))
    )
    assert (inside["source"], across["source"]) == ("chat.jsonl", "code.jsonl")
    assert 200 < int(inside["rows"]) < 400
    assert float(inside["tau"]) > float(across["tau"])
    (whole,) = csv.DictReader(io.StringIO(done("predict evaluate m.json chat.jsonl --format csv")))
    assert whole["rows"] == "1500"


def test_held_out_rows_are_those_that_training_left_out(as_json, refused):
    (row,) = as_json("predict evaluate m.json chat.jsonl --held-out")
    test = read_labelled_prompts("chat.jsonl").part("test", 4)
    wanted = evaluate(load_predictor("m.json"), test, latency=False)
    assert {name: row[name] for name in wanted} == wanted
    document = json.loads(Path("m.json").read_text())
    del document["seed"]
    Path("m.json").write_text(json.dumps(document))
    refused("field 'seed'", "predict evaluate m.json chat.jsonl --held-out")


def test_edges_are_taken_and_the_table_is_printed(done, refused):
    command = "predict evaluate m.json chat.jsonl --edges"
    heading, _, row = done(f"{command} 58,147,280,499").splitlines()
    assert heading.split()[:3] == ["source", "kind", "rows"]
    assert row.split()[:3] == ["chat.jsonl", "lexical", "1,500"]
    for wrong in ("58;147", "9,5", ""):
        refused("edges", command, wrong)


def test_apply_adds_the_column(done, refused):
    texts = ["Is it true?", "Write a story of 5 paragraphs about tea.", "What?", "Why?"]
    prompts_of(texts)
    done("predict apply m.json two-by-two p.jsonl t.json --point 0.25")
    found, model = load_instance("t.json"), load_predictor("m.json").predict(texts)
    requests, limit = found.requests, found.output_limit_tokens
    assert requests.predicted_tokens.tolist() == model.tokens(0.25).clip(1, limit).tolist()
    assert requests.quantile_levels == tuple(model.levels)
    assert requests.predicted_quantiles.tolist() == model.values.round().clip(1, limit).tolist()
    assert "0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95" in done("info t.json")
    prompts_of(texts[1:])
    said = "p.jsonl, field 'prompts': 3 prompts for 4"
    refused(said, "predict apply m.json two-by-two p.jsonl u.json")
    assert not Path("u.json").exists()


def test_convert_takes_prompts_from_the_requests_in_their_order(done, refused):
    texts = ["Write a story of 5 paragraphs about tea.", "Is it true that tea helps?", "Why?"]
    rows = [
        {"prompt_tokens": 5, "output_tokens": 600, "arrival_s": time, "prompt": text}
        for time, text in zip((9, 2, 5), texts, strict=True)
    ]
    Path("r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = "convert r.jsonl c.json --clients 2"
    done(f"{command} --predict m.json")
    found = load_instance("c.json").requests
    wanted = load_predictor("m.json").predict(texts).tokens().clip(1, 600).tolist()
    by_time = dict(zip((9, 2, 5), wanted, strict=True))
    assert [by_time[t // 10**9] for t in found.arrival_ns] == found.predicted_tokens.tolist()
    assert len(set(wanted)) == 3
    assert found.predicted_quantiles.shape == (3, len(found.quantile_levels))
    done("convert r.jsonl c.csv --clients 2 --predict m.json")
    assert read_requests_csv("c.csv") == found
    refused("--predict MODEL", f"{command} --prompts r.jsonl")
    refused("give --prompts FILE", "convert two-by-two d.json --predict m.json")


@pytest.mark.parametrize(("line", "said"), [
    ("predict train missing.jsonl -o x.json", "missing.jsonl: the file does not exist"),
    ("predict train chat.jsonl -o x.pkl", "'.pkl' is not a suffix"),
    ("predict train chat.jsonl -o none/x.json", "none"),
    ("predict train chat.jsonl -o x.json --kind bert", "'bert' is not one of"),
    ("predict train chat.jsonl -o x.json --seed -1", "seed"),
    ("predict train m.json -o x.json", "m.json, row 1: not valid JSON"),
    ("predict train chat.jsonl -o x.json --tokenizer none", "none"),
    ("predict evaluate chat.jsonl chat.jsonl", "chat.jsonl: not valid JSON"),
    ("predict evaluate missing.json chat.jsonl", "missing.json: the file does not exist"),
    ("predict apply m.json two-by-two chat.jsonl m.json", "would be overwritten"),
    ("predict apply m.json two-by-two chat.jsonl x.csv", "'.csv' is not a suffix"),
    ("predict apply m.json two-by-two chat.jsonl x.json --point best", "'point'"),
    ("predict corpus poems x.jsonl", "chat, code, math"),
    ("predict corpus chat x.json", "'.json' is not a suffix"),
    ("info m.json", "load_predictor"),
])  # fmt: skip
def test_wrong_input_is_one_line_and_nothing_is_written(refused, folder, line, said):
    before = sorted(folder.iterdir())
    err = refused(said, line)
    assert (err.count("\n"), err.startswith("orsched: error: ")) == (1, True)
    assert sorted(folder.iterdir()) == before


def test_the_choices_of_the_command_are_those_of_the_package():
    assert _KINDS == KINDS
    pytest.importorskip("torch")
    from orsched.prediction.proxies.network import RECIPES, SSJF_HEADS

    assert tuple(RECIPES) == _PROXIES
    assert SSJF_HEADS == _HEADS


@pytest.fixture
def math_corpus():
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    write_labelled_prompts(make_corpus("math", 60, 3), "math.jsonl")
    yield
    torch.set_num_threads(before)


def test_a_proxy_is_trained_evaluated_and_carried_on(math_corpus, call):
    command = (
        "predict proxy math.jsonl -o proxy.json --kind distilbert_mico --device cpu "
        "--checkpoint c.safetensors --format json"
    )
    written = []
    for _ in range(2):
        code, out, err = call(command)
        assert code == 0
        written.append([Path(f"proxy.{kind}").read_bytes() for kind in ("json", "safetensors")])
        if len(written) == 1:
            (row,) = json.loads(out)
            assert "trained on 60 rows" in err
    assert written[0] == written[1]
    assert (row["kind"], row["head"]) == ("distilbert_mico", "buckets")
    data = read_labelled_prompts("math.jsonl").part("test", 0)
    again = evaluate(load_predictor("proxy.json"), data, latency=False)
    assert again["pinball"] == row["pinball"]


@pytest.mark.parametrize(("options", "field"), [
    ("--checkpoint proxy.safetensors", "--checkpoint"),
    ("--checkpoint c.pt", "--checkpoint"),
    ("--model nowhere", "model"),
    ("--kind bert_ranker --head classes", "head"),
    ("--device abacus", "device"),
])  # fmt: skip
def test_a_wrong_word_of_a_proxy_is_named(math_corpus, options, field, refused):
    refused(field, f"predict proxy math.jsonl -o proxy.json {options}")
    assert not Path("proxy.json").exists()
