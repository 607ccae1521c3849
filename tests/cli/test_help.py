"""Help texts fit a terminal of 80 columns, and say each command in one whole line."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from orsched.cli import cli
from orsched.cli.commands import run


def _groups(command, path=()):
    yield path, command
    for name, sub in sorted(getattr(command, "commands", {}).items()):
        if isinstance(sub, click.Group):
            yield from _groups(sub, (*path, name))


GROUPS = list(_groups(cli))


@pytest.mark.parametrize(
    ("path", "group"), GROUPS, ids=[" ".join(p) or "orsched" for p, _ in GROUPS]
)
def test_every_summary_is_whole_at_80_columns(path, group, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    listed = shown.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == sorted(group.commands)  # one line each
    for line in listed:
        assert len(line) <= 80
        assert "..." not in line
        assert line.endswith(".")


@pytest.mark.parametrize("columns", ["60", "80", "100"])
def test_no_help_line_is_wider_than_the_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    for name in sorted(cli.commands):
        assert run([name, "--help"]) == 0
        for line in capsys.readouterr().out.splitlines():
            assert len(line) <= int(columns), line


def test_help_needs_no_numpy():
    """It would take longer than all the rest."""
    code = "import sys, orsched.cli.commands; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
