"""What became of each request, in seconds: the rows of ``Result.to_pandas``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.metrics.request_times import request_times
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_gaps import largest_gaps_ns

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


def request_columns(instance: Instance, schedule: Schedule) -> dict[str, Any]:
    """Return a column for each figure of requests, one row a request, times in seconds.

    ``request`` is the id, or the row; ``worker`` and ``client`` are those of the first stay;
    ``waiting_s`` is the time from the arrival to the begin of the prefill, ``itl_max_s`` the
    largest time between two successive tokens. A figure that is not defined is NaN: TPOT and gaps
    of a single token, times of a request that a stopped run did not serve to its end.
    """
    line, table = Timeline(instance, schedule), instance.requests
    times = request_times(instance, schedule, line)
    arrival, several = table.arrival_ns, table.output_tokens >= 2
    done = (times["finish_ns"] >= 0) & (line.yielded >= table.output_tokens)
    begun, first = times["prefill_start_ns"] >= 0, times["first_token_ns"] >= 0
    pace = times["finish_ns"] - times["first_token_ns"]
    worker = np.full(len(table), -1, np.int64)
    worker[line.stay_request[::-1]] = line.stay_worker[::-1]
    restarts = np.zeros(len(table), np.int64)
    np.add.at(restarts, line.stay_request, 1)
    columns: dict[str, Any] = {
        "request": np.arange(len(table)) if table.ids is None else list(table.ids),
        "arrival_s": arrival / NS_PER_S,
        "prompt_tokens": table.prompt_tokens,
        "output_tokens": table.output_tokens,
        "worker": worker,
        "client": times["client"],
        "restarts": np.maximum(restarts - 1, 0),
        "start_s": _seconds(times["prefill_start_ns"], begun),
        "first_token_s": _seconds(times["first_token_ns"], first),
        "finish_s": _seconds(times["finish_ns"], done),
        "waiting_s": _seconds(times["prefill_start_ns"] - arrival, begun),
        "ttft_s": _seconds(times["first_token_ns"] - arrival, first),
        "tpot_s": _seconds(pace // np.maximum(table.output_tokens - 1, 1), done & several),
        "itl_max_s": _seconds(largest_gaps_ns(line), done & several),
        "jct_s": _seconds(times["finish_ns"] - arrival, done),
    }
    if instance.names_classes:
        names = np.array([kind.name for kind in instance.classes], object)
        columns["class"] = names[table.service_class]
    if table.tenant is not None and table.tenants is None:
        columns["tenant"] = table.tenant
    elif table.tenant is not None:
        columns["tenant"] = np.array(table.tenants, object)[table.tenant]
    return columns


def _seconds(values: IntColumn, known: Any) -> Any:
    """Return nanoseconds as seconds, NaN where they are not known."""
    return np.where(known, values / NS_PER_S, np.nan)
