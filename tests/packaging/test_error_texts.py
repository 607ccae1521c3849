"""Error texts: what they name exists, and each says what to do."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import click

from orsched.cli.commands import cli
from tests.packaging.layers import modules

ROOT = Path(__file__).parents[2]
ERRORS = {
    "InputError", "CellError", "InfeasibleError", "PolicyError", "InvalidScheduleError",
    "TimeLimitError", "MissingDependencyError", "unavailable",
}  # fmt: skip
OTHERS = {
    f"--{x}" for x in ["save-result", "save-detailed", "append-result", "additional-config", "head"]
}
"""Options of vLLM and Ray."""


@cache
def sites():
    found = []
    for path in modules(ROOT).values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in ERRORS:
                    found.append((f"{path.relative_to(ROOT)}:{node.lineno}", name, node))
    return found


def texts():
    """Yield (place, text) of errors and of constants, which remedies are made of."""
    for place, _, call in sites():
        for part in (*call.args, *(each.value for each in call.keywords)):
            kinds = ast.Constant | ast.FormattedValue
            found = [node for node in ast.walk(part) if isinstance(node, kinds)]
            pieces = (str(x.value) if isinstance(x, ast.Constant) else "{}" for x in found)
            yield place, "".join(pieces)
    for path in modules(ROOT).values():
        for node in ast.parse(path.read_text()).body:
            value = getattr(node, "value", None)
            if isinstance(node, ast.Assign) and isinstance(value, ast.Constant | ast.BinOp):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", _literal(value)


def _literal(part):
    """Return what a text has that is written down, in order."""
    found = [node for node in ast.walk(part) if isinstance(node, ast.Constant)]
    found.sort(key=lambda node: (node.lineno, node.col_offset))
    return "".join(str(node.value) for node in found)


def options(command):
    """Return the options of a command and, of a group, of all that are in it."""
    own = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    if isinstance(command, click.Group):
        names = command.list_commands(None)
        return own.union(*(options(command.get_command(None, name)) for name in names))
    return own | {"--help"}


def test_options_that_error_texts_name_exist():
    known = options(cli) | OTHERS
    commands = {name: options(cli.get_command(None, name)) for name in cli.list_commands(None)}
    wrong = []
    for place, text in texts():
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text):
            if flag not in known:
                wrong.append((place, flag))
        for name, rest in re.findall(r"orsched ([a-z][a-z-]*)([^,;:()\n#]*)", text):
            flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", rest))
            if name in commands and not flags <= commands[name]:
                wrong.append((place, name, flags - commands[name]))
    assert wrong == []


def test_functions_that_error_texts_name_exist():
    wrong = []
    for place, text in ((at, text) for at, text in texts() if " " in text):
        for path in re.findall(r"(?<![\w/.])orsched((?:\.[A-Za-z_]\w*)+)", text):
            target, names = import_module("orsched"), path.strip(".").split(".")
            for at, name in enumerate(names, 1):
                if not hasattr(target, name):
                    try:
                        import_module("orsched." + ".".join(names[:at]))
                    except ImportError:
                        wrong.append((place, f"orsched{path}"))
                        break
                target = getattr(target, name)
    assert wrong == []


def test_bad_input_comes_with_what_to_do():
    """A remedy, or a problem that says what the value must be."""
    made = [(place, call) for place, name, call in sites() if name == "InputError"]
    bare = [each for each in made if not any(k.arg == "remedy" for k in each[1].keywords)]
    assert [place for place, call in bare if "must" not in ast.unparse(call.args[0])] == []
