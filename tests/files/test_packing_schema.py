"""The schema of packings: what is written fits, what is refused does not."""

import json
from importlib.resources import files

import jsonschema

from orsched.cli.commands import run


def schema(name):
    found = json.loads(
        files("orsched.files").joinpath("schemas", f"{name}.schema.json").read_text()
    )
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["$id"] == f"urn:orsched:schema:{name}:1"
    return jsonschema.Draft202012Validator(found)


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
