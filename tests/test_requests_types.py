"""What type checkers are told of ``Requests`` is what it takes."""

from __future__ import annotations

import ast
import inspect

from orsched import requests
from orsched.requests import Requests


def test_the_signature_for_type_checkers_is_the_real_one():
    tree = ast.parse(inspect.getsource(requests))
    made = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    assert len(made) == 1
    told = [argument.arg for argument in made[0].args.args]
    assert told == list(inspect.signature(Requests.__init__).parameters)
    required = [
        p.name for p in inspect.signature(Requests).parameters.values() if p.default is p.empty
    ]
    assert len(told) - 1 - len(made[0].args.defaults) == len(required) == 2
    assert Requests([3], [4], arrival_s=[1.5]).arrival_s.tolist() == [1.5]
