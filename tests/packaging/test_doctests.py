"""The examples in the docstrings of public names run and give what they say."""

import doctest
import inspect

import pytest

import orsched
from orsched.common import frames

NAMES = {name: getattr(orsched, name) for name in orsched.__all__}
NAMES |= {"frame": frames.frame, "as_frame": frames.as_frame}
SHOWN = sorted(name for name, thing in NAMES.items() if ">>>" in (inspect.getdoc(thing) or ""))


def test_the_functions_of_the_pieces_have_an_example():
    assert {"pack", "batch", "offload", "sort_with_stealing", "full_mip", "Gate"} <= set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_the_example_runs(name):
    finder, names = doctest.DocTestFinder(recurse=False), {name: NAMES[name], "orsched": orsched}
    (example,) = finder.find(NAMES[name], name, module=False, globs=names)
    outcome = doctest.DocTestRunner().run(example)
    assert outcome.attempted > 0
    assert outcome.failed == 0
