"""The command line in this process, each test in an empty folder."""

import json
import sys

import pytest

from orsched.cli.commands import run
from tests.cli.own_policies import SOURCE


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder; what a test loads from such a folder is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path.parent)):
            del sys.modules[name]


@pytest.fixture
def own(folder):
    """Put a file of policies into the folder."""
    (folder / "own.py").write_text(SOURCE)


@pytest.fixture
def call(capsys):
    """Run a line in this process (further arguments: a word each): exit code, stdout, stderr."""

    def invoke(line, *words):
        capsys.readouterr()
        code = run([*str(line).split(), *map(str, words)])
        return code, *capsys.readouterr()

    return invoke


@pytest.fixture
def refused(call):
    """Run a command that is refused with what is said; return what is on stderr."""

    def invoke(said, *words):
        code, out, err = call(*words)
        assert (code, out) == (2, ""), err
        assert said in err
        return err

    return invoke


@pytest.fixture
def done(call):
    """Run a command that succeeds; return what it prints."""

    def invoke(*words):
        code, out, err = call(*words)
        assert code == 0, err
        return out

    return invoke


@pytest.fixture
def as_json(done):
    """Run a command that succeeds; return the JSON that it prints."""
    return lambda *words: json.loads(done(*words, "--format", "json"))
