"""Policies named module:Class or by a path: found, blamed for their own errors, allowed."""

import json
import os
import pickle
import subprocess
import sys

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.common.own_code import at_path, class_of, is_own, module_at, path_in
from orsched.planning.study import read_study
from orsched.planning.study import run as run_study
from orsched.runner.vllm_outlet import make_order
from orsched.solving.method_choice import read_spec
from tests.cli.own_policies import RAISES

WRONG_FILES = {
    "no_syntax.py": "def x(:\n", "fails.py": "1 / 0\n", "leaves.py": "raise SystemExit(0)\n",
    "no_text.py": "x = 1\0", "lacks.py": "import json\nimport nowhere_at_all\n",
    "failing_package/__init__.py": "1 / 0\n", "failing_package/inner.py": "",
}  # fmt: skip


@pytest.fixture
def wrong(folder, own):
    """Put wrong files beside the policies."""
    for name in ("a_folder.py", "failing_package"):
        (folder / name).mkdir()
    for name, text in WRONG_FILES.items():
        (folder / name).write_text(text)


def test_a_policy_in_the_working_folder_is_found_by_the_script(folder, own):
    script = "import sys; sys.path.remove(''); from orsched.cli import main; main()"
    words = ("simulate", "two-by-two", "--policy", "own:Mine", "-o", "s.json")
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout
    assert (folder / "s.json").exists()


@pytest.mark.parametrize("kind", ["KeyError", "OSError"])
def test_its_errors_are_shown_as_its_own(own, refused, kind):
    parameters = f"--param stop_at=1 --param kind={kind}"
    err = refused("mine alone", f"simulate two-by-two --policy own:Mine {parameters}")
    assert f'own.py", line {RAISES}, in decide' in err
    assert f"raised {kind}: " in err.splitlines()[-1]
    assert "simulator.py" not in err


@pytest.mark.parametrize(("target", "named"), [
    ("own:Idle", "policy mine"),
    ("own:Broken", "raised RuntimeError: not today"),
    ("own:Absent", "no attribute 'Absent'"),
    ("no_syntax:Mine", "raised SyntaxError"),
    ("fails:Mine", "raised ZeroDivisionError"),
    ("nowhere_at_all:Mine", "No module named"),
    (":", "cannot load"),
    ("own:Leaves", "raised SystemExit: 0"),
    ("own:Deaf", "def on_finish(self, view, request, client)"),
    ("own:Undecided", "def decide(self, view)"),
    ("own:Knowing", "'everything'"),
    ("leaves:Mine", "raised SystemExit: 0"),
    ("no_text:Mine", "raised SyntaxError"),
    ("failing_package.inner:Mine", "raised ZeroDivisionError"),
    ("./own.py:mine", "did you mean Mine?"),
    ("own.py:", "no class is named (it has: Mine, Idle"),
    ("./onw.py:Mine", "no such file (did you mean ./own.py?)"),
    ("failing_package.py:Mine", "no such file"),
    ("a_folder.py:Mine", "is a folder, no Python file"),
    ("own.py:SOME", "is not a subclass of Policy"),
    ("no_syntax.py:Mine", "no_syntax.py, row 1, field 'policy': is not valid Python: "),
    ("fails.py:Mine", "raised ZeroDivisionError"),
    ("lacks.py:Mine", "lacks.py, row 2, field 'policy': cannot be imported: No module named"),
    ("no_text.py:Mine", "no_text.py, field 'policy': is not valid Python: "),
    ("own.py:Broken", "raised RuntimeError: not today"),
])  # fmt: skip
def test_every_failure_ends_in_a_message(wrong, call, target, named):
    """On one worker, and on two where the class is loaded, made and asked in another way."""
    workers = "2" if target.startswith("own") else "1"
    code, _, err = call("simulate two-by-two --workers", workers, "--policy", target)
    assert (code, named in err.splitlines()[-1]) == (2, True), err


@pytest.mark.parametrize("target", ["no_syntax:Mine", "no_syntax.py:Mine", "fails.py:Mine",
                                    "own:mine"])  # fmt: skip
def test_compare_refuses_what_cannot_be_loaded_before_anything_runs(
    wrong, monkeypatch, call, target
):
    monkeypatch.setattr("orsched.solving.solver.solve", None)
    code, _, err = call(f"compare two-by-two --methods own:Mine,{target}")
    assert (code, target.partition(":")[0] in err.splitlines()[-1]) == (2, True), err


def test_what_a_policy_prints_is_no_result(own, call):
    code, out, err = call("simulate two-by-two --policy own:Talks --format json")
    assert (code, json.loads(out)["method"]) == (0, "mine")
    assert "I decide" in err


def test_a_bug_of_the_library_is_not_blamed_on_the_policy(own, monkeypatch, call):
    monkeypatch.setattr("orsched.solving.checked_run.summarise", len)  # too many arguments
    code, _, err = call("simulate two-by-two --policy own:Mine")
    assert code == 70
    assert "a bug in orsched" in err
    assert "own.py" not in err


NAMED = """
from dataclasses import dataclass
from pathlib import Path
from orsched.heuristics.pang import FirstComeFirstServed

Path("imported").touch()

@dataclass
class Noted:
    number: int = 0

class Mine(FirstComeFirstServed):
    name = "NAME"
"""


@pytest.fixture
def here(folder, monkeypatch):
    """A folder with two files of one name, which is that of a module of Python."""
    here = folder / "here"
    for name in ("one", "two + 2@home"):
        (here / name).mkdir(parents=True)
        (here / name / "json.py").write_text(NAMED.replace("NAME", name))
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize(("name", "path"), [
    ("own.py:Mine", "own.py"), ("../a/own.py:Mine+most=2", "../a/own.py"),
    ("C:\\a\\own.py:Mine", "C:\\a\\own.py"), ("own:Mine", None), ("vllm", None),
    ("vllm+file=x.py:y", None), ("own.py", None),
])  # fmt: skip
def test_what_is_a_path(name, path):
    assert path_in(name) == path
    assert is_own(name) == (path is not None or name == "own:Mine")
    assert at_path(name, "/base").endswith(name if path is None else name[len(path) :])


def test_a_path_keeps_its_signs_and_the_class_its_parameters(here):
    spec = read_spec("two + 2@home/json.py:Mine+most=2")
    assert (spec.name, spec.parameters) == ("two + 2@home/json.py:Mine", {"most": 2})
    assert spec.information is None


def test_files_of_one_name_are_two_modules_and_hide_none(here):
    names = ("one", "two + 2@home")
    first, second = (class_of(f"{name}/json.py:Mine", orsched.Policy) for name in names)
    assert (first.name, second.name) == names
    assert sys.modules["json"] is json
    assert first is class_of(f"{here}/one/json.py:Mine", orsched.Policy)
    assert not list((here / "one").glob("__pycache__"))
    made = module_at("one/json.py").Noted(3)
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_file_that_changed_is_loaded_again(here):
    file = here / "one" / "json.py"
    before = class_of("one/json.py:Mine", orsched.Policy)
    file.write_text(NAMED.replace("NAME", "two"))  # the same size, within the same second
    assert class_of("one/json.py:Mine", orsched.Policy).name == "two"
    file.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        module_at("one/json.py")
    file.write_text(NAMED.replace("NAME", "one"))
    after = class_of("one/json.py:Mine", orsched.Policy)
    assert (before.name, after.name) == ("one", "one")


@pytest.mark.parametrize("place", ["one/json.py", "two + 2@home/json.py", None])
@pytest.mark.parametrize("command", [
    "simulate two-by-two --policy", "solve two-by-two --method", "compare two-by-two --methods",
    "run two-by-two --worker virtual --policy", "capacity two-by-two --slo-ttft 5 --policy",
])  # fmt: skip
def test_every_command_takes_a_path(here, call, done, command, place):
    target = place or f"{here}/one/json.py"
    done(command, f"{target}:Mine")
    code, _, err = call(command, f"{target}:Min")
    assert (code, "did you mean Mine?" in err.splitlines()[-1]) == (2, True)


def test_a_study_takes_paths_from_its_file_and_with_consent(here, monkeypatch, call, refused):
    source = here / "one" / "json.py"
    (here / "s.toml").write_text(
        'instances = ["two-by-two"]\npolicies = ["fcfs", "one/json.py:Mine"]\n'
    )
    monkeypatch.chdir(here.parent)
    line = "study here/s.toml --jobs 2"
    said = "here/s.toml, field 'policies.name': the file names code to run"
    assert f"{source})" in refused(said, line)
    code, out, _ = call(f"{line} --allow-code --format json")
    assert code == 0
    assert [row["policy"] for row in json.loads(out)] == ["fcfs", "one/json.py:Mine"]
    assert "(0 run now, 2 before)" in call(f"{line} --allow-code")[2]
    source.write_text(source.read_text() + "# changed\n")
    assert "(1 run now, 1 before)" in call(f"{line} --allow-code")[2]


def test_a_study_names_a_lost_file(here):
    with pytest.raises(InputError, match=r"one/jsn.py, field 'policies.name': no such file"):
        read_study({"instances": ["two-by-two"], "policies": ["one/jsn.py:Mine"]})


def test_a_configuration_takes_a_path_from_its_file_and_with_consent(
    here, monkeypatch, done, refused
):
    (here / "c.toml").write_text('[policy]\nname = "one/json.py:Mine"\n')
    monkeypatch.chdir(here.parent)
    refused("the file names code to run", "simulate two-by-two --config here/c.toml")
    assert "one" in done("simulate two-by-two --config here/c.toml --allow-code")


STUDY = 'instances = ["two-by-two"]\npolicies = [{name = "NAME", parameters = {PARAMETERS}}]\n'
CONFIG = '[policy]\nname = "NAME"\nparameters = {PARAMETERS}\n'
COMMANDS = {"study f.toml --jobs 1": STUDY, "simulate two-by-two --config f.toml": CONFIG}


@pytest.fixture
def named(folder):
    """Put modules into the folder that leave a file where they are imported."""
    (folder / "my_package").mkdir()
    for name in ("my_named_policy", "my_package/__init__", "my_package/inner"):
        (folder / f"{name}.py").write_text(NAMED)


@pytest.fixture
def command(folder, named, call):
    """Write a study or a configuration, run it, and return exit code and stderr."""

    def invoke(line, name, *options, parameters=""):
        text = COMMANDS[line].replace("NAME", name).replace("PARAMETERS", parameters)
        (folder / "f.toml").write_text(text)
        return call(line, *options)[::2]

    return invoke


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("options", [[], ["--allow-code"]])
def test_what_is_no_policy_is_not_called(command, folder, line, options):
    code, err = command(line, "subprocess:Popen", *options, parameters='args = [["touch", "BAD"]]')
    assert code == (4 if options and "study" in line else 2)
    assert ("'subprocess:Popen' is not a subclass of Policy" if options else "subprocess.py") in err
    assert not (folder / "BAD").exists()


@pytest.mark.parametrize("target", ["subprocess:Popen", "os:system", "os:getcwd", "sys:path"])
def test_nor_where_python_names_it(named, target):
    with pytest.raises(InputError, match="is not a subclass of Policy"):
        orsched.simulate(orsched.load("two-by-two"), target, parameters={})
    with pytest.raises(InputError, match="is not a subclass of Order"):
        make_order({"order": target})


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("module", ["my_named_policy", "my_package", "my_package.inner"])
def test_code_that_a_file_names_waits_for_consent(command, folder, line, module):
    code, err = command(line, f"{module}:Mine")
    assert code == 2
    place = os.path.join(folder, *module.split("."))
    place = os.path.join(place, "__init__.py") if module == "my_package" else f"{place}.py"
    assert "f.toml, field 'polic" in err
    assert f"names code to run: {module}:Mine ({place})" in err
    assert "--allow-code" in err
    assert not (folder / "imported").exists()
    assert command(line, f"{module}:Mine", "--allow-code")[0] == 0
    assert (folder / "imported").exists()


@pytest.mark.parametrize("module", ["my_named_policy", "my_package.inner"])
def test_a_list_of_cells_imports_nothing(command, folder, module):
    assert command("study f.toml --jobs 1", f"{module}:Mine", "--list")[0] == 0
    assert not (folder / "imported").exists()


def test_in_python_a_file_needs_consent_and_a_mapping_does_not(folder, named, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    text = STUDY.replace("NAME", "my_named_policy:Mine").replace("PARAMETERS", "")
    (folder / "f.toml").write_text(text)
    for source in ("f.toml", read_study("f.toml")):
        with pytest.raises(InputError, match="allow_code=True") as caught:
            run_study(source, "out")
        assert (caught.value.file, caught.value.field) == ("f.toml", "policies.name")
        assert not (folder / "imported").exists()
    policies = ["my_named_policy:Mine", "my_package/inner.py:Mine"]
    given = {"instances": ["two-by-two"], "policies": policies}
    rows = run_study("f.toml", "out", jobs=1, allow_code=True).rows
    rows += run_study(given, "other", jobs=1).rows
    assert [(row["policy"], row["status"]) for row in rows] == [
        (policy, "ok") for policy in (policies[0], *policies)
    ]
