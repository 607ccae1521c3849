"""Log-t tails by Student's quantiles, and trees as arrays: against literal computation."""

import copy

import numpy as np
import pytest

from orsched import AffineCost, Worker
from orsched.calibration.intervals import upper_quantiles
from orsched.files.request_columns import read_requests_csv, write_requests_csv
from orsched.prediction import LengthDistribution, OnlinePredictor, predict_instance, train
from orsched.prediction.data import LabelledPrompts, make_corpus
from orsched.prediction.distribution import FREEDOMS, Tail, Tails, fit_tails, tails_from
from orsched.prediction.predictor_file import predictor_from
from orsched.prediction.trees import fit_quantiles, trees_from
from tests.decoding import decoding
from tests.in_order import in_order
from tests.refusals import refusal

LEVELS = np.array([0.05, 0.5, 0.95])


def heavy(rows, seed):
    """Corpus prompts whose replies have, on top of the law's errors, half a t with 3 degrees."""
    data = make_corpus("chat", rows, seed)
    noise = np.random.default_rng(seed).standard_t(3, rows)
    tokens = np.clip(data.output_tokens * np.exp(0.5 * noise), 1, 1e6).astype(np.int64)
    return LabelledPrompts(data.prompts, tokens, data.conversations)


@pytest.fixture(scope="module")
def pair():
    data = heavy(12_000, 4)
    return data.part("test", 0), train(data, trees=20), train(data, trees=20, tails="log-t")


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_quantiles_are_student_s(freedom):
    stats = pytest.importorskip("scipy.stats")
    shares = np.array([0.5, 0.3, 0.1, 0.05, 0.01, 0.001, 1e-4])
    wanted = stats.t.isf(shares, freedom)
    assert upper_quantiles(freedom, shares) == pytest.approx(wanted, rel=1e-5, abs=1e-9)


def test_a_rare_quantile_covers_its_share_of_a_heavy_tailed_source(pair):
    test, plain, tailed = pair
    share, loss = {}, {}
    for name, model in (("plain", plain), ("tailed", tailed)):
        found = model.predict(test.prompts).quantile(0.99)
        share[name] = float((test.output_tokens <= found).mean())
        over = test.output_tokens - found
        loss[name] = np.maximum(0.99 * over, -0.01 * over).mean()
    assert abs(share["tailed"] - 0.99) < 0.008  # some 2,400 rows, calibrated on as many
    assert abs(share["tailed"] - 0.99) <= abs(share["plain"] - 0.99)
    assert loss["tailed"] < loss["plain"]


def test_inside_the_outermost_quantiles_nothing_changes(pair):
    test, plain, tailed = pair
    one, other = plain.predict(test.prompts[:50]), tailed.predict(test.prompts[:50])
    assert np.array_equal(one.values, other.values)
    for level in (0.05, 0.3, 0.5, 0.95):
        assert other.quantile(level) == pytest.approx(one.quantile(level))


def test_a_distribution_with_tails_is_one(pair):
    test, _, tailed = pair
    found = tailed.predict(test.prompts[:50])
    steps = [found.quantile(level) for level in np.linspace(0, 1, 201)]
    assert (np.diff(steps, axis=0) >= -1e-9).all()
    assert (steps[0] >= 1).all()
    assert np.isfinite(found.mean()).all()
    at = found.quantile(0.99)
    assert np.diag(found.below(at)) == pytest.approx(np.full(50, 0.99))


def test_knots_are_those_of_the_law_by_hand_and_the_largest_scale_does_not_overflow():
    """Cauchy's law: its quantile is cot(pi p) for a share p above."""
    tails = Tails(Tail(1, 0.1), Tail(1, 0.1))
    found = LengthDistribution(LEVELS, np.array([[100.0, 200.0, 400.0]]), 500.0, tails)
    beyond = 0.1 * (1 / np.tan(np.pi * 0.01) - 1 / np.tan(np.pi * 0.05))
    assert found.quantile(0.99) == pytest.approx(400 * np.exp(beyond), rel=1e-4)
    assert found.quantile(0.01) == pytest.approx(max(1, 100 * np.exp(-beyond)), rel=1e-4)
    tails = Tails(Tail(1, 10.0), Tail(1, 10.0))
    found = LengthDistribution(LEVELS, np.array([[1.0, 2.0, 1e17]]), 2.0, tails)
    assert np.isfinite(found.quantile(0.9999)).all()
    assert np.isfinite(found.mean()).all()


@pytest.mark.parametrize(("freedom", "scale"), [(2, 0.3), (60, 0.5)])
def test_the_fit_finds_the_law(freedom, scale):
    random = np.random.default_rng(1)
    truth = scale * random.standard_t(freedom, 40_000)
    logs = np.tile(np.quantile(truth, LEVELS), (len(truth), 1))
    found = fit_tails(logs, truth, LEVELS)
    for side in (found.lower, found.upper):
        wanted = scale * upper_quantiles(freedom, np.array([0.05, 0.002]))
        got = side.scale * upper_quantiles(side.freedom, np.array([0.05, 0.002]))
        assert np.diff(got)[0] == pytest.approx(np.diff(wanted)[0], rel=0.15)


def test_tails_come_back_from_a_document(pair):
    test, plain, tailed = pair
    back = predictor_from({"kind": "lexical", **tailed.common(), **tailed.document()})
    assert back.tails == tailed.tails is not None
    assert "tails" not in plain.document()
    online = OnlinePredictor(tailed)
    wanted = tailed.predict(test.prompts[:3]).quantile(0.99)
    again = predictor_from({"kind": "online", **online.common(), **online.document()})
    for model in (online, again):
        assert np.array_equal(model.predict(test.prompts[:3]).quantile(0.99), wanted)


@pytest.mark.parametrize(("change", "field"), [
    ([], "tails"), ({"law": "normal"}, "tails.law"), ({"upper": None}, "tails.upper"),
    ({"upper": {"freedom": True, "scale": 0.1}}, "tails.upper.freedom"),
    ({"upper": {"freedom": 7, "scale": 0.1}}, "tails.upper.freedom"),
    ({"lower": {"freedom": 2, "scale": 0}}, "tails.lower.scale"),
    ({"lower": {"freedom": 2, "scale": 1e300}}, "tails.lower.scale"),
    ({"lower": {"freedom": 2, "scale": "x"}}, "tails.lower.scale"),
    ({"lower": {"freedom": 2}}, "tails.lower.scale"),
])  # fmt: skip
def test_wrong_tails_of_a_file_are_refused(change, field):
    good = Tails(Tail(2, 0.1), Tail(3, 0.2)).document()
    assert tails_from(good) == Tails(Tail(2, 0.1), Tail(3, 0.2))
    wrong = {**good, **change} if isinstance(change, dict) else change
    assert refusal(tails_from, wrong).field == field


def test_too_few_rows_other_laws_and_other_kinds_are_refused():
    data = make_corpus("chat", 300, 0)
    assert "too few for a tail" in str(refusal(train, data, tails="log-t", trees=2))
    assert "not a law of tails" in str(refusal(train, data, tails="pareto"))
    assert "constant has none" in str(refusal(train, data, "constant", tails="log-t"))


def test_an_instance_gets_the_quantiles_of_the_tails(pair, tmp_path):
    test, plain, tailed = pair
    instance = decoding([5] * 4, [9] * 4, Worker(2, in_order(AffineCost, 1, 1, 1, 1)))
    requests = predict_instance(instance, tailed, test.prompts[:4]).requests
    inner = predict_instance(instance, plain, test.prompts[:4]).requests
    low, high = (0.001, 0.002, 0.005, 0.01, 0.025), (0.975, 0.99, 0.995, 0.998, 0.999)
    assert requests.quantile_levels == (*low, *inner.quantile_levels, *high)
    kept = requests.predicted_quantiles[:, 5:-5]
    assert kept.tolist() == inner.predicted_quantiles.tolist()
    wanted = np.rint(tailed.predict(test.prompts[:4]).quantile(0.99))
    top = np.clip(wanted, 1, instance.output_limit_tokens)
    assert requests.predicted_quantiles[:, -4].tolist() == top.tolist()
    write_requests_csv(requests, tmp_path / "r.csv")
    back = read_requests_csv(tmp_path / "r.csv")
    assert back.quantile_levels == requests.quantile_levels
    assert back.predicted_quantiles.tolist() == requests.predicted_quantiles.tolist()


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
