"""Resuming a stopped run: the rest as an instance of its own, and both parts as one trace.

The tokens of the requests in a run are here, too: their prompts, and what they have yielded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.data.length_quantiles import quantiles_after
from orsched.data.schedule import Steps, Work
from orsched.metrics.timeline import yielded_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.requests import Prefixes
    from orsched.data.schedule import Schedule


_OF_PREFIXES = 2**32  # streams of prefix blocks; those of requests are numbered from 0


def random_prompt(seed: int, request: int, tokens: int, vocabulary: int) -> list[int]:
    """Return the prompt of a request that is known by its length only."""
    stream = np.random.default_rng([seed, request])
    prompt: list[int] = stream.integers(vocabulary, size=tokens).tolist()
    return prompt


def with_prefix(
    prompt: list[int], prefixes: Prefixes, request: int, seed: int, vocabulary: int
) -> list[int]:
    """Return a drawn prompt in which the blocks of the request's prefix are drawn by their ids.

    Equal ids give equal tokens; a block that the prompt fills in part begins like the others.
    """
    size, found = prefixes.block_tokens, list(prompt)
    ids = prefixes.ids[prefixes.offsets[request] : prefixes.offsets[request + 1]]
    for block, name in enumerate(ids.tolist()):
        drawn = np.random.default_rng([seed, _OF_PREFIXES, name]).integers(vocabulary, size=size)
        place = slice(block * size, min((block + 1) * size, len(prompt)))
        found[place] = drawn[: place.stop - place.start].tolist()
    return found


class Prompts:
    """Tokens of the requests: their prompts, then what they yielded, stay by stay."""

    def __init__(
        self,
        instance: Instance,  # has the lengths of the prompts, and the prefixes that they share
        seed: int,
        vocabulary: int,
        given: Sequence[Sequence[int]] | None = None,  # the prompts, where they are known
    ) -> None:
        self.sizes: list[int] = instance.requests.prompt_tokens.tolist()
        self.prefixes = instance.requests.prefixes
        self.seed, self.vocabulary, self.given = seed, vocabulary, given
        self.parts: list[list[Any]] = [[] for _ in self.sizes]
        if given is not None and [len(prompt) for prompt in given] != self.sizes:
            raise InputError(
                "not as long as the instance says",
                field="prompts",
                remedy="give prompts of the instance's lengths",
            )

    def of(self, request: int) -> list[int]:
        """Return the prompt and all that was yielded in earlier stays."""
        if self.given is None:
            size = self.sizes[request]
            prompt = random_prompt(self.seed, request, size, self.vocabulary)
            if self.prefixes is not None:
                prompt = with_prefix(prompt, self.prefixes, request, self.seed, self.vocabulary)
        else:
            prompt = list(self.given[request])
        return prompt + self.yielded(request)

    def yielded(self, request: int) -> list[int]:
        """Return what was yielded in earlier stays."""
        return [token for part in self.parts[request] for token in _plain(part)]

    def length(self, request: int) -> int:
        """Return the number of tokens of prompt and earlier stays."""
        return self.sizes[request] + sum(len(part) for part in self.parts[request])

    def keep(self, request: int, part: Any) -> None:
        """Take what a stay has yielded: a list, or a tensor that is looked into later."""
        if len(part):
            self.parts[request].append(part)


def _plain(part: Any) -> list[int]:
    tokens: list[int] = part.tolist() if hasattr(part, "tolist") else part
    return tokens


class Rest(NamedTuple):
    """What a stopped run has left to do.

    Attributes:
        instance: the requests that are not done, with what they have yielded as a part of their
            prompts.
        rows: row of each in the whole instance.
        yielded: tokens that each of them has yielded.
        offset_ns: moment of the whole run at which the rest begins.
    """

    instance: Instance
    rows: IntColumn
    yielded: IntColumn
    offset_ns: int


def residual(instance: Instance, trace: Schedule) -> Rest:
    """Return what is left to do after a run that was stopped.

    Requests that are not done have prompts of N^p + g tokens and yield N^d - g, where g are those
    that they have yielded. The rest begins at the end of the last step, or when the next of its
    requests arrives, if nothing but arrivals was left to wait for; arrivals before it count as 0.

    Raises:
        InputError: the trace is of another instance, or all requests are done.
    """
    if trace.instance_sha256 != instance.sha256:
        raise InputError(
            "the trace is of another instance",
            field="instance_sha256",
            remedy="give the instance that was run",
        )
    if instance.caches_prefixes:
        raise InputError(
            "a run with a prefix cache cannot be resumed: what the cache held is gone",
            field="resume",
            remedy="run it again from the start",
        )
    requests = instance.requests
    yielded = yielded_tokens(instance, trace)
    rows = np.flatnonzero(yielded < requests.output_tokens)
    if not len(rows):
        raise InputError(
            "all requests are done: nothing to resume",
            field="schedule",
            remedy="give the trace of a run that was stopped",
        )
    offset_ns, given = trace.makespan_ns, yielded[rows]
    chosen = requests.take(rows)
    outputs = chosen.output_tokens - given
    predicted, quantiles = chosen.predicted_tokens, chosen.predicted_quantiles
    if quantiles is not None:
        quantiles = quantiles_after(quantiles, chosen.quantile_levels or (), given)
    chosen = replace(
        chosen,
        prompt_tokens=chosen.prompt_tokens + given,
        output_tokens=outputs,
        arrival_ns=np.maximum(chosen.arrival_ns - offset_ns, 0),
        predicted_tokens=None if predicted is None else np.maximum(predicted - given, 1),
        predicted_quantiles=quantiles,
    )
    limit = int((instance.output_limit_tokens - given).max())
    left = instance.replace(requests=chosen, output_limit_tokens=limit)
    return Rest(left, rows, given, offset_ns)


def prompts_of_rest(rest: Rest, trace: Schedule, seed: int, vocabulary: int) -> list[list[int]]:
    """Return the prompts of the rest: as they were drawn, and what was yielded after them.

    Raises:
        InputError: the trace does not say what an unfinished request has yielded.
    """
    sizes = (rest.instance.requests.prompt_tokens - rest.yielded).tolist()
    unfinished = trace.run.get("unfinished", {})
    found = []
    rows = zip(rest.rows.tolist(), sizes, rest.yielded.tolist(), strict=True)
    prefixes = rest.instance.requests.prefixes
    for place, (row, size, given) in enumerate(rows):
        tokens = unfinished.get(str(row), [])
        if len(tokens) != given:
            raise InputError(
                f"request {row} has yielded {given} tokens; {len(tokens)} are noted",
                field=f"run.unfinished.{row}",
                remedy="resume a trace that the runner wrote",
            )
        if any(not 0 <= token < vocabulary for token in tokens):
            raise InputError(
                f"a token is none of the model's {vocabulary}",
                field=f"run.unfinished.{row}",
                remedy="resume a trace that the runner wrote",
            )
        prompt = random_prompt(seed, row, size, vocabulary)
        if prefixes is not None:
            prompt = with_prefix(prompt, prefixes, place, seed, vocabulary)
        found.append(prompt + tokens)
    return found


def with_lengths(instance: Instance, rest: Rest, came_out: Instance) -> Instance:
    """Return the whole instance with the lengths that came out of the rest.

    For runs in which requests end at a token: ``came_out`` is the executed instance of the rest.
    """
    outputs = instance.requests.output_tokens.copy()
    outputs[rest.rows] = rest.yielded + came_out.requests.output_tokens
    return instance.replace(requests=instance.requests.replace(output_tokens=outputs))


def merge(
    instance: Instance,
    trace: Schedule,
    rest: Schedule,
    offset_ns: int | None = None,
    came_out: Instance | None = None,
) -> Schedule:
    """Return a run that was stopped and its rest as one schedule of the whole instance.

    The rest's stays follow those of the same requests, its steps begin ``offset_ns`` later. If the
    rest was stopped as well, so is the whole. The other entries of ``run`` are the trace's.

    Args:
        instance: the whole.
        trace: of it.
        rest: a schedule of ``residual(instance, trace).instance``, complete or not.
        offset_ns: default: ``residual``'s.
        came_out: the rest's instance, if lengths turned out in the run; the whole is then of
            ``with_lengths``.

    Raises:
        InputError: the rest is of another instance.
    """
    left = residual(instance, trace)
    done = left.instance if came_out is None else came_out
    if came_out is not None:
        instance = with_lengths(instance, left, came_out)
        left = left._replace(instance=came_out)
    if rest.instance_sha256 != done.sha256:
        raise InputError(
            "that is not the rest of this run",
            field="instance_sha256",
            remedy="give a schedule of residual(instance, trace).instance",
        )
    offset = left.offset_ns if offset_ns is None else offset_ns
    steps, work = _in_one(len(instance), left, trace, rest, offset)
    return trace.replace(
        instance_sha256=instance.sha256,
        steps=steps,
        work=work,
        run=_run(left, trace, rest, offset),
    )


def _in_one(
    requests: int, left: Rest, trace: Schedule, rest: Schedule, offset: int
) -> tuple[Steps, Work]:
    """Return the steps and the work of both parts, each in its order."""
    moved = replace(
        rest.steps, start_ns=rest.steps.start_ns + offset, end_ns=rest.steps.end_ns + offset
    )
    steps = _joined(trace.steps, moved)
    order = np.lexsort((steps["worker"], steps["start_ns"]))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    stays = np.zeros(requests, np.int64)
    np.maximum.at(stays, trace.work.request, trace.work.stay + 1)
    rows = left.rows[rest.work.request]
    later = replace(
        rest.work,
        request=rows,
        first_step=rest.work.first_step + len(trace.steps),
        last_step=rest.work.last_step + len(trace.steps),
        stay=rest.work.stay + stays[rows],
    )
    work = _joined(trace.work, later)
    for name in ("first_step", "last_step"):
        work[name] = place[work[name]]
    by_request = np.lexsort((work["phase"], work["first_step"], work["stay"], work["request"]))
    return (
        Steps(**{name: column[order] for name, column in steps.items()}),
        Work(**{name: column[by_request] for name, column in work.items()}),
    )


def _joined(before: Steps | Work, after: Steps | Work) -> dict[str, IntColumn]:
    """Return the columns of two tables, one after the other."""
    return {
        name: np.concatenate([column, getattr(after, name)])
        for name, column in vars(before).items()
    }


def _run(left: Rest, trace: Schedule, rest: Schedule, offset_ns: int) -> dict[str, Any]:
    run = {k: v for k, v in trace.run.items() if k not in ("complete", "unfinished", "events")}
    rows = left.rows.tolist()
    events = [*trace.run.get("events", [])]
    events.append({"time_ns": offset_ns, "what": "resumed"})
    for event in rest.run.get("events", []):
        moved = {**event, "time_ns": event["time_ns"] + offset_ns}
        if "requests" in event:
            moved["requests"] = [rows[request] for request in event["requests"]]
        events.append(moved)
    run["events"] = events
    if rest.is_partial:
        run |= {"complete": False, "unfinished": _unfinished(left, trace, rest)}
    return run


def _unfinished(left: Rest, trace: Schedule, rest: Schedule) -> dict[str, Sequence[int]]:
    """Return what the requests that are still not done have yielded, in both parts."""
    before, after = trace.run.get("unfinished", {}), rest.run.get("unfinished", {})
    done = yielded_tokens(left.instance, rest) >= left.instance.requests.output_tokens
    return {
        str(row): [*before.get(str(row), []), *after.get(str(index), [])]
        for index, row in enumerate(left.rows.tolist())
        if not done[index] and (str(row) in before or str(index) in after)
    }
