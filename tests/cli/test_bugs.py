"""A bug in the library is no invalid schedule: a code of its own, and a traceback on demand."""

from __future__ import annotations

import pytest

from orsched.cli.commands import run


@pytest.fixture
def a_bug(monkeypatch):
    """Loading divides by zero."""
    monkeypatch.setattr("orsched.files.locate.load", lambda source: 1 / 0)


def test_a_bug_has_a_code_of_its_own_and_asks_for_a_report(a_bug, capsys):
    assert run(["solve", "two-by-two"]) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert "ZeroDivisionError: division by zero" in err
    assert "please report" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("way", ["option", "variable"])
def test_the_traceback_is_there_on_demand(a_bug, capsys, monkeypatch, way):
    arguments = ["solve", "two-by-two"]
    if way == "option":
        arguments.insert(0, "--debug")
    else:
        monkeypatch.setenv("ORSCHED_DEBUG", "1")
    assert run(arguments) == 70
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "please report" in err


def test_expected_errors_keep_their_codes_with_debug(capsys):
    assert run(["--debug", "solve", "no-such-instance"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "no-such-instance" in err
    assert "please report" not in err
