"""``orsched bound``, ``pack`` and ``export``: what is proven, checked and written."""

import json
from pathlib import Path

import pytest

import orsched
from orsched.cli.commands import cli
from orsched.files import save_instance
from orsched.instances.catalog import KNOWN_OPTIMA
from orsched.models.mip import FORMATS, PROGRAMS
from tests.models.mip.test_mip import by_scip
from tests.models.test_bulk_bound import small

JOBS = [68, 66, 61, 57, 52, 49, 43, 38, 31, 30, 22, 17]
LEAST = -(-sum(JOBS) // 4)
"""Of four clients one holds at least the mean: what reaches it is an optimum."""


@pytest.fixture
def sizes(folder):
    (folder / "sizes.txt").write_text("# jobs\n" + "\n".join(map(str, JOBS)) + "\n")


def test_a_file_of_sizes(call, sizes):
    code, out, err = call("pack sizes.txt --clients 4 --format json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["makespan"] == found["bound"] == LEAST
    assert (found["optimal"], found["gap"], found["sizes"]) == (True, 0, JOBS)
    loads = [0] * 4
    for size, client in zip(found["sizes"], found["assignment"], strict=True):
        loads[client] += size
    assert max(loads) == found["makespan"]


def test_the_table_and_csv(done, sizes):
    out = done("pack sizes.txt --clients 4")
    assert "proven    optimal" in out
    assert out.count("\nclient ") == 4
    rows = done("pack sizes.txt --clients 4 --format csv").splitlines()
    assert rows[0] == "job,size,client"
    assert [row.split(",")[1] for row in rows[1:]] == list(map(str, JOBS))


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.csv", "id,size\nx,3\ny,4\n", []),
        ("a.csv", "size\n3\n4\n", []),
        ("a.txt", "n,cost\n1,3\n2,4\n", ["--column", "cost"]),
        ("a.json", "[3, 4]", []),
        ("a.json", '{"sizes": [3, 4]}', []),
        ("a.txt", "3 4\n", []),
        ("a.txt", "\ufeff3\r\n\r\n4 # last\r\n", []),
    ],
)
def test_forms_of_sizes(as_json, name, text, options):
    Path(name).write_text(text, encoding="utf-8")
    assert as_json("pack", name, "--clients", 2, *options)["sizes"] == [3, 4]


def test_an_instance_has_its_own_clients(done, as_json):
    done("generate gsm8k --set requests=20 --set clients=4 -o own.json")
    assert as_json("pack gate")["optimal"]
    found = as_json("pack own.json")
    assert (found["optimal"], found["clients"]) == (True, 4)
    assert as_json("pack own.json --clients 2")["clients"] == 2


def test_check_verifies_what_was_written(call, sizes):
    code, _, err = call("pack sizes.txt --clients 4 -o packed.json")
    assert (code, "12 sizes on 4 clients written" in err) == (0, True)
    code, _, err = call("check sizes.txt packed.json")
    assert (code, f"makespan {LEAST}, proven optimal" in err) == (0, True)


@pytest.mark.parametrize(("forge", "said"), [
    (lambda f: f.update(bound=f["bound"] + 1), "the certificate proves"),
    (lambda f: f["assignment"].pop(), "not one client for each job"),
    (lambda f: f["sizes"].__setitem__(0, 1), "the sizes are not those of"),
    (lambda f: f.update(certificate={"bound": "volume", "value": 10**9}), "another value"),
    (lambda f: f.update(certificate=None), "certificate"),
])  # fmt: skip
def test_forged_packings_are_refused(call, done, sizes, forge, said):
    done("pack sizes.txt --clients 4 -o packed.json")
    found = json.loads(Path("packed.json").read_text())
    forge(found)
    Path("packed.json").write_text(json.dumps(found))
    code, out, _ = call("check sizes.txt packed.json")
    assert (code, said in out) == (1, True)


def test_a_packing_of_a_column_is_checked_by_that_column(done):
    Path("a.csv").write_text("a,b\n9,3\n9,4\n")
    done("pack a.csv --clients 2 --column b -o packed.json")
    done("check a.csv packed.json")


@pytest.mark.parametrize(("name", "text", "options", "said"), [
    ("a.txt", "3\n4.5\n", [], "row 2, field 'size': '4.5' is not a whole number (give whole"),
    ("a.txt", "3\n-4\n", [], "row 2, field 'size': -4 is negative"),
    ("a.csv", "id,size\nx,3\ny\n", [], "row 3: 1 cells where 2 are expected"),
    ("a.csv", "id,size\nx,3\ny,z\n", [], "row 3, field 'size': 'z' is not a whole number"),
    ("a.csv", "a,b\n1,2\n", [], "field '--column': which column holds the sizes is open"),
    ("a.csv", "a,b\n1,2\n", ["--column", "c"], "unknown column 'c' (known: a, b)"),
    ("a.csv", "a,a\n1,2\n", ["--column", "a"], "row 1, field 'a': the column appears twice"),
    ("a.csv", "", [], "is empty"),
    ("a.json", "[1, true]", [], "row 1, field 'sizes': true is not a number"),
    ("a.json", '{"lengths": [1]}', [], "field 'sizes': is missing"),
    ("a.json", "[1", [], "not valid JSON at line 1"),
    ("a.txt", "3\n", ["--column", "b"], "this file has no columns"),
    ("a.txt", "9" * 30 + "\n", [], "does not fit into 64 bits"),
    ("a.txt", b"\xff\xfe\xe4", [], "is UTF-16 text"),
])  # fmt: skip
def test_what_is_no_size_is_located(refused, name, text, options, said):
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert refused(said, "pack", name, "--clients", 2, *options).count("\n") == 1


def test_sizes_need_a_number_of_clients(refused, sizes):
    refused("give --clients N", "pack sizes.txt")


BULK = "bound i.json --objective bulk --windows 20"


@pytest.fixture
def instance():
    save_instance(small(n=6, bulk=20), "i.json")


def test_the_figures(instance, as_json):
    found = as_json(f"{BULK} --attainment 0.5")
    assert found["feasible"] is True
    assert found["bulk_tokens"] > 0
    assert (found["attainment"], found["certificate"]) == (0.5, "verified")


def test_the_certificate_is_checked(instance, call, done):
    limits = "--slo-ttft 2 --slo-tpot 0.1 --restarts 3 --horizon 3"
    document = json.loads(done(f"{BULK} --certificate {limits}"))
    for changes, code in (({}, 0), ({"value": document["value"] - 1}, 1), ({"classes": 3}, 2)):
        Path("bound.json").write_text(json.dumps({**document, **changes}))
        found, out, _ = call("check i.json bound.json")
        assert (found, "re-derived" in out) == (code, code == 1)


def test_limits_out_of_reach(instance, call):
    code, out, err = call(f"{BULK} --slo-ttft 0.001 --slo-tpot 0.001 --format json")
    assert (code, json.loads(out)["feasible"]) == (0, False)
    assert "no schedule reaches the attainment" in err


def test_the_choices_are_those_of_the_library():
    choices = {each.name: each.type for each in cli.get_command(None, "export").params}
    assert tuple(choices["program"].choices) == PROGRAMS
    assert tuple(choices["style"].choices) == FORMATS


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("model", ["full-mip", "window-mip"])
def test_a_file_that_scip_reads(call, folder, model, suffix):
    path = folder / f"gate.{suffix}"
    code, out, err = call("export gate --model", model, "-o", path)
    assert (code, out) == (0, "")
    unit = int(err.partition("objective x ")[2].partition(" ns")[0])
    assert "= makespan" in err
    assert round(by_scip(path) * unit) == KNOWN_OPTIMA["gate"].makespan_ns
    assert list(folder.iterdir()) == [path]


def test_standard_output_and_options(call, done):
    code, plain, err = call("export gate --stages 3")
    assert (code, err) == (0, "")
    assert plain.startswith("* orsched: full-mip of the instance gate")
    assert plain.endswith("ENDATA\n")
    bare = done("export gate --stages 3 --no-symmetry-breaking")
    assert " G s3_1_1" not in bare
    assert len(bare) < len(plain)
    assert "e11_0_0_1_0" in done("export gate --stages 3 --formulation printed")
    assert done("export gate --format lp").startswith("\\ orsched")


def test_what_does_not_map_is_said(refused):
    memory = orsched.BlockMemory(5, 1, "paged")
    worker = orsched.Worker(2, orsched.AffineCost(), memory=memory)
    requests = orsched.Requests([1, 2], [3, 2])
    save_instance(orsched.Instance(requests, worker, first_token="decode"), "paged.json")
    refused("memory", "export paged.json")
