"""``orsched simulate`` on other workers, with other arrivals, classes and tenants."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest

import orsched
from orsched.cli.commands import run
from orsched.files import load_instance, load_schedule, save_cost, save_instance
from orsched.instances import with_arrivals
from orsched.solving.scenario import read_workers, with_workers

MINE = """
from orsched import Policy, decode_rounds, prefill_stage

class Mine(Policy):
    name = "mine"

    def __init__(self, most=1):
        self.queue, self.most = [], most

    def on_arrival(self, view, request):
        self.queue.append(request)

    def decide(self, view):
        count = min(self.most, len(self.queue), view.free_clients)
        if count:
            return prefill_stage([self.queue.pop(0) for _ in range(count)])
        return decode_rounds() if view.running else None

class Many(Mine):
    many_workers = True
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "my_simulated_policy.py").write_text(MINE)
    yield tmp_path
    sys.modules.pop("my_simulated_policy", None)


@pytest.fixture
def simulate(folder, capsys):
    """Run the command; return its row, or its exit code and last line on stderr."""

    def invoke(*arguments):
        code = run(["simulate", *map(str, arguments), "--format", "json"])
        out, err = capsys.readouterr()
        return json.loads(out) if code == 0 else (code, err.splitlines()[-1])

    return invoke


def test_options_make_the_scenario(simulate, folder):
    row = simulate(
        "two-by-two", "--workers", 2, "--arrivals", "poisson:rate=3", "--seed", 4, "-o", "s.json",
        "--param", "dispatch=fewest_requests",
    )  # fmt: skip
    instance = with_arrivals(with_workers(orsched.load("two-by-two"), 2), "poisson:rate=3", 4)
    result = orsched.solve(instance, "fcfs", parameters={"dispatch": "fewest_requests"}, seed=4)
    assert row["makespan_s"] == result.makespan
    assert row["checked"] is True
    schedule = load_schedule(folder / "s.json")
    assert schedule.seed == 4
    assert schedule.parameters == {"dispatch": "fewest_requests", "steal": False}
    assert schedule.instance_sha256 == instance.sha256


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


def test_a_file_says_the_same_as_options(simulate, folder):
    (folder / "c.toml").write_text(CONFIG)
    row = simulate("two-by-two", "--config", "c.toml")
    same = simulate(
        "two-by-two", "--workers", 2, "--arrivals", "poisson:rate=3", "--seed", 4,
        "--param", "dispatch=fewest_requests",
    )  # fmt: skip
    assert {**row, "decision_p99_s": 0} == {**same, "decision_p99_s": 0}
    more = simulate("two-by-two", "--config", "c.toml", "--param", "steal=true")
    assert more["checked"] is True


def test_worker_files_are_json_or_toml_beside_the_configuration(simulate, folder):
    worker = orsched.load("two-by-two").worker
    values = {**worker.to_dict(), "clients": 5, "name": "big"}
    (folder / "sub").mkdir()
    (folder / "sub" / "big.json").write_text(json.dumps(values))
    save_cost(orsched.AffineCost(), folder / "sub" / "pang.json")
    (folder / "sub" / "small.toml").write_text('clients = 1\ncost = "pang.json"\n')
    (folder / "sub" / "c.toml").write_text('[workers]\nfiles = ["big.json", "small.toml"]\n')
    assert [w.clients for w in read_workers("big.json,small.toml", folder / "sub")] == [5, 1]
    from_file = simulate("two-by-two", "--config", "sub/c.toml")
    from_option = simulate("two-by-two", "--workers", "sub/big.json,sub/small.toml")
    assert from_file["makespan_s"] == from_option["makespan_s"]


def test_own_policies_serve_one_worker_or_get_a_dispatcher(simulate):
    target = "my_simulated_policy:Mine"
    alone = simulate("two-by-two", "--policy", target, "--param", "most=2")
    dispatched = simulate(
        "two-by-two", "--policy", target, "--param", "most=2", "--param", "dispatch=least_work"
    )
    assert dispatched["makespan_s"] == alone["makespan_s"]
    shared = simulate(
        "two-by-two", "--policy", target, "--workers", 2, "--param", "most=2",
        "--param", "dispatch=least_work",
    )  # fmt: skip
    assert shared["makespan_s"] < alone["makespan_s"]
    whole = simulate("two-by-two", "--policy", "my_simulated_policy:Many", "--workers", 2)
    assert whole["checked"] is True
    for workers in (1, 2):
        code, error = simulate(
            "two-by-two", "--policy", target, "--workers", workers, "--param", "dispatch=random"
        )
        assert (code, "'random' is unknown" in error) == (2, True)


def test_predictions_come_from_an_option_or_a_table(simulate, folder):
    (folder / "c.toml").write_text('seed = 3\n[predictions]\nlaw = "noise"\nsigma = 0.5\n')
    policy = ("--policy", "online@predicted")
    table = simulate("gate", *policy, "--config", "c.toml")
    option = simulate("gate", *policy, "--seed", 3, "--predictions", "noise:sigma=0.5")
    assert table["information"] == option["information"] == "predicted"
    assert table["makespan_s"] == option["makespan_s"]
    code, error = simulate("gate", "--config", "c.toml", "--predictions", "oracle")
    assert (code, "say it once" in error) == (2, True)
    assert simulate("gate", "--predictions", "magic")[0] == 2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[polcy]\n", "did you mean policy"),
        ("[policy]\nnam = 'fcfs'\n", "field 'policy.nam'"),
        ("[policy]\nname = 3\n", "field 'policy.name'"),
        ("policy = 3\n", "write [policy]"),
        ("[policy]\nparameters = 3\n", "policy.parameters"),
        ("[policy]\nparameters = {stop = 3}\n", "no parameter 'stop'"),
        ("[policy]\nname = 'my_simulated_policy:Mine'\ninformation = 'none'\n", "class itself"),
        ("[policy]\ninformation = 'some'\n", "information"),
        ("[policy]\nname = ''\n", "c.toml, field 'policy': unknown method ''"),
        ("[policy]\nname = 'vllm'\nparameters = {mode = 3}\n", "c.toml, field 'parameters.mode'"),
        ("[workers]\n", "needs one of count, files and split"),
        ("[workers]\ncount = 2\nfiles = []\n", "needs one of count, files and split"),
        ('[workers]\nsplit = "2X"\n', "is not a split"),
        ("[workers]\ncount = 0\n", "field 'workers.count'"),
        ("[workers]\nfiles = []\n", "does not name workers"),
        ("[workers]\nfiles = ['absent.json']\n", "absent.json, field 'workers': no such file"),
        ("[arrivals]\nlaw = 'poison'\n", "no law 'poison'"),
        ("[arrivals]\nlaw = 'poisson'\nrat = 3\n", "no parameter 'rat'"),
        ("seed = -1\n", "field 'seed'"),
        ("seed = 1979-05-27\n", "field 'seed'"),
        ("x\n", "c.toml: is not TOML"),
    ],
)
def test_what_a_file_says_wrong_is_named(simulate, folder, text, named):
    (folder / "c.toml").write_text(text)
    code, error = simulate("two-by-two", "--config", "c.toml", "--allow-code")
    assert code == 2
    assert named in error


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--policy", "fcfs"], "'--policy'"),
        (["--workers", "2"], "'--workers'"),
        (["--arrivals", "at_once"], "'--arrivals'"),
        (["--seed", "4"], "'--seed'"),
        (["--param", "dispatch=round_robin"], "'--param dispatch'"),
    ],
)
def test_nothing_is_said_twice(simulate, folder, arguments, named):
    (folder / "c.toml").write_text(CONFIG)
    code, error = simulate("two-by-two", "--config", "c.toml", *arguments)
    assert code == 2
    assert named in error
    assert "say it once" in error


@pytest.mark.parametrize("workers", [1, 2])
def test_parameters_that_an_own_policy_lacks_are_named(simulate, workers):
    arguments = ("two-by-two", "--policy", "my_simulated_policy:Mine", "--workers", workers)
    code, error = simulate(*arguments, "--param", "mst=2")
    assert code == 2
    assert "field '--param': my_simulated_policy:Mine" in error
    assert "'mst' (did you mean most? known: most)" in error


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--workers", "0"], "below 1"),
        (["--workers", "-2"], "below 1"),
        (["--workers", "2.5"], "2.5, field 'workers': no such file (give a whole number"),
        (["--workers", ","], "',' does not name workers"),
        (["--workers", "²"], "², field 'workers': no such file (give a whole number"),
        (["--workers", "+-3"], "+-3, field 'workers': no such file (give a whole number"),
        (["--workers", "9" * 5000], "field 'workers'"),
        (["--workers", "list.json"], "list.json: holds no worker"),
        (["--workers", "no-cost.toml"], "no-cost.toml, field 'cost': there is no cost-model file"),
        (["--arrivals", "poisson"], "lacks rate"),
        (["--arrivals", "replay:rate=3"], "no rate to scale"),
        (["--seed", "-1"], "seed"),
        (["--config", "absent.toml"], "no such file"),
        (["--policy", "nothing"], "field '--policy': unknown method 'nothing'"),
        (["--policy", "fcsf"], "did you mean fcfs?"),
        (["--policy", ""], "unknown method ''"),
        (["--policy", "vllm", "--param", "chunks=1"], "field '--param': there is no parameter"),
        (["--policy", "vllm+mode=all"], "field 'parameters.mode': 'all' is unknown"),
        (["--policy", "online", "--param", "gate=x"], "field 'parameters.gate'"),
        (["--policy", "fcfs@clairvoyant"], "field '--information'"),
    ],
)
def test_wrong_options_are_named(simulate, folder, arguments, named):
    (folder / "list.json").write_text("[1]")
    (folder / "no-cost.toml").write_text('clients = 2\ncost = "absent.json"\n')
    code, error = simulate("two-by-two", *arguments)
    assert code == 2
    assert named in error


def test_copies_of_workers_that_differ_are_refused(simulate, folder):
    instance = orsched.load("two-by-two")
    one = instance.worker
    both = instance.replace(workers=(one, orsched.Worker(7, one.cost, name="other")))
    save_instance(both, folder / "both.json")
    code, error = simulate("both.json", "--workers", 3)
    assert code == 2
    assert "which one to copy" in error


def test_an_output_does_not_replace_the_configuration(simulate, folder):
    (folder / "c.json").write_text("")
    code, error = simulate("two-by-two", "--config", "c.json", "-o", "c.json")
    assert code == 2
    assert "would be overwritten" in error


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (["--workers", "worker.toml"], ["-o", "cost.json"]),
        (["--workers", "plain.json,worker.toml"], ["--trace", "plain.json"]),
        (["--config", "c.toml"], ["-o", "plain.json"]),
        (["--config", "c.toml"], ["--trace", "cost.json"]),
    ],
)
def test_an_output_does_not_replace_a_worker_or_its_cost_model(simulate, folder, options, output):
    worker = orsched.load("two-by-two").worker
    save_cost(worker.cost, folder / "cost.json")
    (folder / "plain.json").write_text(json.dumps(worker.to_dict()))
    (folder / "worker.toml").write_text('clients = 2\ncost = "cost.json"\n')
    (folder / "c.toml").write_text('[workers]\nfiles = ["plain.json", "worker.toml"]\n')
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, error = simulate("two-by-two", *options, *output)
    assert code == 2
    assert "would be overwritten" in error
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_number_that_python_does_not_read_is_named(simulate, folder):
    (folder / "c.toml").write_text("seed = " + "9" * 5000)
    code, error = simulate("two-by-two", "--config", "c.toml")
    assert code == 2
    assert "c.toml: a number cannot be read" in error


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


def test_the_block_has_a_line_for_each_method_and_class(classed, done):
    methods, classes, fairness = (
        done("compare", str(classed), "--methods", "fcfs,vtc").strip().split("\n\n")
    )
    assert len(methods.splitlines()) == 6
    assert methods.splitlines()[-2].startswith("* ")  # the best, with its words
    assert methods.splitlines()[-1] == "bound, gap and status are those of the makespan"
    lines = classes.splitlines()
    assert lines[0].split()[:2] == ["method", "class"]
    assert [line.split()[:2] for line in lines[2:]] == [
        [method, name] for method in ("fcfs", "vtc") for name in ("interactive", "batch", "nightly")
    ]
    assert "deadlines" in lines[0]
    assert "hits" not in lines[0]
    assert [line.split()[0] for line in fairness.splitlines()[2:]] == ["fcfs", "vtc"]


def test_json_has_the_figures_by_class_and_tenant_in_seconds(classed, tmp_path, done):
    out = tmp_path / "s.json"
    arguments = ["simulate", str(classed), "--policy", "vtc", "--format", "json", "-o", str(out)]
    row = json.loads(done(*arguments))
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


def test_instances_without_classes_print_what_they_did(done):
    assert "\n\n" not in done("compare two-by-two --methods fcfs").strip()
    (row,) = csv.DictReader(io.StringIO(done("simulate two-by-two --policy fcfs --format csv")))
    assert not {"classes", "tenants", "service_difference"} & set(row)


def test_pictures_of_classes_and_why_there_is_none(classed, tmp_path, capsys, refused):
    picture = tmp_path / "c.png"
    assert run(["simulate", str(classed), "--policy", "vtc", "--classes", str(picture)]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
    capsys.readouterr()
    other = str(tmp_path / "d.png")
    told = refused(
        "neither classes with limits nor tenants",
        "simulate two-by-two --policy fcfs --classes",
        other,
    )
    assert "--class interactive:ttft=1" in told
