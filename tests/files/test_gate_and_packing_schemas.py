"""The schemas of learned gates and of packings: what is written fits, what is refused does not."""

import json
from copy import deepcopy
from importlib.resources import files

import jsonschema
import pytest

from orsched.cli.commands import run
from orsched.errors import InputError
from orsched.heuristics.gate_table import load_gate, save_gate

SHIPPED = json.loads(files("orsched.heuristics").joinpath("data/learned_gate.json").read_text())


def schema(name):
    found = json.loads(files("orsched").joinpath("schemas", f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["$id"] == f"urn:orsched:schema:{name}:1"
    return jsonschema.Draft202012Validator(found)


def test_the_shipped_gate_fits_and_is_written_back_as_it_is(tmp_path):
    assert schema("gate").is_valid(SHIPPED)
    path, again = tmp_path / "gate.json", tmp_path / "again.json"
    path.write_text(json.dumps(SHIPPED))
    save_gate(load_gate(path), again, SHIPPED["trained"])
    assert json.loads(again.read_text()) == SHIPPED


def broken():
    """Yield documents that are wrong in one place."""
    for name in SHIPPED:
        if name != "trained":
            yield {key: value for key, value in SHIPPED.items() if key != name}
    changes = [
        ("format", "orsched/cost"), ("version", 2), ("unknown", 1), ("weights", {"idle": 1}),
        ("weights", {"idle": 0, "waited": 0, "lot": 0}), ("queue_edges", ["1"]),
        ("weights", {"idle": 1, "waited": 1, "lot": 1, "more": 1}), ("queue_edges", [-1, 0, 1]),
        ("decoding_edges", [2e6]), ("thresholds", [[[1]]]), ("thresholds", {}),
    ]  # fmt: skip
    for name, value in changes:
        yield {**deepcopy(SHIPPED), name: value}


@pytest.mark.parametrize("document", list(broken()))
def test_schema_and_reader_refuse_the_same(tmp_path, document):
    path = tmp_path / "gate.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"gate\.json"):
        load_gate(path)
    assert not schema("gate").is_valid(document)


def test_a_written_packing_fits_and_checks(tmp_path, capsys):
    sizes, path = tmp_path / "sizes.csv", tmp_path / "packing.json"
    sizes.write_text("name,size\na,7\nb,5\nc,4\nd,4\ne,3\n")
    given = ["pack", str(sizes), "--column", "size", "--clients", "2", "-o", str(path)]
    assert run(given) == 0
    document = json.loads(path.read_text())
    assert document["column"] == "size"
    assert list(schema("packing").iter_errors(document)) == []
    assert run(["check", str(sizes), str(path)]) == 0
    assert not schema("packing").is_valid({**document, "clients": 0})
    assert not schema("packing").is_valid({**document, "more": 0})
    capsys.readouterr()
