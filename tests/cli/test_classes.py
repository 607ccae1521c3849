"""Classes and tenants on the command line: options, the block below the table, JSON."""

from __future__ import annotations

import csv
import io
import json

import pytest

from orsched.cli.commands import run
from orsched.files import load_instance

REQUESTS = (
    "prompt_tokens,output_tokens,arrival_s,class,tenant\n"
    "300,60,0,interactive,ada\n250,80,0.5,interactive,bob\n4000,200,0,batch,ada\n"
    "4000,200,0,nightly,bob\n3000,100,0,batch,ada\n"
)
LIMITS = ["--class", "interactive:ttft=1,tpot=0.05", "--class", "nightly:deadline=20"]


@pytest.fixture
def classed(tmp_path, capsys):
    (tmp_path / "r.csv").write_text(REQUESTS)
    target = tmp_path / "r.json"
    assert run(["convert", str(tmp_path / "r.csv"), str(target), "--clients", "2", *LIMITS]) == 0
    capsys.readouterr()
    return target


def test_convert_reads_classes_by_name_with_their_limits(classed):
    instance = load_instance(classed)
    assert [kind.name for kind in instance.classes] == ["interactive", "batch", "nightly"]
    assert instance.requests.service_class.tolist() == [0, 0, 1, 2, 1]
    assert instance.classes[0].tpot_ns == 5 * 10**7
    assert instance.requests.tenants == ("ada", "bob")


def test_an_instance_goes_to_csv_and_back(classed, tmp_path, capsys):
    again = [str(tmp_path / "b.csv"), str(tmp_path / "b.json"), "--clients", "2", *LIMITS]
    assert run(["convert", str(classed), again[0]]) == 0
    assert run(["convert", *again]) == 0
    assert load_instance(tmp_path / "b.json").requests == load_instance(classed).requests


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("interactive:ttft=-1", "negative"),
        ("interactive:tft=1", "no limit 'tft'"),
        ("nightly", "'fast' is not a service class"),
    ],
)
def test_wrong_classes_are_one_line_with_the_place(tmp_path, capsys, option, says):
    (tmp_path / "r.csv").write_text("prompt_tokens,output_tokens,class\n1,1,fast\n")
    target = tmp_path / "x.json"
    code = run(
        ["convert", str(tmp_path / "r.csv"), str(target), "--clients", "2", "--class", option]
    )
    told = capsys.readouterr().err
    assert code == 2
    assert says in told
    assert told.count("\n") == 1
    assert not target.exists()


def test_the_block_has_a_line_for_each_method_and_class(classed, capsys):
    assert run(["compare", str(classed), "--methods", "fcfs,vtc"]) == 0
    methods, classes, fairness = capsys.readouterr().out.strip().split("\n\n")
    assert len(methods.splitlines()) == 5
    assert methods.splitlines()[-1].startswith("* ")  # the best, with its words
    lines = classes.splitlines()
    assert lines[0].split()[:2] == ["method", "class"]
    assert [line.split()[:2] for line in lines[2:]] == [
        [method, name] for method in ("fcfs", "vtc") for name in ("interactive", "batch", "nightly")
    ]
    assert "deadlines" in lines[0]
    assert "hits" not in lines[0]
    assert [line.split()[0] for line in fairness.splitlines()[2:]] == ["fcfs", "vtc"]


def test_json_has_the_figures_by_class_and_tenant_in_seconds(classed, tmp_path, capsys):
    out = tmp_path / "s.json"
    arguments = ["simulate", str(classed), "--policy", "vtc", "--format", "json", "-o", str(out)]
    assert run(arguments) == 0
    row = json.loads(capsys.readouterr().out)
    exact = json.loads(out.read_text())["results"]
    assert [each["class"] for each in row["classes"]] == ["interactive", "batch", "nightly"]
    ttft = exact["classes"]["interactive"]["ttft_ns"]
    assert row["classes"][0]["ttft_p99_s"] == ttft["p99"] / 1e9
    assert row["classes"][1]["slo_attainment"] is None
    assert [each["tenant"] for each in row["tenants"]] == ["ada", "bob"]
    assert row["service_difference"] == exact["fairness"]["service_difference"]
    assert run(["check", str(classed), str(out)]) == 0


def test_limits_of_the_command_are_those_of_interactive_requests(classed, tmp_path, capsys):
    out = tmp_path / "s.json"
    limits = ["--slo-ttft", "1000", "--slo-tpot", "1000"]
    assert run(["simulate", str(classed), "--policy", "vllm", *limits, "-o", str(out)]) == 0
    exact = json.loads(out.read_text())["results"]
    assert exact["classes"]["interactive"]["slo"]["attainment"] == 1
    assert exact["slo"]["attained"] == 2
    assert run(["check", str(classed), str(out)]) == 0


def test_instances_without_classes_print_what_they_did(capsys):
    assert run(["compare", "two-by-two", "--methods", "fcfs"]) == 0
    assert "\n\n" not in capsys.readouterr().out.strip()
    assert run(["simulate", "two-by-two", "--policy", "fcfs", "--format", "csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert not {"classes", "tenants", "service_difference"} & set(row)


def test_pictures_of_classes_and_why_there_is_none(classed, tmp_path, capsys):
    picture = tmp_path / "c.png"
    assert run(["simulate", str(classed), "--policy", "vtc", "--classes", str(picture)]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
    capsys.readouterr()
    other = str(tmp_path / "d.png")
    assert run(["simulate", "two-by-two", "--policy", "fcfs", "--classes", other]) == 2
    told = capsys.readouterr().err
    assert "neither classes with limits nor tenants" in told
    assert "--class interactive:ttft=1" in told
