"""The ridge: the tokens of a step that cost no more than the reading of the weights."""

import pytest

from orsched import InputError
from orsched.calibration.catalogue import machine
from orsched.costs import AffineCost, LinearCost, RooflineCost, ridge_tokens
from tests.costs.test_models import PROFILED
from tests.in_order import in_order

ROOFLINE = RooflineCost.from_s(fixed=1e-3, weights=0.018, token=1e-4, context=5e-6, attended=1e-9)


@pytest.mark.parametrize(
    ("name", "most"), [("rtx4090-llama3-8b-sheet", 200), ("h100-llama3-8b-sheet", 400)]
)
def test_the_ridge_of_a_data_sheet_is_where_lines_meet(name, most):
    """That of reading, level but for a row a token, and that of computing."""
    cost = machine(name).cost
    steep = cost.row_fs + cost.token_fs
    assert ridge_tokens(cost) == round((cost.weights_fs + cost.row_fs) / steep)
    assert 50 < ridge_tokens(cost) < most


@pytest.mark.parametrize("scale", [1, 7])
def test_up_to_the_ridge_prompt_tokens_beside_a_round_take_no_time(scale):
    cost = ROOFLINE.scaled(scale)
    free = RooflineCost(**{**cost.to_dict(), "context_fs": 0, "attended_fs": 0})
    assert ridge_tokens(cost) == ridge_tokens(free) == 180
    assert free.mixed_ns([170], 10, 10, 1) == free.round_ns(1, 1, 1)
    assert free.mixed_ns([171], 10, 10, 1) == free.round_ns(1, 1, 1) + 100_000 * scale


class Levelled(AffineCost):
    """Rounds of as many as 32 requests take the same, as own cost models may have it."""

    def round_ns(self, active, context_sum, context_max):
        return super().round_ns(max(32, active), context_sum, context_max)


def test_the_ridge_of_an_own_model_is_where_the_line_of_large_rounds_begins():
    assert ridge_tokens(in_order(Levelled, 1, 1, 100, 7)) == 32


@pytest.mark.parametrize(
    "cost",
    [
        in_order(AffineCost, 10, 1, 10, 1),
        in_order(AffineCost, 10, 1, 10, 0),
        LinearCost(
            stage_fixed_fs=0, stage_token_fs=1, attended_fs=0, round_fixed_fs=1,
            round_request_fs=1_234_567, context_fs=1, mixed_fixed_fs=0, mixed_context_fs=0,
        ),
    ],
)  # fmt: skip
def test_where_every_token_takes_time_or_none_does_there_is_no_ridge(cost):
    with pytest.raises(InputError, match="no ridge") as caught:
        ridge_tokens(cost)
    assert caught.value.field == "max_num_batched_tokens"
    assert "2048" in caught.value.remedy


def test_the_ridge_of_a_profile_is_near_that_of_its_layers():
    """Layers take 15 ms up to 39.8 tokens, by their line from 17 ms at 64 to 181 ms at 2,048; the
    attention of rounds grows a little too."""
    assert 32 < ridge_tokens(PROFILED) < 40
