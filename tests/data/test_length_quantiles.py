"""Instances, and predicted distributions of lengths: median, taking, reading, writing."""

from inspect import signature
from math import exp, log
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched import BlockMemory, InfeasibleError, Instance, Worker
from orsched.data.length_quantiles import LengthLaw, quantiles_after
from orsched.data.requests import Requests
from orsched.files import load_instance, read_requests_csv, save_instance, write_requests_csv
from orsched.files.request_columns import level_of, name_of
from orsched.instances import predict
from orsched.instances.catalog import GENERATORS
from orsched.instances.datasets import convert
from orsched.prediction import LengthDistribution
from tests.decoding import decoding
from tests.refusals import place, refusal

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
ROWS = [[5, 8, 13, 21, 40], [7, 7, 7, 7, 7], [1, 2, 90, 91, 95]]


def requests(**columns):
    given_columns = {"predicted_quantiles": ROWS, "quantile_levels": LEVELS} | columns
    return Requests([3, 4, 5], [9, 6, 80], **given_columns)


INSTANCE = orsched.Instance(requests(), orsched.Worker(2), "decode")


def test_the_median_stands_for_a_distribution_and_rows_are_taken_with_it():
    assert requests().predicted_tokens.tolist() == [13, 7, 90]
    assert requests(predicted_tokens=[1, 2, 3]).predicted_tokens.tolist() == [1, 2, 3]
    taken = requests().take([2, 0])
    assert taken.predicted_quantiles.tolist() == [ROWS[2], ROWS[0]]
    assert taken.quantile_levels == LEVELS
    assert not taken.predicted_quantiles.flags.writeable


def medians(quantiles, levels):
    ones = [1] * len(quantiles)
    table = Requests(ones, ones, predicted_quantiles=quantiles, quantile_levels=levels)
    return table.predicted_tokens.tolist()


def test_a_median_between_two_levels_is_that_of_a_log_normal_law():
    # 0.25 and 0.75 are as far from 0.5: the geometric mean of 4 and 9, and of 5 and 5.
    assert medians([[4, 9], [5, 5]], [0.25, 0.75]) == [6, 5]
    # Beyond the levels the outer piece goes on: logarithms rise by the same for each unit of z.
    z = [NormalDist().inv_cdf(level) for level in (0.1, 0.3)]
    wanted = exp(log(100) + log(2) * (0 - z[0]) / (z[1] - z[0]))
    assert medians([[100, 200]], [0.1, 0.3]) == [round(wanted)]
    assert medians([[100]], [0.9]) == [100]


def test_a_prediction_is_replaced_as_a_whole():
    table = requests()
    point = table.replace(predicted_tokens=[4, 4, 4])
    assert point.predicted_quantiles is point.quantile_levels is None
    spread = table.replace(predicted_quantiles=[[6] * 5] * 3)
    assert spread.predicted_tokens.tolist() == [6, 6, 6]
    bare = table.replace(predicted_quantiles=None)
    assert bare.predicted_tokens.tolist() == [13, 7, 90]
    assert bare.quantile_levels is None
    assert table.replace(output_tokens=[1, 1, 1]).predicted_quantiles.tolist() == ROWS
    assert predict(INSTANCE, "oracle").requests.predicted_quantiles is None


def test_the_hash_of_an_instance_tells_distributions_apart():
    hashes = {INSTANCE.sha256}
    for changes in (
        {"predicted_quantiles": None},
        {"predicted_quantiles": [*ROWS[:2], [1, 2, 90, 91, 96]]},
        {"quantile_levels": (0.1, 0.25, 0.5, 0.75, 0.95)},
    ):
        hashes.add(INSTANCE.replace(requests=requests().replace(**changes)).sha256)
    assert len(hashes) == 4


def test_parquet_lists_of_different_lengths_are_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    save_instance(INSTANCE, path)
    table = pq.read_table(path)
    index = table.column_names.index("predicted_quantiles")
    rows = [*ROWS[:2], [1, 2]]
    column = pa.array(rows, pa.large_list(pa.int64()))
    pq.write_table(table.set_column(index, "predicted_quantiles", column), path)
    error = refusal(load_instance, path)
    assert place(error) == (2, "predicted_quantiles")
    assert "2 values for 5 levels" in str(error)


def test_tables_have_a_column_a_level(tmp_path):
    path = tmp_path / "a.csv"
    write_requests_csv(requests(), path)
    head = path.read_text().splitlines()[0].split(",")
    levels = [name for name in head if name.startswith("predicted_p")]
    assert levels == [f"predicted_p{level}" for level in (10, 25, 50, 75, 90)]
    assert read_requests_csv(path) == requests()


@pytest.mark.parametrize("text", [
    "prompt_tokens,output_tokens,predicted_p97.5,predicted_p50\n3,9,20,10\n",
    "Prompt Tokens;Output Tokens;Predicted P50;predicted tokens p97.5\n3;9;10;20\n",
    '{"prompt_tokens": 3, "output_tokens": 9, "predicted_p97.5": 20, "predicted_p50": 10}\n',
])  # fmt: skip
def test_people_s_own_tables_hold_distributions(tmp_path, text):
    path = tmp_path / ("a.jsonl" if text.startswith("{") else "a.csv")
    path.write_text(text)
    table = orsched.load(path, clients=2).requests
    assert table.predicted_quantiles.tolist() == [[10, 20]]
    assert table.quantile_levels == (0.5, 0.975)
    assert table.predicted_tokens.tolist() == [10]


def test_a_wrong_cell_of_one_s_own_table_is_named_as_the_file_has_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("input_tokens,output_tokens,Predicted P10,Predicted P50\n3,9,1,2\n3,9,4,3\n")
    error = refusal(orsched.load, path, clients=2)
    assert place(error) == (3, "Predicted P50")
    assert "3 at level 0.5 is below 4 at level 0.1" in str(error)


def test_data_frames_pages_and_summaries_hold_distributions():
    assert INSTANCE.summary()["prediction_levels"] == list(LEVELS)
    assert "yes, quantiles 0.1, 0.25, 0.5, 0.75, 0.9" in INSTANCE._repr_html_()
    bare = INSTANCE.replace(requests=requests().replace(predicted_quantiles=None))
    assert "prediction_levels" not in bare.summary()
    pytest.importorskip("pandas")
    frame = INSTANCE.to_pandas()
    assert frame["predicted_p75"].tolist() == [21, 7, 91]
    assert orsched.Instance.from_pandas(frame, orsched.Worker(2)).requests == requests()


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_the_name_of_a_column_gives_its_level_back(level):
    assert level_of(name_of(level)) == level


@given(st.floats(0.5, 8), st.floats(0.05, 1.5), st.floats(0.01, 0.99))
def test_quantiles_of_a_log_normal_law_give_that_law_back(mu, sigma, level):
    normal = NormalDist(mu, sigma)
    row = [round(1000 * exp(normal.inv_cdf(each))) for each in LEVELS]
    law = LengthLaw(LEVELS)
    wanted = 1000 * exp(normal.inv_cdf(level))
    assert law.quantile(row, level) == pytest.approx(wanted, rel=0.02)
    assert law.reached(row, round(wanted)) == pytest.approx(level, abs=0.02)


def test_the_two_readings_of_quantiles_differ_as_the_page_says():
    """Those of policies and of predictors: the same at the levels, 5 % apart between them."""
    normal, law = NormalDist(0, 1), LengthLaw(LEVELS)
    row = [round(100_000 * exp(normal.inv_cdf(each))) for each in LEVELS]
    other = LengthDistribution(np.array(LEVELS), np.array([row], float), 10.0**9)
    for level in LEVELS:
        assert other.quantile(level)[0] == pytest.approx(law.quantile(row, level))
    within = np.linspace(LEVELS[0], LEVELS[-1], 200)
    ratios = [other.quantile(float(p))[0] / law.quantile(row, float(p)) for p in within]
    assert 1.04 < max(ratios) < 1.05
    assert 0.95 < min(ratios) < 0.96
    assert other.quantile(0.999)[0] > 2 * law.quantile(row, 0.999)


@given(st.lists(st.integers(1, 10_000), min_size=5, max_size=5).map(sorted), st.integers(0, 10_000))
def test_what_is_left_after_some_tokens_is_a_distribution_again(row, yielded):
    left = quantiles_after(np.array([row]), LEVELS, np.array([yielded]))[0].tolist()
    assert left == sorted(left)
    assert left[0] >= 1
    if not yielded:
        assert left == row
    Requests([1], [1], predicted_quantiles=[left], quantile_levels=LEVELS)


def test_what_is_left_of_a_single_length_is_the_rest_of_it():
    rows = np.array([[9] * 5, [9] * 5])
    assert quantiles_after(rows, LEVELS, np.array([4, 9])).tolist() == [[5] * 5, [1] * 5]


PROMPTS, OUTPUTS = [60, 45, 80, 70, 30, 55, 20, 90], [120, 15, 90, 20, 30, 100, 1, 60]
PAPER_RULES = {"gsm8k", "pang-case"}
"""Generators of one paper's workloads, which keep that paper's rule."""


@pytest.fixture
def ways(tmp_path):
    """The same eight requests on the same worker, by each way in."""
    requests, path = Requests(PROMPTS, OUTPUTS), tmp_path / "x.csv"
    rows = [f"{prompt},{output}" for prompt, output in zip(PROMPTS, OUTPUTS, strict=True)]
    path.write_text("\n".join(["prompt_tokens,output_tokens", *rows]) + "\n")
    made = Instance(requests, Worker(2))
    return {
        "constructor": made,
        "frame": Instance.from_pandas(made.to_pandas(), Worker(2)),
        "load": orsched.load(path, clients=2),
        "convert": convert(path, tmp_path / "x.json", Worker(2)).instance,
        "file": orsched.load(tmp_path / "x.json"),
    }


def test_every_way_in_makes_the_same_problem(ways):
    assert len({instance.sha256 for instance in ways.values()}) == 1
    assert {orsched.solve(i, "fcfs").makespan_ns for i in ways.values()} == {
        orsched.solve(ways["load"].replace(first_token="prefill"), "fcfs").makespan_ns
    }
    for rule in ("prefill", "decode"):  # and says so
        instance = ways["load"].replace(first_token=rule)
        assert f"first token from {rule}" in repr(instance)
        assert instance.summary()["first_token"] == rule


def test_generators_have_that_default_or_their_paper_s():
    defaults = {
        name: signature(make).parameters["first_token"].default
        for name, make in GENERATORS.items()
        if "first_token" in signature(make).parameters
    }
    assert {name for name, rule in defaults.items() if rule != "prefill"} == PAPER_RULES


def test_each_request_needs_one_worker_that_fits_it():
    """The long prompt fits onto one worker, the long answer onto the other, both onto neither."""
    capped = Worker(1, prefill_cap_tokens=4, name="capped")
    small = Worker(1, memory=BlockMemory(2, 4, "whole"), name="small")
    decoding([4, 7], [9, 1], (capped, small)).require_feasible()
    both = decoding([4, 7], [9, 2], (capped, small))
    with pytest.raises(InfeasibleError, match=r"request 1 \(row 1\).*4 .*capped.*3 .* 2 of small"):
        both.require_feasible()
    with pytest.raises(InfeasibleError, match=r"row 0\) needs 4 memory blocks.*the 2 of small"):
        decoding([4], [9], small).require_feasible()


def test_chunks_lift_the_limit_on_prefills_only():
    worker = Worker(1, prefill_cap_tokens=4, memory=BlockMemory(2, 4, "whole"))
    decoding([7], [1], worker).require_feasible(chunks=True)
    with pytest.raises(InfeasibleError, match="prefill_cap_tokens"):
        decoding([7], [1], worker).require_feasible()
    with pytest.raises(InfeasibleError, match="memory blocks"):
        decoding([7], [2], worker).require_feasible(chunks=True)


@pytest.mark.parametrize(("rule", "longest"), [("decode", 4), ("prefill", 5)])
def test_paged_memory_holds_the_whole_cache_at_the_end(rule, longest):
    """The token that a prefill yields is in the cache only once a round follows it."""
    worker = Worker(3, memory=BlockMemory(2, 4, "paged"))
    Instance(Requests([4], [longest]), worker, first_token=rule).require_feasible()
    with pytest.raises(InfeasibleError, match="memory blocks"):
        Instance(Requests([4], [longest + 1]), worker, first_token=rule).require_feasible()
