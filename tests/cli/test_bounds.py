"""``orsched bound``, ``pack`` and ``export``: what is proven, checked and written."""

from __future__ import annotations

import json

import pytest

import orsched
from orsched.cli.commands import cli, run
from orsched.files import save_instance
from orsched.instances.catalog import KNOWN_OPTIMA
from orsched.models.mip import FORMATS, PROGRAMS
from tests.models.mip.test_mip import by_scip
from tests.models.test_bulk_bound import small

JOBS = [68, 66, 61, 57, 52, 49, 43, 38, 31, 30, 22, 17]


@pytest.fixture
def sizes(tmp_path):
    path = tmp_path / "sizes.txt"
    path.write_text("# jobs\n" + "\n".join(map(str, JOBS)) + "\n")
    return path


def least(jobs, clients):
    """The least makespan, by trying every assignment up to the names of clients."""
    best = sum(jobs)

    def go(place, loads):
        nonlocal best
        if max(loads) >= best:
            return
        if place == len(jobs):
            best = max(loads)
            return
        for client in {load: c for c, load in enumerate(loads)}.values():
            loads[client] += jobs[place]
            go(place + 1, loads)
            loads[client] -= jobs[place]

    go(0, [0] * clients)
    return best


def test_a_file_of_sizes(call, sizes):
    """INV: the optimum, by trying all assignments."""
    code, out, err = call("pack", sizes, "--clients", 4, "--format", "json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["makespan"] == found["bound"] == least(JOBS, 4)
    assert found["optimal"] is True
    assert found["gap"] == 0
    loads = [0] * 4
    for size, client in zip(found["sizes"], found["assignment"], strict=True):
        loads[client] += size
    assert max(loads) == found["makespan"]
    assert found["sizes"] == JOBS


def test_the_table_and_csv(call, sizes):
    code, out, _ = call("pack", sizes, "--clients", 4)
    assert code == 0
    assert "proven    optimal" in out
    assert out.count("\nclient ") == 4
    _, out, _ = call("pack", sizes, "--clients", 4, "--format", "csv")
    rows = out.splitlines()
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
def test_forms_of_sizes(call, tmp_path, name, text, options):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    code, out, _ = call("pack", path, "--clients", 2, "--format", "json", *options)
    assert code == 0
    assert json.loads(out)["sizes"] == [3, 4]


def test_an_instance_has_its_own_clients(call, tmp_path):
    path = tmp_path / "own.json"
    call("generate gsm8k --set requests=20 --set clients=4 -o", path)
    for source in (path, "gate"):
        code, out, _ = call("pack", source, "--format", "json")
        assert code == 0
        assert json.loads(out)["optimal"]
    assert json.loads(call("pack", path, "--format", "json")[1])["clients"] == 4
    assert json.loads(call("pack", path, "--clients", 2, "--format", "json")[1])["clients"] == 2


def test_check_verifies_what_was_written(call, sizes, tmp_path):
    packed = tmp_path / "packed.json"
    code, _, err = call("pack", sizes, "--clients", 4, "-o", packed)
    assert code == 0
    assert "12 sizes on 4 clients written" in err
    code, _, err = call("check", sizes, packed)
    assert code == 0
    assert f"makespan {least(JOBS, 4)}, proven optimal" in err


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (lambda f: f.update(makespan=f["makespan"] - 1), "makespan is not the largest load"),
        (lambda f: f.update(bound=f["bound"] + 1), "the certificate proves"),
        (lambda f: f["assignment"].pop(), "not one client for each job"),
        (lambda f: f["assignment"].__setitem__(0, 4), "a job is on no client"),
        (lambda f: f["sizes"].__setitem__(0, 1), "the sizes are not those of"),
        (lambda f: f.update(certificate={"bound": "volume", "value": 10**9}), "another value"),
        (lambda f: f.update(certificate=None), "certificate"),
    ],
)
def test_forged_packings_are_refused(call, sizes, tmp_path, forge, said):
    packed = tmp_path / "packed.json"
    call("pack", sizes, "--clients", 4, "-o", packed)
    found = json.loads(packed.read_text())
    forge(found)
    packed.write_text(json.dumps(found))
    code, out, _ = call("check", sizes, packed)
    assert code == 1
    assert said in out


def test_a_packing_of_a_column_is_checked_by_that_column(call, tmp_path):
    path, packed = tmp_path / "a.csv", tmp_path / "packed.json"
    path.write_text("a,b\n9,3\n9,4\n")
    call("pack", path, "--clients", 2, "--column", "b", "-o", packed)
    assert call("check", path, packed)[0] == 0


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("a.txt", "3\n4.5\n", [], "row 2, field 'size': '4.5' is not a whole number (give whole"),
        ("a.txt", "3\n-4\n", [], "row 2, field 'size': -4 is negative"),
        ("a.csv", "id,size\nx,3\ny\n", [], "row 3: 1 cells where 2 are expected"),
        ("a.csv", "id,size\nx,3\ny,z\n", [], "row 3, field 'size': 'z' is not a whole number"),
        ("a.csv", "a,b\n1,2\n", [], "field '--column': which column holds the sizes is open"),
        ("a.csv", "a,b\n1,2\n", ["--column", "c"], "there is no column 'c' (there are: a, b)"),
        ("a.csv", "a,a\n1,2\n", ["--column", "a"], "row 1, field 'a': the column appears twice"),
        ("a.csv", "", [], "is empty"),
        ("a.json", "[1, true]", [], "row 1, field 'sizes': true is not a number"),
        ("a.json", '{"lengths": [1]}', [], "field 'sizes': is missing"),
        ("a.json", "[1", [], "not valid JSON at line 1"),
        ("a.txt", "3\n", ["--column", "b"], "this file has no columns"),
        ("a.txt", "9" * 30 + "\n", [], "does not fit into 64 bits"),
    ],
)
def test_what_is_no_size_is_located(refused, tmp_path, name, text, options, said):
    path = tmp_path / name
    path.write_text(text)
    err = refused(said, "pack", path, "--clients", 2, *options)
    assert err.count("\n") == 1


def test_other_refusals(call, sizes, tmp_path):
    assert "give --clients N" in call("pack", sizes)[2]
    assert "--column" in call("pack gate --column b")[2]
    assert call("pack", tmp_path / "none.txt", "--clients", 2)[0] == 2
    assert call("pack", sizes, "--clients", 0)[0] == 2
    assert call("pack", sizes, "--clients", 2, "--gap", 1)[0] == 2
    assert call("pack", sizes, "--clients", 2, "--time-limit", 0)[0] == 2
    assert call("pack", sizes, "--clients", 2, "-o", tmp_path / "x.txt")[0] == 2
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"\xff\xfe\xe4")
    assert "is UTF-16 text" in call("pack", latin, "--clients", 2)[2]


@pytest.fixture
def instance(tmp_path):
    path = tmp_path / "instance.json"
    save_instance(small(n=6, bulk=20), path)
    return str(path)


def bulk(instance, *options):
    return run(["bound", instance, "--objective", "bulk", "--windows", "20", *options])


def test_the_figures(instance, capsys):
    assert bulk(instance, "--attainment", "0.5", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["feasible"] is True
    assert found["bulk_tokens"] > 0
    assert found["attainment"] == 0.5
    assert found["certificate"] == "verified"


def test_the_certificate_is_checked(instance, tmp_path, capsys):
    limits = ("--slo-ttft", "2", "--slo-tpot", "0.1")
    assert bulk(instance, "--certificate", *limits, "--restarts", "3", "--horizon", "3") == 0
    document = json.loads(capsys.readouterr().out)
    claim = tmp_path / "bound.json"
    claim.write_text(json.dumps(document))
    assert run(["check", instance, str(claim)]) == 0
    document["value"] -= 1
    claim.write_text(json.dumps(document))
    assert run(["check", instance, str(claim)]) == 1
    assert "re-derived" in capsys.readouterr().out
    document["classes"] = 3
    claim.write_text(json.dumps(document))
    assert run(["check", instance, str(claim)]) == 2


def test_limits_out_of_reach(instance, capsys):
    assert bulk(instance, "--slo-ttft", "0.001", "--slo-tpot", "0.001", "--format", "json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["feasible"] is False
    assert "no schedule reaches the attainment" in shown.err


@pytest.mark.parametrize("option", ["--attainment", "--horizon", "--slo-ttft", "--windows"])
def test_bulk_options_beside_another_objective(instance, option, refused):
    refused("--objective bulk", "bound", instance, option, "1")


def test_the_choices_are_those_of_the_library():
    choices = {each.name: each.type for each in cli.get_command(None, "export").params}
    assert tuple(choices["program"].choices) == PROGRAMS
    assert tuple(choices["style"].choices) == FORMATS


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("model", ["full-mip", "window-mip"])
def test_a_file_that_scip_reads(call, tmp_path, model, suffix):
    path = tmp_path / f"gate.{suffix}"
    code, out, err = call("export gate --model", model, "-o", path)
    assert (code, out) == (0, "")
    unit = int(err.partition("objective x ")[2].partition(" ns")[0])
    assert "= makespan" in err
    assert round(by_scip(path) * unit) == KNOWN_OPTIMA["gate"].makespan_ns
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_standard_output_and_options(call):
    code, plain, err = call("export gate --stages 3")
    assert (code, err) == (0, "")
    assert plain.startswith("* orsched: full-mip of the instance gate")
    assert plain.endswith("ENDATA\n")
    _, bare, _ = call("export gate --stages 3 --no-symmetry-breaking")
    assert " G s3_1_1" not in bare
    assert len(bare) < len(plain)
    _, printed, _ = call("export gate --stages 3 --formulation printed")
    assert "e11_0_0_1_0" in printed
    _, lp, _ = call("export gate --format lp")
    assert lp.startswith("\\ orsched")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["gsm8k-llama65b"],
            "nonzeros, more than 10,000,000 (take fewer requests or stages, or raise it)",
        ),
        (["gate", "--max-nonzeros", "10"], "field '--max-nonzeros': the model would have "),
        (["gate", "-o", "gate.txt"], "not a suffix of this output"),
        (["gate", "-o", "missing/gate.lp"], "missing"),
        (["gate", "-o", "gate.lp", "--format", "mps"], "the file is named lp, the format is mps"),
        (["gate", "--model", "mip"], "mip"),
        (["gate", "--model", "latency-mip", "--objective", ""], "'' is not an objective"),
        (["nothing.json"], "nothing.json"),
    ],
)
def test_refusals_are_one_line_with_the_remedy(refused, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    err = refused(said, "export", *arguments)
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_map_is_said(refused, tmp_path):
    path = tmp_path / "paged.json"
    memory = orsched.BlockMemory(5, 1, "paged")
    worker = orsched.Worker(2, orsched.AffineCost(), memory=memory)
    orsched.save_instance(
        orsched.Instance(orsched.Requests([1, 2], [3, 2]), worker, first_token="decode"), path
    )
    refused("memory", "export", path)
