"""What type checkers are told of ``Requests`` is what it takes."""

from __future__ import annotations

import ast
import inspect

from orsched.data import requests
from orsched.data.requests import Requests


def test_the_signature_for_type_checkers_is_the_real_one():
    tree = ast.parse(inspect.getsource(requests))
    made = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    assert len(made) == 1
    told, named = made[0].args.args, made[0].args.kwonlyargs
    real = inspect.signature(Requests.__init__).parameters.values()
    assert [each.arg for each in told] == [p.name for p in real if p.kind is not p.KEYWORD_ONLY]
    assert [each.arg for each in named] == [p.name for p in real if p.kind is p.KEYWORD_ONLY]
    assert [p.name for p in real if p.default is p.empty] == [each.arg for each in told]
    given = Requests([3], [4], arrival_s=[1.5], deadline_s=[0.25])
    assert (given.arrival_s.tolist(), given.deadline_s.tolist()) == ([1.5], [0.25])
