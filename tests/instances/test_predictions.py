"""Predictors: their laws, and where the shipped counts come from."""

import csv

import numpy as np
import pytest

import orsched
from orsched.common.errors import InputError
from orsched.instances import predict, predictions
from orsched.instances.predictions import Classes, Confusion, load_confusion, read_predictor
from tests.decoding import decoding

SPECS = (
    "oracle", "noise:sigma=0.5", "classes", "classes:classes=3", "percentiles", "prompt_length",
)  # fmt: skip


def instance_of(outputs, limit=None):
    instance = decoding([1] * len(outputs), outputs, orsched.Worker(2))
    return instance if limit is None else instance.replace(output_limit_tokens=limit)


def true_classes(outputs, borders):
    return np.searchsorted(borders, outputs)


def law_of_lengths(n, seed=0):
    """Lengths as those that were counted: a bin by its share, uniform in the bin."""
    confusion, rng = load_confusion(5), np.random.default_rng(seed)
    weights = confusion.counts.sum(axis=1)
    bins = rng.choice(len(weights), n, p=weights / weights.sum())
    starts = np.concatenate([[2], confusion.up_to_tokens[:-1] + 1])
    return rng.integers(starts[bins], confusion.up_to_tokens[bins] + 1)


@pytest.mark.parametrize("spec", SPECS)
def test_predictions_are_whole_tokens_within_the_limit_and_depend_on_the_seed_alone(spec):
    outputs = law_of_lengths(500)
    instance = instance_of(outputs, 400 + 200)
    predicted = predict(instance, spec, 3).requests.predicted_tokens
    assert predicted.dtype == np.int64
    assert predicted.min() >= 1
    assert predicted.max() <= 600
    assert predict(instance, spec, 3) == predict(instance, spec, 3)
    if spec != "oracle":
        assert (predict(instance, spec, 4).requests.predicted_tokens != predicted).any()


def test_the_oracle_equal_lengths_and_no_requests_and_the_cut_at_the_limit():
    instance = instance_of([1, 5, 9])
    assert predict(instance, "oracle").requests.predicted_tokens.tolist() == [1, 5, 9]
    assert predict(instance, "classes").requests.predicted_tokens.max() <= 9
    predicted = predict(instance_of([30] * 50), "percentiles").requests.predicted_tokens
    assert set(predicted.tolist()) == {30}
    empty = decoding([], [], orsched.Worker(1))
    for spec in SPECS:
        assert len(predict(empty, spec).requests.predicted_tokens) == 0


def test_a_confusion_that_can_be_followed_by_hand():
    """Two bins: lengths to 10, of which 3 of 4 are told right, and to 20, all told right."""
    confusion = Confusion(np.array([10, 20]), np.array([[3, 1], [0, 4]]), (10,))
    assert confusion.bins(np.array([1, 10, 11, 20, 999])).tolist() == [0, 0, 1, 1, 1]
    assert confusion.bins_of_ranks(np.array([0.1, 0.5, 0.51, 1.0])).tolist() == [0, 0, 1, 1]
    drawn = confusion.draw(np.array([0, 0, 0, 1]), np.array([0.0, 0.74, 0.75, 0.0]))
    assert drawn.tolist() == [0, 0, 1, 1]
    assert confusion.matrix().tolist() == [[3, 1], [0, 4]]
    assert confusion.accuracy == 7 / 8
    assert confusion.medians() == (10, 20)
    assert confusion.median_ranks() == (0.5, 1.0)


@pytest.mark.parametrize(("classes", "accuracy"), [(5, 0.599), (3, 0.806)])
def test_the_shipped_counts(classes, accuracy):
    confusion = load_confusion(classes)
    assert confusion.counts.sum() == 60_000
    assert (np.diff(confusion.up_to_tokens) > 0).all()
    assert list(confusion.medians()) == sorted(set(confusion.medians()))
    assert abs(confusion.accuracy - accuracy) < 0.0005
    assert len(confusion.borders) == classes - 1


@pytest.mark.parametrize("classes", [3, 5])
def test_predicted_classes_have_the_shipped_confusion(classes):
    """On lengths of the same law each entry of the matrix comes back, and so does the accuracy."""
    confusion = load_confusion(classes)
    outputs = law_of_lengths(40_000)
    for law in ("classes", "percentiles"):
        instance = instance_of(outputs, 600)
        predicted = predict(instance, f"{law}:classes={classes}", 1).requests.predicted_tokens
        values, drawn = np.unique(predicted, return_inverse=True)
        assert len(values) == classes
        matrix = np.zeros((classes, classes))
        np.add.at(matrix, (true_classes(outputs, confusion.borders), drawn), 1)
        assert np.abs(matrix / 40_000 - confusion.matrix() / 60_000).max() < 0.008
        assert abs(np.trace(matrix) / 40_000 - confusion.accuracy) < 0.01


def test_percentile_classes_do_not_depend_on_the_scale_of_the_lengths():
    outputs = law_of_lengths(2_000)
    small = predict(instance_of(outputs), "percentiles", 5).requests.predicted_tokens
    large = predict(instance_of(outputs * 7), "percentiles", 5).requests.predicted_tokens
    np.testing.assert_array_equal(large, 7 * small)
    classes = predict(instance_of(outputs * 7), "classes", 5).requests.predicted_tokens
    assert len(np.unique(classes)) < 6


def test_prompt_lengths_tell_what_they_tell_and_no_request_its_own_length():
    """Outputs that follow from the prompt are all told; one that stands out never is."""
    prompts = np.repeat([10, 50, 90, 400], 50)
    outputs = prompts * 3

    def told(prompts, outputs):
        instance = decoding(prompts, outputs, orsched.Worker(2))
        return predict(instance, "prompt_length", 1).requests.predicted_tokens.tolist()

    assert told(prompts, outputs) == outputs.tolist()
    odd = outputs.copy()
    odd[7] = 2_000
    assert told(prompts, odd) == outputs.tolist()
    assert told([5, 5], [30, 70]) == [70, 30]
    assert told([5], [30]) == [1]


def test_a_specification_is_a_text_a_mapping_or_a_predictor():
    wanted = Classes(3)
    for spec in ("classes:classes=3", {"law": "classes", "classes": 3}, wanted):
        assert read_predictor(spec) == wanted
    laws = {"oracle", "noise", "classes", "percentiles", "prompt_length"}
    assert set(predictions.PREDICTORS) == laws


@pytest.mark.parametrize(("spec", "problem"), [
    ("bert", "unknown predictor 'bert'"), ("noise", "lacks sigma"), ("noise:sigma=-1", "negative"),
    ("noise:sigma=text", "finite number"), ("noise:sigma=" + "9" * 400, "finite number"),
    ("noise:sigma=1e400", "finite number"), ("classes:classes=4", "no counts are known for 4"),
    ("classes:sigma=1", "no parameter 'sigma'"), ("oracle:x=1", "it has none"),
    (3, "not a specification"), ({"law": 5}, "unknown predictor 5"),
])  # fmt: skip
def test_what_is_wrong_is_named(spec, problem):
    with pytest.raises(InputError, match=problem):
        predict(instance_of([1]), spec)


def test_the_counts_are_those_of_the_published_predictions(data_dir):
    """With the public file at hand, counting its rows gives the shipped table."""
    with open(data_dir / "output_length_predictions.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    truth = np.array([int(row["true_output_tokens"]) for row in rows])
    ordered, n = np.sort(truth), len(truth)
    ends = sorted({int(ordered[-(-p * n // 100) - 1]) for p in range(1, 101)})
    for classes, borders in predictions.BORDERS.items():
        told = np.array([int(row[f"pred_bucket_{classes}class"]) for row in rows])
        counts = np.zeros((len(ends), classes), np.int64)
        np.add.at(counts, (np.searchsorted(ends, truth), told), 1)
        confusion = load_confusion(classes)
        assert confusion.up_to_tokens.tolist() == ends
        np.testing.assert_array_equal(confusion.counts, counts)
        assert list(confusion.borders) == [int(ordered[-(-p * n // 100) - 1]) for p in borders]
        for place, median in enumerate(confusion.medians()):
            below = float((truth[told == place] <= median).mean())
            assert 0.5 <= below < 0.54
