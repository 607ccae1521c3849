"""Gates of one's own: objects, classes and names; in Python, on the command line, from files."""

import json

import pytest

import orsched
from orsched.cli.commands import run
from orsched.heuristics.gates import GATES, make_gate
from tests.refusals import refused

SOURCE = """
class Never:
    '''Wait as long as something runs.'''

    def start(self, view):
        self.taken = 0

    def rounds_to_wait(self, view, waiting):
        return 1

    def stage_taken(self, view):
        self.taken += 1


class Bare:
    def start(self, view): ...


class Needs(Never):
    def __init__(self, patience): ...


class Broken(Never):
    def rounds_to_wait(self, view, waiting):
        raise RuntimeError("stuck")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_gates.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(SOURCE, "own_gates", "exec"), names)
    return names


@pytest.mark.parametrize("method", ["online", "offline", "hybrid", "robust@clairvoyant"])
def test_an_object_a_class_and_a_name_decide_alike_and_are_named_in_the_result(own, method):
    instance = orsched.load("pang-100x20")
    if method.startswith("robust"):
        method = "robust"
        instance = instance.replace(
            requests=instance.requests.replace(predicted_tokens=instance.requests.output_tokens)
        )
    gates = (own["Never"](), own["Never"], "own_gates.py:Never")
    found = [
        orsched.solve(instance, method, parameters={"gate": gate}, iterations=1) for gate in gates
    ]
    # With the gate that never opens while something runs, batches follow one another.
    assert len({result.schedule.makespan_ns for result in found}) == 1
    assert found[0].schedule.makespan_ns > orsched.solve(instance, method, iterations=1
                                                         ).schedule.makespan_ns  # fmt: skip
    assert found[2].schedule.parameters["gate"] == "own_gates.py:Never"
    assert found[0].schedule.parameters["gate"].endswith(":Never")
    assert not hasattr(gates[0], "taken")  # it is copied for each run


@pytest.mark.parametrize(("words", "gate"), [
    ("unknown gate 'nothing'", "nothing"),
    ("5 is not a gate", 5),
    ("is not a gate", object()),
    ("no such file", "missing.py:Never"),
    ("is not a subclass of Gate", "own_gates.py:Bare"),
    ("cannot make a gate of Needs", "own_gates.py:Needs"),
])  # fmt: skip
def test_what_is_refused(own, words, gate):
    error = refused(words, orsched.solve, orsched.load("gate"), "online",
                    parameters={"gate": gate})  # fmt: skip
    assert error.remedy


def test_named_gates_are_fresh_each_time():
    for name in GATES:
        assert make_gate(name) is not make_gate(name)
        assert isinstance(make_gate(name), orsched.Gate)


def test_the_command_line_takes_a_path_and_blames_its_code(own, capsys):
    line = ["simulate", "gate", "--policy", "online", "--param"]
    assert run([*line, "gate=own_gates.py:Never", "--format", "json"]) == 0
    slow = json.loads(capsys.readouterr().out)["makespan_s"]
    assert run(["simulate", "gate", "--policy", "online+gate=own_gates:Never",
                "--format", "json"]) == 0  # fmt: skip
    assert json.loads(capsys.readouterr().out)["makespan_s"] == slow
    assert run([*line, "gate=own_gates.py:Broken"]) == 2
    assert "raised RuntimeError: stuck" in capsys.readouterr().err


def test_a_file_that_names_a_gate_needs_consent(own, capsys):
    with open("run.toml", "w") as file:
        file.write('[policy]\nname = "online"\nparameters = {gate = "own_gates:Never"}\n')
    with open("grid.toml", "w") as file:
        file.write('instances = ["gate"]\n[[policies]]\nname = "online"\n'
                   'parameters = {gate = ["own_gates.py:Never"]}\n')  # fmt: skip
    for line in (["simulate", "gate", "--config", "run.toml"], ["study", "grid.toml", "-o", "out"]):
        assert run(line) == 2
        said = capsys.readouterr().err
        assert "names code to run: own_gates" in said
        assert "--allow-code" in said
    assert run(["simulate", "gate", "--config", "run.toml", "--allow-code"]) == 0
