"""Gradient-boosted quantiles: fitted by scikit-learn, kept as arrays of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import OrschedError, unavailable
from orsched.prediction.trees import Trees

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


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

    Gradient boosting on the pinball loss with binned features, depth at most 4.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
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
