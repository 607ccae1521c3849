"""Trees as arrays: the same sums as a literal walk and as scikit-learn; no others are taken."""

import copy

import numpy as np
import pytest

from orsched.prediction.trees import fit_quantiles, trees_from
from tests.refusals import refusal

STUMP = {
    "features": 2, "start": [1.5], "roots": [0], "sizes": [1],
    "feature": [1, 0, 0], "threshold": [0.5, 0.0, 0.0], "value": [0.0, -1.0, 2.0],
    "left": [1, 1, 2], "right": [2, 1, 2],
}  # fmt: skip


def walk(trees, row):
    """Return the sums of one row, node by node."""
    found, tree = [], 0
    for start, size in zip(trees.start, trees.sizes, strict=True):
        total = start
        for root in trees.roots[tree : tree + size]:
            node = root
            while trees.left[node] != node:
                left = row[trees.feature[node]] <= trees.threshold[node]
                node = (trees.left if left else trees.right)[node]
            total += trees.value[node]
        tree += size
        found.append(total)
    return found


@pytest.fixture(scope="module")
def fitted():
    random = np.random.default_rng(3)
    rows = random.random((600, 4))
    targets = 3 * rows[:, 0] + random.standard_normal(600)
    levels = np.array([0.1, 0.5, 0.9])
    return rows, targets, levels, fit_quantiles(rows, targets, levels, trees=7, seed=5)


def test_a_stump_by_hand_and_trees_by_a_literal_walk(fitted):
    trees = trees_from(STUMP, "trees")
    assert trees(np.array([[9, 0.5], [9, 0.6]])).tolist() == [[0.5], [3.5]]
    rows, _, _, trees = fitted
    assert np.allclose(trees(rows[:50]), [walk(trees, row) for row in rows[:50]], atol=1e-12)


def test_sums_are_those_of_scikit_learn(fitted):
    from sklearn.ensemble import HistGradientBoostingRegressor

    rows, targets, levels, trees = fitted
    for place, level in enumerate(levels):
        model = HistGradientBoostingRegressor(
            loss="quantile", quantile=level, max_iter=7, max_leaf_nodes=16, max_depth=4,
            min_samples_leaf=20, learning_rate=0.15, early_stopping=False, random_state=5,
        ).fit(rows, targets)  # fmt: skip
        unseen = np.random.default_rng(4).random((300, 4))
        assert np.allclose(trees(unseen)[:, place], model.predict(unseen), atol=1e-12)


def test_rows_one_by_one_and_trees_of_a_document_give_the_same(fitted):
    rows, _, _, trees = fitted
    assert np.array_equal(trees(np.tile(rows, (40, 1)))[:600], trees(rows))
    assert np.array_equal(trees(rows[7:8])[0], trees(rows)[7])
    assert np.array_equal(trees_from(trees.document(), "trees")(rows), trees(rows))


def changed(**values):
    return {**copy.deepcopy(STUMP), **values}


@pytest.mark.parametrize(("document", "field"), [
    *((changed(left=left), "trees.left") for left in ([0, 1, 2], [1, 0, 2], [-1, 1, 2])),
    (changed(right=[3, 1, 2]), "trees.right"), (changed(feature=[2, 0, 0]), "trees.feature"),
    (changed(feature=[1, 0]), "trees.threshold"),
    *((changed(threshold=[0.5, 0, last]), "trees.threshold") for last in ("x", True)),
    *((changed(value=v), "trees.value") for v in ([0, 1, 10**400], [0, [1], 2], {})),
    *((changed(roots=roots), "trees.roots") for roots in ([1], [])),
    (changed(roots=[0, 0], sizes=[2]), "trees.roots"), (changed(sizes=[2]), "trees.sizes"),
    (changed(sizes=[1, 0], start=[1, 1]), "trees.sizes"),
    *((changed(features=count), "trees.features") for count in (0, 2**40)),
    ([], "trees"), ({}, "trees.feature"),
])  # fmt: skip
def test_what_is_no_tree_is_refused_at_its_field(document, field):
    assert refusal(trees_from, document, "trees").field == field


def test_a_tree_without_end_is_refused_by_its_depth():
    n = 101
    own = list(range(n))
    left = [i + 1 if i % 2 == 0 and i < n - 1 else i for i in own]
    right = [i + 2 if i % 2 == 0 and i < n - 1 else i for i in own]
    deep = changed(feature=[0] * n, threshold=[0] * n, value=[0] * n, left=left, right=right)
    assert "deeper" in str(refusal(trees_from, deep, "trees"))
