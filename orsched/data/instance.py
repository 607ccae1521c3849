"""Instances: requests and workers, the whole of a scheduling problem."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.registry import attached
from orsched.common.units import MAX_TOKENS, NS_PER_S, seconds_text
from orsched.data.feasibility import (
    check_autoscaling,
    check_block_sizes,
    check_classes,
    check_horizon,
    check_roles,
    check_size,
    checked_refused,
    fits_some_worker,
    require_feasible,
)
from orsched.data.requests import NONE, Requests, with_all_before
from orsched.data.service_classes import (
    DEFAULT_CLASSES,
    LABELLED,
    ServiceClass,
    checked_classes,
    with_specs,
)
from orsched.data.workers import Worker

if TYPE_CHECKING:
    import pandas as pd

    from orsched.data.autoscaling import Autoscaling
    from orsched.data.links import Link


_LOG = logging.getLogger("orsched")
FIRST_TOKEN_RULES = ("decode", "prefill")


@dataclass(frozen=True, eq=False)
class Instance:
    """A scheduling problem: requests, workers and the first-token rule.

    Attributes:
        requests: the jobs, one row each.
        workers: at least one worker.
        first_token: ``prefill`` (default): the prefill stage yields token 1 and N^d - 1 rounds
            follow (vLLM); ``decode``: all N^d tokens come from decode rounds (Pang, SCLS).
        output_limit_tokens: the server's limit on output tokens, known to every policy
            (default: the longest output).
        name, description, source, licence: labels, not part of the problem.
        classes: the service classes that the column ``service_class`` counts, those served first
            before others (default: interactive and batch, without limits).
        link: by which each worker sends the caches of requests that others decode; None: every
            request decodes where it is prefilled.
        autoscaling: the rule by which workers are started and drained; None: all are on.
        concurrency: conversations (requests, where no request has a parent) in flight at most: the
            next one is sent when fewer are unfinished; None: all arrive at their own times.
        refused: how many requests of each class were refused, for they fit onto no worker
            (``admitted``) or the queue was full: attainment counts them, no schedule has them.

    Raises ``InputError`` if a field is wrong.
    """

    requests: Requests
    workers: tuple[Worker, ...]
    first_token: str = "prefill"
    output_limit_tokens: int = None  # type: ignore[assignment]
    name: str = "instance"
    description: str = field(default="", repr=False)
    source: str = field(default="", repr=False)
    licence: str = field(default="", repr=False)
    classes: tuple[ServiceClass, ...] = field(default=DEFAULT_CLASSES, repr=False)
    link: Link | None = None
    autoscaling: Autoscaling | None = None
    refused: tuple[int, ...] = ()
    concurrency: int | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not isinstance(self.requests, Requests):
            raise InputError(
                f"{type(self.requests).__name__} is not Requests",
                field="requests",
                remedy="give orsched.Requests; orsched.load(frame, clients=64) takes a data frame",
            )
        listed = isinstance(self.workers, (list, tuple))
        workers = tuple(self.workers) if listed else (self.workers,)
        if not workers or not all(isinstance(w, Worker) for w in workers):
            raise InputError("must be one or more workers", field="workers")
        put(self, "workers", workers)
        check_block_sizes(self)
        check_roles(self)
        if self.first_token not in FIRST_TOKEN_RULES:
            raise InputError(
                f"{self.first_token!r} is not a first-token rule",
                field="first_token",
                remedy="use prefill or decode",
            )
        longest = int(self.requests.output_tokens.max(initial=1))
        limit = longest if self.output_limit_tokens is None else self.output_limit_tokens
        limit = whole_number(limit, "output_limit_tokens", minimum=1, maximum=MAX_TOKENS)
        if limit < longest:
            row = int(np.argmax(self.requests.output_tokens > limit))
            raise InputError(
                f"request {self.requests.id_of(row)} yields more tokens than the limit of {limit}",
                row=row,
                field="output_tokens",
                remedy="raise output_limit_tokens or cut the request",
            )
        put(self, "output_limit_tokens", limit)
        for label in ("name", "description", "source", "licence"):
            if not isinstance(getattr(self, label), str):
                raise InputError("must be a text", field=label)
        put(self, "classes", checked_classes(self.classes))
        check_classes(self)
        if self.concurrency is not None:
            most = whole_number(self.concurrency, "concurrency", minimum=1, maximum=MAX_TOKENS)
            put(self, "concurrency", most)
        put(self, "refused", checked_refused(self.refused, len(self.classes)))
        check_horizon(self)
        check_size(self)
        check_autoscaling(self)

    def __len__(self) -> int:
        return len(self.requests)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Instance):
            return NotImplemented
        labels = (
            "name", "description", "source", "licence", "first_token", "output_limit_tokens",
            "refused", "concurrency",
        )  # fmt: skip
        return (
            all(getattr(self, label) == getattr(other, label) for label in labels)
            and self.workers == other.workers
            and self.classes == other.classes
            and self.autoscaling == other.autoscaling
            and self.requests == other.requests
            and self.link == other.link
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def names_classes(self) -> bool:
        """Whether the classes are others than interactive and batch without limits."""
        return self.classes != DEFAULT_CLASSES

    def with_classes(self, *specs: str | ServiceClass) -> Instance:
        """Return a copy with classes put in by their names, new ones at the end.

        A text such as ``interactive:ttft=1,tpot=0.05`` stands for a class (``read_class``).
        """
        return replace(self, classes=with_specs(self.classes, specs))

    def class_code(self, name: str) -> int:
        """Return the place of a class; raises ``InputError`` for an unknown name."""
        known = [kind.name for kind in self.classes]
        if name not in known:
            raise InputError(
                f"{name!r} is not a class of the instance",
                field="class",
                remedy=known_names(name, known),
            )
        return known.index(name)

    @cached_property
    def arrivals_follow(self) -> bool:
        """Whether some request arrives when another one has ended."""
        if self.requests.delay_ns is not None:
            return True
        return self.concurrency is not None and self.concurrency < self.conversations

    @property
    def conversations(self) -> int:
        """How many requests are first turns of conversations."""
        parent = self.requests.parent
        return len(self) if parent is None else int((parent == NONE).sum())

    @cached_property
    def bulk(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each request is of a bulk class."""
        mask = np.array([kind.bulk for kind in self.classes])[self.requests.service_class]
        mask.setflags(write=False)
        return mask

    @cached_property
    def deadlines_ns(self) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        """Time from arrival by which each request is to finish, -1 for none; None where none is."""
        own, kinds = self.requests.deadline_ns, [kind.deadline_ns for kind in self.classes]
        if own is None and not any(kind is not None for kind in kinds):
            return None
        limits = np.array([-1 if limit is None else limit for limit in kinds], np.int64)
        of_class = limits[self.requests.service_class]
        return of_class if own is None else np.where(own > 0, own, of_class)

    @property
    def worker(self) -> Worker:
        """The only worker; raises ``InputError`` when there are several."""
        if len(self.workers) != 1:
            raise InputError(
                f"the instance has {len(self.workers)} workers",
                field="workers",
                remedy="this function takes instances with one worker",
            )
        return self.workers[0]

    def require_stages(self, what: str, *, paged: bool = True) -> Worker:
        """Return the only worker if it takes stages as Pang's model has them.

        Raises ``InputError`` for several workers, for one that pads, and, unless ``paged`` is
        allowed, where ``pages_matter``; ``what`` names the method that does not support them.
        """
        if len(self.workers) > 1:
            raise InputError(
                f"{what} is for one worker, the instance has {len(self.workers)}",
                field="workers",
                remedy="choose fleet, which plans several workers for the makespan, or a policy "
                "(vllm, gittins, scls, ssjf, mico, fcfs) for any objective; or take one worker",
            )
        worker = self.worker
        self.require_steady(what)
        if worker.padding:
            raise InputError(
                f"{what} does not support padding",
                field="padding",
                remedy="leave padding out, or choose fcfs, static, dynamic, scls or mico",
            )
        if not paged and self.pages_matter:
            raise InputError(
                f"{what} does not support prefix caches and paged memory that may limit",
                field="allocation",
                remedy="set it to whole (--allocation whole), or choose another method",
            )
        return worker

    @cached_property
    def pages_matter(self) -> bool:
        """Whether some worker has paged memory that may limit, or that keeps prefixes.

        Paged memory does not limit where prompts and answers of the largest requests, one per
        client, fit side by side. It is then the same as none, and as ``whole``.
        """
        tokens = self.requests.prompt_tokens + self.requests.output_tokens
        for worker in self.workers:
            memory = worker.memory
            if memory is None or not memory.is_paged:
                continue
            held = np.sort(-(-tokens // memory.block_tokens))[-worker.clients :]
            if memory.prefix_cache is not None or int(held.sum()) > memory.blocks:
                return True
        return False

    @cached_property
    def fleet_changes(self) -> bool:
        """Whether some worker is not there all the time."""
        own = any(worker.available_ns for worker in self.workers)
        return own or self.autoscaling is not None

    def require_steady(self, what: str) -> None:
        """Raise ``InputError`` for workers that come and go or send caches: ``what`` knows none."""
        if self.link is not None:
            raise InputError(
                f"{what} does not support caches that change workers",
                field="link",
                remedy="leave roles and link out; orsched simulate takes them, with disaggregated",
            )
        if self.fleet_changes:
            raise InputError(
                f"{what} does not support workers that come and go",
                field="available_ns",
                remedy="leave the times out; orsched simulate knows them, with vllm or gittins",
            )
        self.require_known_arrivals(what)

    def require_known_arrivals(self, what: str) -> None:
        """Raise ``InputError`` where arrivals follow from ends: ``what`` needs them beforehand."""
        if self.arrivals_follow:
            problem = f"{what} needs known arrivals: here requests arrive when others have ended"
            remedy = "choose a policy (vllm, gittins), or leave concurrency and delays out"
            raise InputError(problem, field="arrivals", remedy=remedy)

    @cached_property
    def caches_prefixes(self) -> bool:
        """Whether some worker has a prefix cache."""
        return any(worker.caches_prefixes for worker in self.workers)

    @cached_property
    def rounds_needed(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Decode rounds of each request under the first-token rule."""
        rounds = self.requests.output_tokens - (self.first_token == "prefill")
        rounds.setflags(write=False)
        return rounds

    @cached_property
    def sha256(self) -> str:
        """Hash of the problem: everything but labels and names of requests."""
        digest = hashlib.sha256()
        head = {
            "workers": [{**w.to_dict(), "name": ""} for w in self.workers],
            "first_token": self.first_token,
            "output_limit_tokens": self.output_limit_tokens,
            "requests": len(self),
        }
        if self.autoscaling is not None:
            head["autoscaling"] = self.autoscaling.to_dict()
        if self.names_classes:
            head["classes"] = [kind.to_dict() for kind in self.classes]
        if self.link is not None:
            head["link"] = self.link.to_dict()
        if self.refused:
            head["refused"] = list(self.refused)
        if self.concurrency is not None:
            head["concurrency"] = self.concurrency
        req = self.requests
        for name in (f"{label}s" for label in LABELLED):
            if getattr(req, name) is not None:
                head[name] = list(getattr(req, name))
        digest.update(json.dumps(head, sort_keys=True).encode())
        columns = [req.prompt_tokens, req.output_tokens, req.arrival_ns, req.service_class]
        if req.predicted_tokens is not None:
            columns.append(req.predicted_tokens)
        if req.prefixes is not None:
            columns += [req.prefixes.offsets, req.prefixes.ids]
            digest.update(f"prefixes of {req.prefixes.block_tokens}".encode())
        for name in (*LABELLED, "deadline_ns", "parent", "delay_ns"):
            if getattr(req, name) is not None:
                columns.append(getattr(req, name))
                digest.update(name.encode())
        if req.weights is not None:
            columns.append(req.weights)
            digest.update(b"weights")
        if req.predicted_quantiles is not None:
            columns.append(req.predicted_quantiles.ravel())
            digest.update(f"quantiles at {list(req.quantile_levels or ())}".encode())
        for column in columns:
            digest.update(len(column).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
        return digest.hexdigest()

    def require_feasible(self, chunks: bool = False) -> None:
        """Raise ``InfeasibleError`` unless each request fits onto some worker.

        A request fits if its prompt is within the worker's limit for a prefill step and its cache,
        when largest, in the whole memory. ``chunks``: prompts may be prefilled in chunks, to which
        the limit does not apply. The error names the first request without a worker, and what
        each worker lacks.
        """
        require_feasible(self, chunks)

    def admitted(self) -> Instance:
        """Return the instance without the requests that fit onto no worker, counted in ``refused``.

        As a server does with what needs more memory than it has; all that solves or bounds does
        this first. Raises ``InfeasibleError`` where no request is left.
        """
        fits = fits_some_worker(self, chunks=True)
        if fits.all():
            return self
        req = self.requests
        if req.parent is not None:
            fits = with_all_before(req.parent, fits)
        if not fits.any():
            require_feasible(self, chunks=True)
        return self.with_refused(~fits)

    def with_refused(self, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> Instance:
        """Return the instance without some requests, which are counted in ``refused``."""
        req, fits = self.requests, ~mask
        kept, codes = req.take(np.flatnonzero(fits)), req.service_class[mask]
        if req.ids is None:  # keep the names that rows had
            kept = kept.replace(ids=tuple(req.id_of(row) for row in np.flatnonzero(fits).tolist()))
        refused = np.bincount(codes, minlength=len(self.classes))
        refused[: len(self.refused)] += np.array(self.refused, np.int64)
        return self.replace(requests=kept, refused=tuple(refused.tolist()))

    @cached_property
    def needs_chunks(self) -> bool:
        """Whether some request fits onto no worker unless its prompt is prefilled in chunks."""
        return not fits_some_worker(self, chunks=False).all()

    def replace(self, **changes: Any) -> Instance:
        """Return a copy with some fields replaced and everything validated again."""
        return replace(self, **changes)

    @classmethod
    def from_pandas(
        cls, frame: pd.DataFrame, workers: Worker | tuple[Worker, ...], **fields: Any
    ) -> Instance:
        """Build an instance from a data frame with one row for each request.

        Columns may have all names, units and dates that a CSV file of requests may have
        (``orsched.load``); a warning names those that are not used. Further keywords are fields of
        ``Instance``; the names of ``classes``, if given, are those in the column ``service_class``.
        """
        owners = (workers,) if isinstance(workers, Worker) else tuple(workers)
        kinds = checked_classes(fields.get("classes", DEFAULT_CLASSES))
        names = [kind.name for kind in kinds]
        return cls(attached("requests_from_frame")(frame, names), owners, **fields)

    def to_pandas(self) -> pd.DataFrame:
        """Return the requests as a data frame, one row each; times in nanoseconds."""
        frame: pd.DataFrame = attached("requests_to_frame")(self.requests)
        return frame

    def __repr__(self) -> str:
        kinds: dict[str, int] = {}
        for worker in self.workers:
            kind = f"{worker.clients:,} clients, {worker.cost.model} cost"
            kinds[kind] = kinds.get(kind, 0) + 1
        shown = [f"{count:,} x ({kind})" for kind, count in list(kinds.items())[:3]]
        if len(kinds) > 3:
            shown.append(f"{len(kinds) - 3:,} other kinds")
        last = int(self.requests.arrival_ns.max(initial=0)) / NS_PER_S
        arrivals = f"arriving until {seconds_text(last)} s" if last else "all at the start"
        if self.arrivals_follow:
            arrivals = "arriving when others have ended"
        who = f"Instance {self.name!r}: {len(self):,} requests, {arrivals}, "
        who += f"first token from {self.first_token}"
        return f"{who}; workers {', '.join(shown)}"

    def _repr_html_(self) -> str:
        table: str = attached("instance_html")(self)
        return table

    def summary(self) -> dict[str, Any]:
        """Key figures: counts, token means and spans."""
        req = self.requests
        n, levels = len(self), req.quantile_levels
        return {
            "name": self.name,
            "requests": n,
            **({"refused": sum(self.refused)} if self.refused else {}),
            "workers": len(self.workers),
            "clients": sum(w.clients for w in self.workers),
            "prompt_tokens_mean": int(req.prompt_tokens.sum()) / n if n else 0.0,
            "output_tokens_mean": int(req.output_tokens.sum()) / n if n else 0.0,
            "last_arrival_s": int(req.arrival_ns.max(initial=0)) / NS_PER_S,
            "first_token": self.first_token,
            **({} if self.concurrency is None else {"concurrency": self.concurrency}),
            **({} if req.parent is None else {"conversations": self.conversations}),
            **({} if req.group is None else {"groups": len(np.unique(req.group))}),
            "predictions": req.predicted_tokens is not None,
            **({} if levels is None else {"prediction_levels": list(levels)}),
            "sha256": self.sha256,
        }


def say_unused(instance: Instance) -> None:
    """Log a warning, once in a process, where an instance holds prefixes that no worker caches."""
    if instance.requests.prefixes is not None and not instance.caches_prefixes:
        _say_prefixes()


@cache
def _say_prefixes() -> None:
    _LOG.warning(
        "the prefix_ids of the requests are not used, for no worker's memory has a prefix_cache: "
        "every prompt is computed and stored whole"
    )


def require_instance(value: object) -> None:
    """Raise ``InputError`` for what is not an instance, with the call that makes one of it."""
    if isinstance(value, Instance):
        return
    kind, remedy = type(value).__name__, "load one: orsched.load(name)"
    if isinstance(value, (str, PathLike)):
        kind, remedy = repr(os.fspath(value)), f"orsched.load({os.fspath(value)!r}) reads one"
    elif isinstance(value, Requests):
        remedy = "requests need a worker: orsched.Instance(requests, orsched.Worker(64))"
    elif kind == "DataFrame":
        remedy = "requests need a worker: orsched.load(frame, clients=64)"
    elif isinstance(getattr(value, "instance", None), Instance):
        remedy = "give its instance: result.instance"
    raise InputError(f"{kind:.100} is not an Instance", field="instance", remedy=remedy)


def refusal_note(instance: Instance) -> list[str]:
    """Return the remark that requests were refused; none where none was."""
    if not (many := sum(instance.refused)):
        return []
    fit = "fits" if many == 1 else "fit"
    are, total = "is" if many == 1 else "are", len(instance) + many
    who = f"{many:,} of {total:,} requests {fit} onto no worker and {are} refused"
    return [f"{who}, as a server does; the attainment counts them"]
