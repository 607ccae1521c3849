"""Lengths as targets: the papers' labels, and quantiles from what a head gives."""

import numpy as np
import pytest

from orsched.prediction.predictor import LEVELS
from orsched.prediction.proxies.network import HEADS, targets_for
from tests.refusals import refusal

LENGTHS = np.random.default_rng(3).geometric(0.01, 2000)
LEVEL = np.array(LEVELS)


@pytest.mark.parametrize("longest", [10, 97, 100, 511])
def test_micos_buckets_are_the_papers_floor(longest):
    lengths = np.arange(1, longest + 1)
    found = targets_for("buckets", lengths).labels(lengths)
    by_paper = np.minimum(np.floor(lengths / (longest / 10) + 1e-12), 9)
    # Buckets that no length falls into have no number.
    assert np.array_equal(np.unique(by_paper, return_inverse=True)[1], found)


def test_ssjfs_classes_end_at_the_percentiles_and_two_at_the_median():
    five, two = targets_for("classes", LENGTHS), targets_for("binary", LENGTHS)
    assert np.array_equal(five.edges, np.percentile(LENGTHS, (25, 50, 75, 99)))
    shares = np.bincount(five.labels(LENGTHS).astype(int)) / len(LENGTHS)
    assert np.allclose(shares, (0.25, 0.25, 0.25, 0.24, 0.01), atol=0.02)
    assert two.outputs() == 2
    assert abs(two.labels(LENGTHS).mean() - 0.5) < 0.02


@pytest.mark.parametrize("head", ["classes", "binary", "buckets"])
def test_a_sure_class_has_its_quantiles_inside_it(head):
    targets = targets_for(head, LENGTHS)
    ends = np.concatenate(([1.0], targets.edges, [targets.longest]))
    outputs = np.where(np.eye(targets.outputs()), 50.0, 0.0)
    found = np.exp(targets.logs(outputs, LEVEL))
    for place, row in enumerate(found):
        assert (row >= ends[place] - 1e-6).all()
        assert (row <= ends[place + 1] + 1e-6).all()


def test_true_shares_give_true_quantiles_at_the_edges():
    targets = targets_for("classes", LENGTHS)
    shares = np.bincount(targets.labels(LENGTHS).astype(int)) / len(LENGTHS)
    found = np.exp(targets.logs(np.log(shares)[None], np.cumsum(shares)[:-1]))[0]
    assert np.allclose(found, np.percentile(LENGTHS, (25, 50, 75, 99)))


@pytest.mark.parametrize("head", [h for h in HEADS if h.startswith(("regression", "ordinal"))])
def test_the_exact_answer_gives_the_length_back(head):
    targets = targets_for(head, LENGTHS)
    found = np.exp(targets.logs(targets.labels(LENGTHS)[:, None], LEVEL))
    wanted = LENGTHS
    if head.startswith("ordinal"):
        wanted = targets.middles[targets.labels(LENGTHS).astype(int)]
        assert (np.diff(targets.middles) > 0).all()
    assert np.allclose(found, wanted[:, None])


def test_lengths_in_one_class_are_refused():
    assert "one class" in str(refusal(targets_for, "classes", np.full(50, 7)))
