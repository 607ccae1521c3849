"""Help, descriptions and completion: what the command line says of itself."""

import os
import re
import shutil
import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete

from orsched.cli import cli
from orsched.cli.commands import run
from orsched.cli.info_command import TOPICS
from orsched.instances.catalog import GENERATORS, SHIPPED
from orsched.solving.method_choice import method_names


def _groups(command, path=()):
    yield path, command
    for name in command.list_commands(None):
        sub = command.get_command(None, name)
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
    assert [line.split()[0] for line in listed] == group.list_commands(None)  # one line each
    for line in listed:
        assert len(line) <= 80
        assert "..." not in line
        assert line.endswith(".")


COMMANDS = [
    ((*path, name), command)
    for path, group in GROUPS
    for name in group.list_commands(None)
    for command in [group.get_command(None, name)]
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
    for name in cli.list_commands(None):
        command = cli.get_command(None, name)
        for flag in ("--help", "--help-all")[: 1 if isinstance(command, click.Group) else 2]:
            assert run([name, flag]) == 0
            for line in capsys.readouterr().out.splitlines():
                assert len(line) <= int(columns), line


def test_help_needs_no_numpy():
    """It would take longer than all the rest; the list of commands imports none of them."""
    code = (
        "import sys; from orsched.cli.commands import cli, run; run(['--help']);"
        "assert not [name for name in sys.modules if name.endswith(('_command', '_commands'))];"
        "assert all(cli.get_command(None, name) for name in cli.list_commands(None));"
        "sys.exit('numpy' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    assert ended.returncode == 0


def complete(*words):
    """Return what click offers for the last word, and whether the shell adds files."""
    shell = ShellComplete(cli, {}, "orsched", "_ORSCHED_COMPLETE")
    items = shell.get_completions(list(words[:-1]), words[-1])
    names = [item.value for item in items if item.type == "plain"]
    return names, any(item.type == "file" for item in items)


@pytest.mark.parametrize("command", ["solve", "simulate", "bound", "check", "report", "capacity"])
def test_instances_and_files(command):
    assert complete(command, "") == (list(SHIPPED), True)
    assert complete(command, "pang") == (["pang-100x20"], True)


@pytest.mark.parametrize(("line", "offered"), [
    ("solve two-by-two --method ", method_names()),
    ("solve two-by-two --method hy", ["hybrid", "hygen"]),
    ("simulate two-by-two --policy=scl", ["scls", "scls_continuous"]),
    ("compare two-by-two --methods fcfs,hy", ["fcfs,hybrid", "fcfs,hygen"]),
    ("compare two-by-two --methods fcfs,", [f"fcfs,{name}" for name in method_names()]),
    ("compare two-by-two --methods fcfs,hybrid@p", ["fcfs,hybrid@predicted"]),
    ("solve two-by-two --method windows+", ["windows+threads="]),
    ("solve two-by-two --method vllm+mode=mixed+ch", ["vllm+mode=mixed+chunked_prefill="]),
    ("simulate x --policy gittins --param gate", ["gate=", "gate_aging="]),
    ("simulate x --policy os:path --param ", []),
    ("simulate x --param ", []),
    ("generate ", list(GENERATORS)),
    ("generate gsm8k --set pre", ["prefill_cap_tokens=", "prediction_sigma="]),
    ("generate nothing --set ", []),
    ("simulate x --arrivals p", ["poisson"]),
    ("simulate x --arrivals gamma:rate=2,", ["gamma:rate=2,rate=", "gamma:rate=2,cv="]),
    ("compare x --predictions no", ["noise"]),
    ("convert x y.json --from az", ["azure"]),
])  # fmt: skip
def test_what_is_offered(line, offered):
    """Methods and their parameters, generators and theirs, laws and formats; no files."""
    assert complete(*line.split(" ")) == (offered, False)


def test_names_and_files_are_offered():
    assert complete("compare", "gsm8k") == (["gsm8k", "gsm8k-llama65b"], True)
    assert complete("simulate", "two-by-two", "--policy", "./own") == ([], True)
    assert complete("convert", "azure-co")[1]
    assert "seed=" not in complete("generate", "gsm8k", "--set", "")[0]
    assert complete("info", "hy") == (["hybrid", "hygen"], True)
    assert "levels" in complete("info", "le")[0]
    found, files = complete("solve", "x", "--cost", "")
    assert files
    assert all(isinstance(name, str) for name in found)


def test_no_code_of_the_users_own_is_imported(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert complete("simulate", "x", "--policy", "mine:Policy+")[0] == []
    assert complete("simulate", "x", "--policy", "mine:Policy", "--param", "")[0] == []


def _orsched(instruction, **variables):
    return subprocess.run(
        [sys.executable, "-c", "from orsched.cli import main; main()"],
        env={**os.environ, "_ORSCHED_COMPLETE": instruction, **variables},
        capture_output=True,
        text=True,
    )


NO_BASH = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


@pytest.mark.parametrize("shell", [pytest.param("bash", marks=NO_BASH), "zsh", "fish"])
def test_the_script_of_each_shell(shell):
    done = _orsched(f"{shell}_source")
    assert done.returncode == 0, done.stderr
    assert "_ORSCHED_COMPLETE" in done.stdout


@NO_BASH
def test_bash_completes_in_a_line():
    words = "orsched compare pang-100x20 --methods fcfs,hy"
    done = _orsched("bash_complete", COMP_WORDS=words, COMP_CWORD="4")
    assert done.stdout.split() == ["plain,fcfs,hybrid", "plain,fcfs,hygen"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("vllm", "none, predicted, clairvoyant (the first is the default)"),
        ("vllm", "arXiv 2309.06180"),
        ("vllm", "max_num_batched_tokens = 2048"),
        ("vllm", "the token budget, most tokens of a step"),
        ("vllm", "E.g. vllm+order=arrival"),
        ("windows", "yes: --gap, --time-limit and --iterations end it"),
        ("windows", "threads = 2"),
        ("exact", "search = auto"),
        ("auto", "It has no parameters."),
        ("gsm8k", "requests = 1319"),
        ("gsm8k", "E.g. orsched generate gsm8k --set requests=1319"),
        ("uniform", "clients = (required)"),
        ("affine", "round_client_ns = 210000"),
        ("levels", "requests"),  # an instance and a cost model have this name
        ("", "first (vLLM V0, Pang's baseline) [none, predicted, clairvoyant]"),
        ("", "bound at full scale [clairvoyant]"),
    ],
)
def test_a_description_shows_parameters_information_and_where_it_is_from(done, name, shown):
    text = done(f"info {name}")
    assert shown in (text if name else " ".join(text.split()))


@pytest.mark.parametrize(
    "name", ["", "machines", "vllm", "windows", "roofline", "gsm8k", "h100-llama3-8b"]
)
def test_lines_fit_a_terminal_of_80_columns(done, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    shown = done(f"info {name}")
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown


def test_json_has_the_same(as_json):
    method = as_json("info online")
    assert method["workers"] == "one"
    steal = next(each for each in method["parameters"] if each["name"] == "steal")
    assert (steal["default"], steal["required"]) == (True, False)
    generator = as_json("info uniform")
    assert [each["required"] for each in generator["arguments"]][:3] == [True, True, False]
    assert "default" not in generator["arguments"][0]


def test_more_topics_can_be_added(monkeypatch, done):
    entry = (lambda name: name == "kernels", lambda name, style: print("all kernels", style))
    monkeypatch.setattr("orsched.cli.info_command.TOPICS", [*TOPICS, entry])
    assert done("info kernels") == "all kernels table\n"


def test_a_method_says_what_it_minimises(done, as_json):
    found = {name: done(f"info {name}") for name in ("windows", "exact", "fcfs")}
    lines = {name: re.search("^minimises.*$", text, re.MULTILINE)[0]
             for name, text in found.items()}  # fmt: skip
    assert lines["windows"].split() == ["minimises", "makespan"]
    assert "makespan, " in lines["exact"]
    assert "jct_mean" in found["exact"]
    assert "nothing" in lines["fcfs"]
    assert as_json("info windows")["objectives"] == ["makespan"]
