"""Log-t tails: Student's quantiles, the fit, the cover of rare lengths, files."""

import numpy as np
import pytest

from orsched import AffineCost, Worker
from orsched.calibration.intervals import upper_quantiles
from orsched.files.request_columns import read_requests_csv, write_requests_csv
from orsched.prediction import LengthDistribution, OnlinePredictor, predict_instance, train
from orsched.prediction.corpus import make_corpus
from orsched.prediction.data import LabelledPrompts
from orsched.prediction.distribution import FREEDOMS, Tail, Tails, fit_tails, tails_from
from orsched.prediction.predictor_file import predictor_from
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
