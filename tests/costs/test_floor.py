"""Floors: exact for the shipped models, and of one class only."""

import ast
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import AffineCost, BilinearCost, Floor, LevelsCost, PoolingCost, RoundFloor, StageFloor
from orsched.costs import CostModel, as_bilinear, floor_faults, floor_of, mixed_ns, splits
from tests.costs.test_models import EXAMPLES, any_cost
from tests.in_order import in_order
from tests.refusals import refusal

SHIPPED = tuple(cost for cost in EXAMPLES if cost.model != "profiled")
METHODS = ("prefill_ns", "round_ns", "rounds_ns", "mixed_ns")


def overriding(cost, method, factor):
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
def test_the_shipped_models_take_exactly_their_floors_or_no_less(cost, prompts, contexts):
    floor = floor_of(cost)
    assert floor.exact is (cost.model != "roofline")
    load = (len(contexts), sum(contexts), max(contexts))
    assert floor.round_ns(*load) <= cost.round_ns(*load)
    assert not floor.exact or floor.round_ns(*load) == cost.round_ns(*load)
    if prompts:
        assert floor.prefill_ns(prompts) <= cost.prefill_ns(prompts)
        assert not floor.exact or floor.prefill_ns(prompts) == cost.prefill_ns(prompts)
        assert floor.mixed_ns(prompts, *load) <= mixed_ns(cost, prompts, *load)


def stating(floor):
    """A model of a class that states another floor."""
    return type("Stating", (AffineCost,), {"floor": lambda self: floor})()


def test_a_floor_that_is_too_high_is_found_by_random_steps():
    cost = AffineCost()
    stage = StageFloor(fixed=cost.prefill_fixed_ns + 1, token=cost.prefill_token_ns)
    high = stating(Floor(stage, RoundFloor(fixed=cost.round_fixed_ns)))
    assert "a stage takes" in floor_faults(high, steps=10)[0]
    for cost in SHIPPED:
        assert floor_faults(cost, steps=100) == []


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cost", SHIPPED, ids=lambda cost: cost.model)
def test_a_class_that_overrides_one_method_states_nothing(cost, method):
    other = overriding(cost, method, 0.5)
    assert floor_of(cost) is not None
    assert floor_of(other) is None
    assert splits(other) is None
    assert as_bilinear(other) is None


@pytest.mark.parametrize("name", ["_round_fs", "context_matters", "prefill_limit", "extra"])
def test_nor_does_one_that_adds_anything_else(name):
    kind = type("Other", (BilinearCost,), {name: property(lambda self: 0)})
    assert floor_of(in_order(kind, *[10**6] * 8)) is None


def test_nor_one_with_a_method_from_beside_or_on_the_object():
    beside = type("Beside", (), {"mixed_ns": lambda self, *args: 1})
    both = type("Both", (LevelsCost, beside), {})
    assert floor_of(both(levels=((100, 5),), round_fixed_ns=5)) is None
    cost = AffineCost()
    object.__setattr__(cost, "round_ns", lambda *args: 1)
    assert floor_of(cost) is None


def test_a_class_that_changes_no_time_keeps_the_statement():
    class Named(AffineCost):
        """Another name only."""

        model = "named"

    @dataclass(frozen=True)
    class Again(Named):
        pass

    assert floor_of(Named()) == floor_of(Again()) == floor_of(AffineCost())


def test_and_one_that_states_its_own_floor_is_taken_at_its_word():
    class Halved(AffineCost):
        def prefill_ns(self, prompts):
            return super().prefill_ns(prompts) // 2

        def floor(self):
            return Floor(StageFloor(token=self.prefill_token_ns // 2), RoundFloor())

    assert floor_of(Halved()) == Floor(StageFloor(token=65_000), RoundFloor())


def test_models_that_state_none_have_none():
    assert floor_of(in_order(BilinearCost, 1, 1, 1, -1, 1, 1, 1, 1)) is None
    assert floor_of(in_order(PoolingCost, 1, 1, 1, -1, 1)) is None
    assert floor_of(type("Derived", (CostModel,), {})()) is None


@pytest.mark.parametrize(("build", "field"), [
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
])  # fmt: skip
def test_a_wrong_floor_names_its_field(build, field):
    assert refusal(build).field == field


@pytest.mark.parametrize("floor", [25, Floor(StageFloor(levels=((100, 5),)), RoundFloor())])
def test_what_is_no_floor_or_has_levels_that_end_too_early_is_refused(floor):
    with pytest.raises(orsched.InputError, match="Stating"):
        floor_of(stating(floor))


def test_no_class_of_cost_model_is_asked_for_outside_this_folder(repo_root):
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
