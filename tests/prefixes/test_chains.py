"""Prefixes: chains of identifiers, from trees and documents, in other block sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import BlockMemory, Eviction, InputError, PrefixCache, Prefixes, Requests, Worker
from orsched.data.memory import LEAST_FUTURE_USE, LRU, RULES, TASK_AWARE
from tests.decoding import decoding
from tests.refusals import place, refusal


def shared_tokens(prefixes, a, b):
    """Tokens of the common chain of two requests."""
    pairs = list(zip(prefixes.of(a).tolist(), prefixes.of(b).tolist(), strict=False))
    return next((k for k, (x, y) in enumerate(pairs) if x != y), len(pairs))


def test_paths_of_a_tree_share_the_blocks_that_end_in_common_segments():
    # 0 has 10 tokens, 1 and 2 follow it with 5 and 9: blocks of 4 end at 4, 8, 12, 16.
    tree = Prefixes.from_parents([-1, 0, 0], [10, 5, 9], [1, 2, 2, 0, -1], 4)
    chains = [tree.of(r).tolist() for r in range(5)]
    assert [len(chain) for chain in chains] == [3, 4, 4, 2, 0]
    assert chains[0][:2] == chains[1][:2] == chains[3]
    assert chains[0][2] != chains[1][2]  # tokens 8 to 11: only the first two are common
    assert chains[1] == chains[2]


@given(
    parents=st.lists(st.integers(-1, 5), min_size=1, max_size=6),
    data=st.data(),
    size=st.integers(1, 5),
)
def test_a_tree_shares_what_its_token_paths_share(parents, data, size):
    parents = [min(parent, row - 1) for row, parent in enumerate(parents)]
    many = len(parents)
    tokens = data.draw(st.lists(st.integers(0, 7), min_size=many, max_size=many))
    leaves = data.draw(st.lists(st.integers(-1, many - 1), max_size=5))
    tree = Prefixes.from_parents(parents, tokens, leaves, size)
    paths = [token_path(parents, tokens, leaf) for leaf in leaves]
    for a, path in enumerate(paths):
        assert len(tree.of(a)) == len(path) // size
        for b, other in enumerate(paths):
            both = zip(path, other, strict=False)
            common = next((k for k, (x, y) in enumerate(both) if x != y), None)
            common = min(len(path), len(other)) if common is None else common
            assert shared_tokens(tree, a, b) == common // size


def token_path(parents, tokens, leaf):
    path = []
    while leaf >= 0:
        path[:0] = [(leaf, place) for place in range(tokens[leaf])]
        leaf = parents[leaf]
    return path


@pytest.mark.parametrize(("parent", "row", "problem"), [
    ([-1, 2, 1], 1, "circle: 1 -> 2 -> 1"), ([0], 0, "circle: 0 -> 0"),
    ([1, 2, 3, 2], 2, "circle: 2 -> 3 -> 2"), ([*range(1, 20), 0], 0, "6 -> 7 -> ..."),
    ([-1, 5], 1, "segment 5 does not exist"), ([-2], 0, "-2 is below -1"),
])  # fmt: skip
def test_parents_that_lead_nowhere_are_errors_at_their_segment(parent, row, problem):
    error = refusal(Prefixes.from_parents, parent, [4] * len(parent), [0], 2)
    assert place(error) == (row, "parent")
    assert problem in error.problem
    assert error.remedy
    leaf = refusal(Prefixes.from_parents, [-1], [4], [0, 3], 2)  # requests name what exists
    assert "row 1, field 'leaf_of_request': segment 3" in str(leaf)


def test_documents_share_full_blocks():
    prefixes = Prefixes.from_documents([3, 9, 3, -1], [9, 8, 13, 8], 4)
    chains = [prefixes.of(r).tolist() for r in range(4)]
    assert [len(chain) for chain in chains] == [2, 2, 3, 0]
    assert chains[2][:2] == chains[0]
    assert not set(chains[1]) & set(chains[2])
    assert Prefixes.from_documents([3, 9, 3], 8, 4).counts.tolist() == [2, 2, 2]


def test_refined_blocks_share_what_the_blocks_shared_and_rows_keep_their_chains():
    prefixes = Prefixes([0, 3, 6, 8], [5, 6, 7, 5, 6, 1, 5, 6], 8)
    whole = Requests([20, 20, 9], [1, 1, 1], prefixes=prefixes)
    fine = whole.refined(4).prefixes
    assert fine.counts.tolist() == [5, 5, 3]
    assert shared_tokens(fine, 0, 1) == 4
    assert shared_tokens(fine, 0, 2) == 3
    assert whole.refined(8) == whole.replace(prefixes=whole.prefixes.refined(8))
    assert "3 does not divide the 8" in str(refusal(whole.refined, 3))
    assert Requests([1], [1]).refined(4) == Requests([1], [1])
    requests = Requests([8, 8, 8], [1, 1, 1], prefixes=Prefixes([0, 2, 2, 4], [5, 6, 5, 7], 4))
    taken = requests.take([2, 1, 2])
    assert [taken.prefixes.of(r).tolist() for r in range(3)] == [[5, 7], [], [5, 7]]
    assert len(requests.take([]).prefixes) == 0


def test_a_chain_that_disagrees_is_found_however_far_away():
    ids = np.concatenate([np.arange(1000), np.arange(1000)])
    Prefixes([0, 1000, 2000], ids, 1)
    ids[1500], ids[1501] = ids[1501], ids[1500]
    place = "row 1, field 'prefix_ids': hash chains disagree: the id 501"
    with pytest.raises(InputError, match=place):
        Prefixes([0, 1000, 2000], ids, 1)


@pytest.mark.parametrize("rule", RULES)
def test_prefix_caches_say_their_rule(rule):
    assert [known.rule for known in (LRU, TASK_AWARE, LEAST_FUTURE_USE)] == list(RULES)
    memory = BlockMemory(9, 4, "paged", PrefixCache(rule))
    assert memory.to_dict()["prefix_cache"] == {"eviction": rule}
    assert BlockMemory.from_dict(memory.to_dict()) == memory
    assert memory.prefix_cache.rule == Eviction(rule)
    assert Eviction.from_dict(Eviction(rule).to_dict()) == Eviction(rule)


def test_hashes_of_instances_without_a_prefix_cache_stay():
    prefixes = Prefixes([0, 2, 4], [5, 6, 5, 7], 4)
    plain, cached = (
        decoding([8, 8], [2, 2], Worker(2, memory=memory), prefixes=prefixes)
        for memory in (BlockMemory(9, 4, "paged"), BlockMemory(9, 4, "paged", PrefixCache()))
    )
    assert plain.sha256 == "d5475852e1bf71dd149519022f5702c61e2c8e11185b670ea170ec4d849d953e"
    assert cached.sha256 != plain.sha256
    assert "prefix_cache" not in plain.worker.to_dict()["memory"]
