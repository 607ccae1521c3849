"""The examples in the docstrings of public names run and give what they say."""

import doctest
import inspect

import pytest

import orsched
from orsched.common import columns as frames

NAMES = {name: getattr(orsched, name) for name in orsched.__all__}
NAMES |= {"frame": frames.frame, "as_frame": frames.as_frame}
SHOWN = sorted(name for name, thing in NAMES.items() if ">>>" in (inspect.getdoc(thing) or ""))


def test_every_public_function_has_an_example():
    functions = {name for name, thing in NAMES.items() if inspect.isroutine(inspect.unwrap(thing))}
    assert len(functions) > 35
    assert functions - set(SHOWN) == set()


@pytest.mark.parametrize("name", SHOWN)
def test_the_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples write files
    thing = inspect.unwrap(NAMES[name])
    finder, names = doctest.DocTestFinder(recurse=False), {name: thing, "orsched": orsched}
    (example,) = finder.find(thing, name, module=False, globs=names)
    outcome = doctest.DocTestRunner().run(example)
    assert outcome.attempted > 0
    assert outcome.failed == 0
