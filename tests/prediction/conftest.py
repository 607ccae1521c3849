import pytest

from orsched.prediction import KINDS, make_corpus, train


@pytest.fixture(scope="package")
def corpus():
    return make_corpus("chat", 3000, 1)


@pytest.fixture(scope="package")
def fitted(corpus):
    """One predictor of each kind, fitted on the corpus with seed 2."""
    return {kind: train(corpus, kind, seed=2, trees=20) for kind in KINDS}
