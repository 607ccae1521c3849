"""Help texts fit a terminal, say each command in a line, and first what most people use."""

from __future__ import annotations

import re
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


COMMANDS = [
    ((*path, name), command)
    for path, group in GROUPS
    for name, command in sorted(group.commands.items())
    if not isinstance(command, click.Group)
]


def _listed(capsys, *words):
    """Return the options that a help lists, and its last line."""
    assert run([*words]) == 0
    shown = capsys.readouterr().out
    lines = shown[shown.index("Options:\n") :].splitlines()
    found = [re.match(r"  (?:-\w, )?(--[a-z-]+)", line) for line in lines]
    return [match[1] for match in found if match], lines[-1]


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(p) for p, _ in COMMANDS])
def test_help_shows_what_most_people_use_and_help_all_every_option(path, command, capsys):
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    flags = {p.name: next(flag for flag in p.opts if flag.startswith("--")) for p in options}
    usual = command.usual or {*flags} - {"help_all"}
    assert 5 <= len(usual) <= 10 or not command.usual
    assert len(usual) <= 10
    assert usual <= set(flags)
    every, _ = _listed(capsys, *path, "--help-all")
    assert sorted(every) == sorted([*flags.values(), "--help"])
    shown, last = _listed(capsys, *path, "--help")
    assert sorted(shown) == sorted([*(flags[name] for name in usual), "--help-all", "--help"])
    more = len(every) - len(shown)
    said = f"orsched {' '.join(path)} --help-all shows {more} more options."
    assert last == said if more else "more options" not in last


@pytest.mark.parametrize("columns", ["60", "80", "100"])
def test_no_help_line_is_wider_than_the_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    for name, command in sorted(cli.commands.items()):
        for flag in ("--help", "--help-all")[: 1 if isinstance(command, click.Group) else 2]:
            assert run([name, flag]) == 0
            for line in capsys.readouterr().out.splitlines():
                assert len(line) <= int(columns), line


def test_help_needs_no_numpy():
    """It would take longer than all the rest."""
    code = "import sys, orsched.cli.commands; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
