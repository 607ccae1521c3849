"""Sums of decision trees: fitted by scikit-learn, kept as plain arrays, evaluated with numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import int_column, whole_number
from orsched.common.errors import InputError, OrschedError, unavailable
from orsched.files.document import column_field, require_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn

    Floats = NDArray[np.float64]


MAX_NODES = 2_000_000
MAX_DEPTH = 32
_COLUMNS = ("feature", "threshold", "left", "right", "value")
_OTHERS = ("roots", "sizes", "start")


@dataclass(frozen=True, eq=False)
class Trees:
    """Several sums of trees over the same features; sum k is one output.

    All trees stand one behind the other in the columns of nodes. A leaf has itself as both
    children, so that walking all trees down for as many steps as the deepest one needs ends in
    their leaves.
    """

    feature: IntColumn  # (nodes,) column that a node looks at; 0 at leaves
    threshold: Floats  # (nodes,) a row goes left where its feature is at most that; 0 at leaves
    left: IntColumn  # (nodes,) child, behind its parent; the node itself at leaves
    right: IntColumn  # (nodes,) likewise
    value: Floats  # (nodes,) what a leaf adds to its sum; 0 elsewhere
    roots: IntColumn  # (trees,) first node of each tree, increasing
    sizes: IntColumn  # (sums,) number of trees in each sum; those of a sum stand together
    start: Floats  # (sums,) what each sum starts from
    features: int  # number of columns of the rows

    def __post_init__(self) -> None:
        _require_trees(self)
        sides = np.empty(2 * len(self.left), np.intp)
        sides[0::2], sides[1::2] = self.left, self.right
        ends = np.concatenate(([0], np.cumsum(self.sizes)[:-1])).astype(np.intp)
        for name, found in (("_sides", sides), ("_depth", _depth(self)), ("_ends", ends)):
            object.__setattr__(self, name, found)

    def __call__(self, rows: Floats) -> Floats:
        """Return the sums for rows of features; shape (n, sums)."""
        n = len(rows)
        found = np.empty((n, len(self.start)))
        step = max(1, 200_000 // max(1, len(self.roots)))
        for first in range(0, n, step):
            found[first : first + step] = self._sums(rows[first : first + step])
        return found

    def _sums(self, rows: Floats) -> Floats:
        flat = np.ascontiguousarray(rows).ravel()
        base = (np.arange(len(rows)) * self.features)[:, None]
        node = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        for _ in range(self._depth):  # type: ignore[attr-defined]
            right = flat.take(self.feature.take(node) + base) > self.threshold.take(node)
            node = self._sides.take(2 * node + right)  # type: ignore[attr-defined]
        if not len(self.roots):
            return np.broadcast_to(self.start, (len(rows), len(self.start)))
        added = np.add.reduceat(self.value.take(node), self._ends, axis=1)  # type: ignore[attr-defined]
        return np.asarray(self.start + added, np.float64)

    def document(self) -> dict[str, Any]:
        """Return the trees as plain values; ``trees_from`` is the inverse."""
        columns = {name: getattr(self, name).tolist() for name in (*_COLUMNS, "roots", "sizes")}
        return {"features": self.features, "start": self.start.tolist(), **columns}


def trees_from(document: object, field: str) -> Trees:
    """Return the trees of a document; raises ``InputError`` that names field and row."""
    values = require_object(document, field)
    for name in (*_COLUMNS, *_OTHERS, "features"):
        if name not in values:
            raise InputError("is missing", field=f"{field}.{name}", remedy="train again")
    owner = field + "."
    try:
        return Trees(
            **{name: _column(values, name, owner) for name in (*_COLUMNS, *_OTHERS)},
            features=whole_number(values["features"], "features", minimum=1, maximum=10_000),
        )
    except InputError as error:
        name = error.field or ""
        place = name if name.startswith(owner) else owner + name
        raise InputError(
            error.problem, row=error.row, field=place, remedy=error.remedy or "train again"
        ) from None


def float_column(values: object, field: str) -> Floats:
    """Return a column of finite numbers; raises ``InputError`` with the first wrong row."""
    if isinstance(values, list):
        for row, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputError("is not a number", row=row, field=field, remedy="train again")
    try:
        found = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError("must be a list of numbers", field=field, remedy="train again") from None
    if found.ndim != 1:
        raise InputError("must be a plain list", field=field, remedy="train again")
    wrong = ~np.isfinite(found)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError("is not finite", row=row, field=field, remedy="train again")
    found.setflags(write=False)
    return found


def _column(values: dict[str, Any], name: str, owner: str) -> Any:
    column = column_field(values, name, owner)
    if name in ("threshold", "value", "start"):
        return float_column(column, owner + name)
    return int_column(column, owner + name, maximum=MAX_NODES).astype(np.intp)


def _require_trees(trees: Trees) -> None:
    """Raise ``InputError`` unless the columns are trees that can be walked down safely."""
    nodes = len(trees.feature)
    if nodes > MAX_NODES:
        raise InputError(f"more than {MAX_NODES:,} nodes", field="feature", remedy="train again")
    for name in _COLUMNS:
        if len(getattr(trees, name)) != nodes:
            raise InputError(
                f"{len(getattr(trees, name))} values for {nodes} nodes",
                field=name,
                remedy="train again",
            )
    own, last = np.arange(nodes), _last_of_each(trees, nodes)
    leaf = (trees.left == own) & (trees.right == own)
    for name in ("left", "right"):
        child = getattr(trees, name)
        _first(
            ~leaf & ((child <= own) | (child > last)), name, "is not a node behind it in its tree"
        )
    outside = (trees.feature < 0) | (trees.feature >= trees.features)
    _first(outside, "feature", f"is none of {trees.features} features")
    if len(trees.sizes) != len(trees.start) or (trees.sizes < 0).any():
        raise InputError("one number of trees a sum", field="sizes", remedy="train again")
    if trees.sizes.sum() != len(trees.roots) or (len(trees.roots) and (trees.sizes == 0).any()):
        raise InputError(
            "do not add up to the number of trees", field="sizes", remedy="train again"
        )


def _last_of_each(trees: Trees, nodes: int) -> IntColumn:
    """Return the last node of the tree that each node is in."""
    roots = trees.roots
    if nodes == 0 and len(roots) == 0:
        return np.empty(0, np.int64)
    if not len(roots) or roots[0] != 0 or roots[-1] >= nodes or (np.diff(roots) <= 0).any():
        raise InputError("must be nodes, increasing from 0", field="roots")
    ends = np.append(roots[1:], nodes)
    return np.repeat(ends - 1, ends - roots)


def _first(wrong: NDArray[np.bool_], field: str, problem: str) -> None:
    if wrong.any():
        raise InputError(problem, row=int(np.argmax(wrong)), field=field, remedy="train again")


def _depth(trees: Trees) -> int:
    """Return how many steps it takes to the deepest leaf; raises ``InputError`` beyond a limit."""
    node, depth = trees.roots, 0
    own = np.arange(len(trees.left))
    while True:
        node = np.unique(node[trees.left[node] != own[node]])
        if not len(node):
            return depth
        depth += 1
        if depth > MAX_DEPTH:
            raise InputError(f"deeper than {MAX_DEPTH} nodes", field="left", remedy="train again")
        node = np.concatenate([trees.left[node], trees.right[node]])


def fit_quantiles(
    rows: Floats,
    targets: Floats,
    levels: Floats,
    *,
    trees: int = 40,
    leaves: int = 16,
    rate: float = 0.15,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Trees:
    """Return trees whose sum k is the quantile of level k of the targets given the features.

    Gradient boosting on the pinball loss with binned features, depth at most 4. Raises
    ``MissingDependencyError`` without scikit-learn.
    """
    regressor, one_thread = scikit_learn()
    parts = []
    for place, level in enumerate(levels.tolist()):
        if progress is not None:
            progress(f"quantile {level:g}, {place + 1} of {len(levels)}")
        model = regressor(
            loss="quantile",
            quantile=level,
            max_iter=trees,
            max_leaf_nodes=leaves,
            max_depth=4,
            min_samples_leaf=max(1, min(20, len(rows) // 20)),
            learning_rate=rate,
            early_stopping=False,
            random_state=seed % 2**32,
        )
        # Threads that wait for each other on a busy machine cost ten times the work.
        with one_thread(limits=1):
            parts.append(_sum_of(model.fit(rows, targets)))
    return _together(parts, rows.shape[1])


def scikit_learn() -> tuple[Any, Any]:
    """Return the regressor and what limits its threads; raises ``MissingDependencyError``."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        missing = "scikit-learn is needed for training: pip install 'orsched[predict]'"
        raise unavailable(error, missing) from None
    return HistGradientBoostingRegressor, threadpool_limits


def _sum_of(model: Any) -> tuple[float, list[Any]]:
    """Return the start of a fitted sum and the node tables of its trees."""
    try:
        tables = [stage[0].nodes for stage in model._predictors]
        start = float(np.ravel(model._baseline_prediction)[0])
        for table in tables[:1]:
            table["feature_idx"], table["num_threshold"], table["is_leaf"], table["value"]
    except (AttributeError, ValueError) as error:
        raise OrschedError(
            f"this version of scikit-learn keeps its trees elsewhere ({error}): "
            "pip install 'orsched[predict]' for one that is known"
        ) from None
    return start, tables


def _together(parts: list[tuple[float, list[Any]]], features: int) -> Trees:
    tables = [table for _, part in parts for table in part]
    sizes = [len(table) for table in tables]
    roots = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.intp)
    shift = np.repeat(roots, sizes)
    nodes = np.concatenate(tables)
    leaf = nodes["is_leaf"].astype(bool)
    own = np.arange(len(nodes))
    return Trees(
        np.where(leaf, 0, nodes["feature_idx"]).astype(np.intp),
        np.where(leaf, 0.0, nodes["num_threshold"]),
        np.where(leaf, own, nodes["left"].astype(np.intp) + shift),
        np.where(leaf, own, nodes["right"].astype(np.intp) + shift),
        np.where(leaf, nodes["value"], 0.0),
        roots,
        np.array([len(part) for _, part in parts], np.intp),
        np.array([start for start, _ in parts]),
        features,
    )
