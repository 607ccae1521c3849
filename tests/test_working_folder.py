"""What lies in the working folder is not imported, here or in a child, unless it is asked for."""

import subprocess
import sys
import zipfile
from importlib.util import find_spec

import pytest

from orsched.models.killable_call import run_in_child

PACKAGES = ("numpy", "pandas", "click", "ortools", "pyscipopt", "highspy", "torch", "sitecustomize")
STUDY = """
instances = ["two-by-two"]
seeds = [0, 1]
policies = ["fcfs"]
"""
POLICY = "from orsched.heuristics.pang import FirstComeFirstServed as Mine\n"

COMMANDS = {
    "simulate": ["simulate", "two-by-two"],
    "own": ["simulate", "two-by-two", "--policy", "own_policy:Mine"],
    "exact": ["solve", "gate", "--method", "exact"],
    "study": ["study", "s.toml", "--jobs", "2"],
    "own-study": ["study", "own.toml", "--jobs", "1", "--allow-code"],
    "run": ["run", "two-by-two", "--worker", "torch", "--device", "cpu", "--workers-as", "process"],
}


@pytest.fixture
def planted(tmp_path):
    """A folder with a module of each name of the standard library, and of some packages."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in [name for name in (*sys.stdlib_module_names, *PACKAGES) if find_spec(name)]:
        text = f"with open({str(folder / 'SEEN')!r}, 'a') as s: s.write(__name__ + ' ')\n"
        (folder / f"{name}.py").write_text(text)
    (folder / "s.toml").write_text(STUDY)
    (folder / "own.toml").write_text(STUDY.replace("fcfs", "own_policy:Mine"))
    (folder / "own_policy.py").write_text(POLICY)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "launch.py").write_text("from orsched.cli import main; main()\n")
    return folder


SHORT = {"script": ("simulate", "exact", "study", "own-study"), "module": ("own",)}
STARTS = [(name, start, name in short) for start, short in SHORT.items() for name in COMMANDS]


@pytest.mark.parametrize(("command", "start"), [
    pytest.param(name, start, marks=() if quick else pytest.mark.full)
    for name, start, quick in STARTS
])  # fmt: skip
def test_no_module_in_the_working_folder_runs(planted, command, start):
    """A script (as ``orsched`` is) and ``python -m orsched``, with all ways to a child."""
    if command == "run":
        pytest.importorskip("torch")
    launcher = [planted.parent / "bin" / "launch.py"] if start == "script" else ["-m", "orsched"]
    line = [sys.executable, *launcher, *COMMANDS[command]]
    done = subprocess.run(line, cwd=planted, capture_output=True, text=True, timeout=300)
    seen = planted / "SEEN"
    assert not seen.exists(), seen.read_text()
    assert done.returncode == 0, done.stderr


def known_methods(payload, send):
    from orsched.common.registry import names

    return names("methods")


def test_a_child_imports_what_its_parent_does(tmp_path, monkeypatch):
    """Zipped modules and the entry points of a plug-in that lies on a path of its own."""
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("zipped_target.py", "def three(payload, send):\n    return 3\n")
    plugin = tmp_path / "plug" / "plug_for_a_test-1.0.dist-info"
    plugin.mkdir(parents=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-for-a-test\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[orsched.methods]\nplugged = plugged:method\n")
    monkeypatch.setattr(
        sys, "path", [str(tmp_path / "code.zip"), str(tmp_path / "plug"), *sys.path]
    )
    import zipped_target

    assert run_in_child(zipped_target.three, None, 60).value == 3
    assert "plugged" in run_in_child(known_methods, None, 60).value
