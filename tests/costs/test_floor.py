"""Floors: exact for the shipped models, and of one class only."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched.common.errors import InputError
from orsched.costs import (
    AffineCost,
    BilinearCost,
    CostModel,
    Floor,
    LevelsCost,
    LinearCost,
    PoolingCost,
    RooflineCost,
    RoundFloor,
    StageFloor,
    as_bilinear,
    floor_faults,
    floor_of,
    mixed_ns,
    splits,
)
from tests.costs.test_models import any_cost
from tests.in_order import in_order

SHIPPED = (
    AffineCost(),
    LevelsCost(levels=((512, 91_560_000), (2048, 291_240_000)), round_fixed_ns=71_000_000),
    BilinearCost.from_ms((0.05, 1.0, 0.02, 20.0), (0.00003, 0.08, 0.001, 25.0)),
    PoolingCost.from_ms(alpha=2e-6, beta=0.11, c=18.5, gamma=0.003, delta=0.011, lambda_=1.15),
    RooflineCost.from_s(
        fixed=4e-4, weights=5.3e-3, token=26.4e-6, context=53.1e-9, attended=0.6e-9
    ),
    in_order(
        LinearCost,
        9 * 10**12,
        21 * 10**9,
        10**6,
        7 * 10**12,
        14 * 10**9,
        52 * 10**6,
        5 * 10**12,
        10**8,
    ),
)
METHODS = ("prefill_ns", "round_ns", "rounds_ns", "mixed_ns")


def overriding(cost: CostModel, method: str, factor: float) -> CostModel:
    """Return a copy of a class derived from the cost's, one method of which takes other times."""
    own = getattr(type(cost), method, None)

    def changed(self, *args):
        time = mixed_ns(cost, *args) if own is None else own(self, *args)
        return int(time * factor)

    kind = type(f"Other{type(cost).__name__}", (type(cost),), {method: changed})
    return kind(**vars(cost))


@settings(max_examples=200)
@given(
    any_cost,
    st.lists(st.integers(1, 10**6), max_size=6),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
)
def test_the_shipped_models_take_exactly_their_floors_or_no_less(
    cost: CostModel, prompts: list[int], contexts: list[int]
) -> None:
    floor = floor_of(cost)
    assert floor is not None
    assert floor.exact is (cost.model != "roofline")
    load = (len(contexts), sum(contexts), max(contexts))
    assert floor.round_ns(*load) <= cost.round_ns(*load)
    assert not floor.exact or floor.round_ns(*load) == cost.round_ns(*load)
    if prompts:
        assert floor.prefill_ns(prompts) <= cost.prefill_ns(prompts)
        assert not floor.exact or floor.prefill_ns(prompts) == cost.prefill_ns(prompts)
        assert floor.mixed_ns(prompts, *load) <= mixed_ns(cost, prompts, *load)


def test_a_floor_that_is_too_high_is_found_by_random_steps() -> None:
    class High(AffineCost):
        def floor(self):
            stage = StageFloor(fixed=self.prefill_fixed_ns + 1, token=self.prefill_token_ns)
            return Floor(stage, RoundFloor(fixed=self.round_fixed_ns))

    assert "a stage takes" in floor_faults(High(), steps=10)[0]
    for cost in SHIPPED:
        assert floor_faults(cost, steps=100) == []


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cost", SHIPPED, ids=lambda cost: cost.model)
def test_a_class_that_overrides_one_method_states_nothing(cost: CostModel, method: str) -> None:
    other = overriding(cost, method, 0.5)
    assert floor_of(cost) is not None
    assert floor_of(other) is None
    assert splits(other) is None
    assert as_bilinear(other) is None


@pytest.mark.parametrize("name", ["_round_fs", "context_matters", "prefill_limit", "extra"])
def test_nor_does_one_that_adds_anything_else(name: str) -> None:
    kind = type("Other", (BilinearCost,), {name: property(lambda self: 0)})
    assert floor_of(in_order(kind, *[10**6] * 8)) is None


def test_nor_one_with_a_method_from_beside_or_on_the_object() -> None:
    class Beside:
        def mixed_ns(self, *args):
            return 1

    class Both(LevelsCost, Beside):
        pass

    assert floor_of(Both(levels=((100, 5),), round_fixed_ns=5)) is None
    cost = AffineCost()
    object.__setattr__(cost, "round_ns", lambda *args: 1)
    assert floor_of(cost) is None


def test_a_class_that_changes_no_time_keeps_the_statement() -> None:
    class Named(AffineCost):
        """Another name only."""

        model = "named"

    @dataclass(frozen=True)
    class Again(Named):
        pass

    assert floor_of(Named()) == floor_of(Again()) == floor_of(AffineCost())


def test_and_one_that_states_its_own_floor_is_taken_at_its_word() -> None:
    class Halved(AffineCost):
        def prefill_ns(self, prompts):
            return super().prefill_ns(prompts) // 2

        def floor(self):
            return Floor(StageFloor(token=self.prefill_token_ns // 2), RoundFloor())

    assert floor_of(Halved()) == Floor(StageFloor(token=65_000), RoundFloor())


def test_models_that_state_none_have_none() -> None:
    assert floor_of(in_order(BilinearCost, 1, 1, 1, -1, 1, 1, 1, 1)) is None
    assert floor_of(in_order(PoolingCost, 1, 1, 1, -1, 1)) is None

    class Derived(CostModel):
        pass

    assert floor_of(Derived()) is None


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: StageFloor(fixed=-1), "fixed"),
        (lambda: StageFloor(token=-1), "token"),
        (lambda: StageFloor(token=0.5), "token"),
        (lambda: StageFloor(fixed=1, levels=((5, 5),)), "levels"),
        (lambda: StageFloor(levels=((5, 5), (4, 6))), "levels"),
        (lambda: RoundFloor(mean=-1), "mean"),
        (lambda: Floor(StageFloor(), RoundFloor(), unit=0), "unit"),
        (lambda: Floor(StageFloor(), RoundFloor(), mixed="none"), "mixed"),
        (lambda: Floor(StageFloor(), RoundFloor(), unit=2, mixed="one_fixed"), "mixed"),
        (lambda: Floor(StageFloor(levels=((5, 5),)), RoundFloor(), unit=2), "unit"),
    ],
)
def test_a_wrong_floor_names_its_field(build, field: str) -> None:
    with pytest.raises(InputError) as caught:
        build()
    assert caught.value.field == field


def test_what_is_no_floor_or_has_levels_that_end_too_early_is_refused() -> None:
    class Wrong(AffineCost):
        def floor(self):
            return 25

    class Short(AffineCost):
        def floor(self):
            return Floor(StageFloor(levels=((100, 5),)), RoundFloor())

    for cost in (Wrong(), Short()):
        with pytest.raises(InputError, match=type(cost).__name__):
            floor_of(cost)


def test_no_class_of_cost_model_is_asked_for_outside_this_folder(repo_root) -> None:
    """Bounds, certificates and policies read what a model states, and that is of its type."""
    names = {"AffineCost", "LevelsCost", "BilinearCost", "PoolingCost", "ProfiledCost"}
    names |= {"RooflineCost", "LinearCost"}
    found = []
    for folder in ("orsched", "models", "heuristics", "instances", "runner"):
        for path in (repo_root / folder).rglob("*.py"):
            text = path.read_text()
            if "costs" in path.parts or not any(name in text for name in names):
                continue
            for node in ast.walk(ast.parse(text)):
                asks = isinstance(node, ast.Compare | ast.MatchClass) or (
                    isinstance(node, ast.Call)
                    and getattr(node.func, "id", "") in ("isinstance", "issubclass", "type")
                )
                if asks and any(name in ast.unparse(node) for name in names):
                    found.append(f"{path}:{node.lineno}")
    assert found == []
