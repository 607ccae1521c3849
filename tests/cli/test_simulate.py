"""``orsched simulate`` on other workers, with other arrivals, classes and tenants."""

import csv
import io
import json
from pathlib import Path

import pytest

import orsched
from orsched.files import load_instance, load_schedule, save_cost, save_instance
from orsched.instances import with_arrivals
from orsched.solving.scenario import read_workers, with_workers

SCENARIO = "--workers 2 --arrivals poisson:rate=3 --seed 4 --param dispatch=fewest_requests"
CONFIG = """
seed = 4
[policy]
name = "fcfs"
parameters = {dispatch = "fewest_requests"}
[workers]
count = 2
[arrivals]
law = "poisson"
rate = 3
"""


def test_options_make_the_scenario(as_json):
    row = as_json(f"simulate two-by-two {SCENARIO} -o s.json")
    instance = with_arrivals(with_workers(orsched.load("two-by-two"), 2), "poisson:rate=3", 4)
    result = orsched.solve(instance, "fcfs", parameters={"dispatch": "fewest_requests"}, seed=4)
    assert (row["makespan_s"], row["checked"]) == (result.makespan, True)
    schedule = load_schedule("s.json")
    assert schedule.seed == 4
    assert schedule.parameters == {
        "order": "arrival", "aging_s": None, "dispatch": "fewest_requests", "steal": False,
        "load_weight": 0.0,
    }  # fmt: skip
    assert schedule.instance_sha256 == instance.sha256


def test_a_file_says_the_same_as_options(as_json):
    Path("c.toml").write_text(CONFIG)
    row = as_json("simulate two-by-two --config c.toml")
    same = as_json(f"simulate two-by-two {SCENARIO}")
    assert {**row, "decision_p99_s": 0} == {**same, "decision_p99_s": 0}
    assert as_json("simulate two-by-two --config c.toml --param steal=true")["checked"] is True


def test_worker_files_are_json_or_toml_beside_the_configuration(as_json, folder):
    values = {**orsched.load("two-by-two").worker.to_dict(), "clients": 5, "name": "big"}
    sub = folder / "sub"
    sub.mkdir()
    (sub / "big.json").write_text(json.dumps(values))
    save_cost(orsched.AffineCost(), sub / "pang.json")
    (sub / "small.toml").write_text('clients = 1\ncost = "pang.json"\n')
    (sub / "c.toml").write_text('[workers]\nfiles = ["big.json", "small.toml"]\n')
    assert [w.clients for w in read_workers("big.json,small.toml", sub)] == [5, 1]
    from_file = as_json("simulate two-by-two --config sub/c.toml")
    from_option = as_json("simulate two-by-two --workers sub/big.json,sub/small.toml")
    assert from_file["makespan_s"] == from_option["makespan_s"]


def test_own_policies_serve_one_worker_or_get_a_dispatcher(own, as_json, refused):
    mine = "simulate two-by-two --policy own:Mine --param most=2"
    alone = as_json(mine)["makespan_s"]
    assert as_json(f"{mine} --param dispatch=least_work")["makespan_s"] == alone
    assert as_json(f"{mine} --param dispatch=least_work --workers 2")["makespan_s"] < alone
    assert as_json("simulate two-by-two --policy own:Many --workers 2")["checked"] is True
    for workers in (1, 2):
        refused("'random' is unknown", f"{mine} --workers {workers} --param dispatch=random")


def test_predictions_come_from_an_option_or_a_table(as_json, refused):
    Path("c.toml").write_text('seed = 3\n[predictions]\nlaw = "noise"\nsigma = 0.5\n')
    policy = "simulate gate --policy online@predicted"
    table = as_json(f"{policy} --config c.toml")
    option = as_json(f"{policy} --seed 3 --predictions noise:sigma=0.5")
    assert table["information"] == option["information"] == "predicted"
    assert table["makespan_s"] == option["makespan_s"]
    refused("say it once", "simulate gate --config c.toml --predictions oracle")


@pytest.mark.parametrize(("text", "named"), [
    ("[polcy]\n", "did you mean policy"),
    ("[policy]\nnam = 'fcfs'\n", "field 'policy.nam'"),
    ("[policy]\nname = 3\n", "field 'policy.name'"),
    ("policy = 3\n", "write [policy]"),
    ("[policy]\nparameters = 3\n", "policy.parameters"),
    ("[policy]\nparameters = {stop = 3}\n", "unknown parameter 'stop'"),
    ("[policy]\nname = 'own:Mine'\ninformation = 'none'\n", "class itself"),
    ("[policy]\ninformation = 'some'\n", "information"),
    ("[policy]\nname = ''\n", "c.toml, field 'policy': unknown method ''"),
    ("[policy]\nname = 'vllm'\nparameters = {mode = 3}\n", "c.toml, field 'parameters.mode'"),
    ("[workers]\n", "needs one of count, files and split"),
    ("[workers]\ncount = 2\nfiles = []\n", "needs one of count, files and split"),
    ('[workers]\nsplit = "2X"\n', "is not a split"),
    ("[workers]\ncount = 0\n", "field 'workers.count'"),
    ("[workers]\nfiles = []\n", "does not name workers"),
    ("[workers]\nfiles = ['absent.json']\n", "absent.json, field 'workers': no such file"),
    ("[arrivals]\nlaw = 'poison'\n", "unknown law 'poison'"),
    ("[arrivals]\nlaw = 'poisson'\nrat = 3\n", "no parameter 'rat'"),
    ("seed = -1\n", "field 'seed'"),
    ("seed = 1979-05-27\n", "field 'seed'"),
    ("seed = " + "9" * 5000, "c.toml: a number cannot be read"),
    ("x\n", "c.toml: is not TOML"),
])  # fmt: skip
def test_what_a_file_says_wrong_is_named(own, refused, text, named):
    Path("c.toml").write_text(text)
    refused(named, "simulate two-by-two --config c.toml --allow-code")


@pytest.mark.parametrize(("option", "named"), [
    ("--policy fcfs", "'--policy'"),
    ("--workers 2", "'--workers'"),
    ("--arrivals at_once", "'--arrivals'"),
    ("--seed 4", "'--seed'"),
    ("--param dispatch=round_robin", "'--param dispatch'"),
])  # fmt: skip
def test_nothing_is_said_twice(refused, option, named):
    Path("c.toml").write_text(CONFIG)
    assert "say it once" in refused(named, f"simulate two-by-two --config c.toml {option}")


def test_copies_of_workers_that_differ_are_refused(refused):
    instance = orsched.load("two-by-two")
    one = instance.worker
    both = instance.replace(workers=(one, orsched.Worker(7, one.cost, name="other")))
    save_instance(both, "both.json")
    refused("which one to copy", "simulate both.json --workers 3")


REQUESTS = (
    "prompt_tokens,output_tokens,arrival_s,class,tenant\n"
    "300,60,0,interactive,ada\n250,80,0.5,interactive,bob\n4000,200,0,batch,ada\n"
    "4000,200,0,nightly,bob\n3000,100,0,batch,ada\n"
)
LIMITS = "--clients 2 --class interactive:ttft=1,tpot=0.05 --class nightly:deadline=20"


@pytest.fixture
def classed(done):
    """Put an instance with classes and tenants into the folder."""
    Path("r.csv").write_text(REQUESTS)
    done(f"convert r.csv r.json {LIMITS}")


def test_convert_reads_classes_by_name_with_their_limits(classed, done):
    instance = load_instance("r.json")
    assert [kind.name for kind in instance.classes] == ["interactive", "batch", "nightly"]
    assert instance.requests.service_class.tolist() == [0, 0, 1, 2, 1]
    assert instance.classes[0].tpot_ns == 5 * 10**7
    assert instance.requests.tenants == ("ada", "bob")
    done("convert r.json b.csv")
    done(f"convert b.csv b.json {LIMITS}")
    assert load_instance("b.json").requests == instance.requests


@pytest.mark.parametrize(("option", "says"), [
    ("interactive:ttft=-1", "negative"), ("interactive:tft=1", "no limit 'tft'"),
    ("nightly", "'fast' is not a service class"),
])  # fmt: skip
def test_wrong_classes_are_one_line_with_the_place(refused, option, says):
    Path("r.csv").write_text("prompt_tokens,output_tokens,class\n1,1,fast\n")
    assert refused(says, f"convert r.csv x.json --clients 2 --class {option}").count("\n") == 1
    assert not Path("x.json").exists()


def test_the_block_has_a_line_for_each_method_and_class(classed, done):
    out = done("compare r.json --methods fcfs,vtc")
    methods, classes, fairness = (part.splitlines() for part in out.strip().split("\n\n"))
    assert len(methods) == 6
    assert methods[-2].startswith("* ")  # the best, with its words
    assert methods[-1] == "bound, gap and status are those of the makespan"
    assert classes[0].split()[:2] == ["method", "class"]
    assert [line.split()[:2] for line in classes[2:]] == [
        [method, name] for method in ("fcfs", "vtc") for name in ("interactive", "batch", "nightly")
    ]
    assert "deadlines" in classes[0]
    assert "hits" not in classes[0]
    assert [line.split()[0] for line in fairness[2:]] == ["fcfs", "vtc"]


def test_json_has_the_figures_by_class_and_tenant_in_seconds(classed, done, as_json):
    row = as_json("simulate r.json --policy vtc -o s.json")
    exact = json.loads(Path("s.json").read_text())["results"]
    assert [each["class"] for each in row["classes"]] == ["interactive", "batch", "nightly"]
    ttft = exact["classes"]["interactive"]["ttft_ns"]
    assert row["classes"][0]["ttft_p99_s"] == ttft["p99"] / 1e9
    assert row["classes"][1]["slo_attainment"] is None
    assert [each["tenant"] for each in row["tenants"]] == ["ada", "bob"]
    assert row["service_difference"] == exact["fairness"]["service_difference"]
    done("check r.json s.json")


def test_limits_of_the_command_are_those_of_interactive_requests(classed, done):
    done("simulate r.json --policy vllm --slo-ttft 1000 --slo-tpot 1000 -o s.json")
    exact = json.loads(Path("s.json").read_text())["results"]
    assert exact["classes"]["interactive"]["slo"]["attainment"] == 1
    assert exact["slo"]["attained"] == 2
    done("check r.json s.json")


def test_instances_without_classes_print_what_they_did(done):
    assert "\n\n" not in done("compare two-by-two --methods fcfs").strip()
    (row,) = csv.DictReader(io.StringIO(done("simulate two-by-two --policy fcfs --format csv")))
    assert not {"classes", "tenants", "service_difference"} & set(row)


def test_pictures_of_classes_and_why_there_is_none(classed, done, refused):
    done("simulate r.json --policy vtc --classes c.png")
    assert Path("c.png").read_bytes()[:4] == b"\x89PNG"
    said = "neither classes with limits nor tenants"
    told = refused(said, "simulate two-by-two --policy fcfs --classes d.png")
    assert "--class interactive:ttft=1" in told


def test_several_workers_have_a_row_each_and_methods_an_imbalance(as_json, done):
    rows = as_json("simulate two-by-two --workers 3")["workers"]
    assert [row["worker"] for row in rows] == ["worker-0", "worker-1", "worker-2"]
    assert sum(row["requests"] for row in rows) == 4
    out = done("simulate two-by-two --workers 3")
    assert [line.split()[0] for line in out.splitlines()[-3:]] == [row["worker"] for row in rows]
    assert "busiest and the least busy of 17 workers" in done("simulate two-by-two --workers 17")
    assert "imbalance" in done("compare two-by-two --methods fcfs,vllm --workers 3")
    assert "workers" not in as_json("simulate two-by-two")
