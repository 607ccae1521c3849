"""``orsched paper``, and methods by the name of a preset."""

import csv
import io
import json

import pytest
from matplotlib.image import imread

import orsched
from orsched.papers import listed
from orsched.solving.method_choice import choose, presets, read_spec


def test_the_list_has_every_figure_and_table_with_its_state(done, as_json):
    rows = as_json("paper --list")
    assert rows == listed()
    assert {row["paper"] for row in rows} >= {"pang", "scls"}
    assert as_json("paper pang") == listed("pang")
    assert "a survey of literature" in done("paper pang --list")


def test_a_figure_prints_rows_printed_values_and_verdicts(done, folder):
    words = "paper pang --table 3 --set seeds=1 --state runs"
    shown = done(words)
    for text in ("settings: seeds=1", "prompt mean", "68.43", "HOLDS  Prompts have the mean"):
        assert text in shown
    assert len((folder / "runs" / "pang-lengths.jsonl").read_text().splitlines()) == 1
    found = json.loads(done(f"{words} --format json"))
    assert found["statements"][0]["verdict"] == "HOLDS"
    (row,) = csv.DictReader(io.StringIO(done(f"{words} --format csv")))
    assert row["requests"] == "1319"
    assert "HOLDS  The batcher" in done("paper scls --figure 11 -o a.png")
    assert imread("a.png").ndim == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("paper pong", "did you mean pang?"),
        ("paper pang --figure 12", "pang has no figure 12"),
        ("paper pang --figure 1", "is not rerun: illustration"),
        ("paper pang --figure 9 --set sead=1", "did you mean seeds? known: methods, seeds"),
        ("paper pang --figure 9 --set seeds=1.5", "is not a whole number"),
        ("paper pang --figure 9 --set seeds=1e999", "is not a whole number"),
        ("paper pang --figure 9 --set seeds=true", "is not a whole number"),
        ("paper pang --figure 9 --set seeds=1e9", "from 0 to 3,000"),
        ("paper --figure 9", "no paper is named"),
        ("paper pang --full", "is for one figure"),
        ("paper pang --figure 9 --table 3", "one figure or table"),
        ("paper pang --figure 9 -o a.txt", ".png"),
        ("paper pang --table 3 --set seeds=1 -o a.png", "pang table 3 has no picture"),
    ],
)
def test_what_cannot_be_rerun_is_refused_with_a_remedy(words, said, refused):
    refused(said, words)


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_a_method_with_settings(name, done):
    spec, said = read_spec(name), presets()[name]
    assert spec.label == name
    assert (
        f"{spec.name}{'@' + spec.information if spec.information else ''}"
        == (said["method"].partition("+")[0])
    )
    chosen = choose(name)
    assert chosen.parameters == spec.parameters
    chosen.method.check_parameters(chosen.parameters)
    shown = done(f"info {name}")
    for key, value in spec.parameters.items():
        assert f"sets {key}" in shown
        assert str(value) in shown


def test_what_a_preset_sets_can_be_changed_and_it_is_what_it_stands_for(done):
    assert read_spec("pang-hybrid+order=longest").parameters["order"] == "longest"
    assert read_spec("pang-hybrid@clairvoyant").information == "clairvoyant"
    instance = orsched.load("pang-100x20")
    whole = presets()["pang-hybrid"]["method"]
    one, other = (orsched.solve(instance, name) for name in ("pang-hybrid", whole))
    assert one.makespan == other.makespan
    shown = done("compare pang-100x20 --methods fcfs,pang-online")
    assert "pang-online  none" in shown
    with pytest.raises(orsched.InputError, match="did you mean pang-online"):
        orsched.solve(instance, "pang-onlin")
