"""The command line in this process."""

from __future__ import annotations

import pytest

from orsched.cli.commands import run


@pytest.fixture
def call(capsys):
    """Run a line in this process (further arguments: a word each): exit code, stdout, stderr."""

    def invoke(line, *words):
        capsys.readouterr()
        code = run([*line.split(), *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

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
