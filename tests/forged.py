"""Documents of JSON data with something in them changed."""

import copy


def leaves(tree, path=()):
    """Yield the path and the value of each leaf; empty lists and tables have none."""
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(value, (*path, key))
    else:
        yield path, tree


def with_leaf(tree, path, value):
    """A copy with one leaf replaced."""
    found = copy.deepcopy(tree)
    owner = found
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return found


def without(table, *names):
    """A copy of a table that lacks some of its names."""
    return {name: value for name, value in table.items() if name not in names}
