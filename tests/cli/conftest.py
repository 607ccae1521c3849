"""The command line in this process."""

from __future__ import annotations

import pytest

from orsched.cli.commands import run


@pytest.fixture
def call(capsys):
    """Run the command line in this process; return (exit code, stdout, stderr)."""

    def invoke(*args):
        code = run([str(a) for a in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke
