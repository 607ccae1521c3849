"""The settings among which a tuning chooses: axes of knobs, and what a setting runs on."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.scalars import CELLS
from orsched.data.links import Split
from orsched.data.workers import MAX_CLIENTS
from orsched.instances.streams import stream
from orsched.planning.capacity.question import (
    SPLIT,
    Fleet,
    Machine,
    Question,
    read_policy,
    with_roles,
)
from orsched.solving.method_choice import method_info, method_named, read_spec
from orsched.solving.scenario import read_workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

BUDGET = "max_num_batched_tokens"
USUAL: dict[str, tuple[Any, ...]] = {
    BUDGET: (256, 512, 1024, 2048, 4096, 8192, 16384),
    "long_prefill_token_threshold": (0, 256, 1024),
    "dispatch": ("soonest", "round_robin", "fewest_requests"),
}
_FACTORS = (0.25, 0.5, 1, 2, 4)
_FLEET = ("machine", "workers", "clients", "policy")


class Setting(NamedTuple):
    """One value of each knob that counts; ``question`` and ``fleet`` are what it runs as."""

    values: tuple[tuple[str, Any], ...]
    question: Question
    fleet: Fleet

    @property
    def price(self) -> float:
        """GPUs of the fleet, or what else prices of machines count."""
        pairs = zip(self.question.machines, self.fleet, strict=True)
        return float(sum(machine.price * count for machine, count in pairs))

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values)


class Space:
    """The settings of a question; ``axes`` are the values of each knob, ``default`` as shipped.
    Left out are roles without a split, and fewer tokens in a step than clients (vLLM does not
    start)."""

    def __init__(
        self, question: Question, policies: Sequence[str], search: Mapping[str, Sequence[Any]]
    ) -> None:
        self.question = question
        self.specs = {text: read_spec(text, "policies") for text in (*policies, SPLIT)}
        self._known = {text: _parameters(spec.name) for text, spec in self.specs.items()}
        self.axes = self._axes(policies, search)
        CELLS.require(prod(map(len, self.axes.values())), "search")
        default = self._setting(self._first()) or next(self.settings(), None)
        if default is None:
            raise InputError(
                "no setting is possible",
                field="search",
                remedy="give steps at least as many tokens as clients, and splits for roles",
            )
        self.default: Setting = default

    def _axes(
        self, policies: Sequence[str], search: Mapping[str, Sequence[Any]]
    ) -> dict[str, tuple[Any, ...]]:
        known = {name for text in policies for name in self._known[text]}
        names, given = sorted({"workers", "clients", *known} - {"policy"}), {}
        for name, values in search.items():
            if name not in names:
                remedy = known_names(name, names)
                raise InputError(f"unknown knob {name!r}", field="search", remedy=remedy)
            given[name] = _values(values, f"search.{name}")
        own = self.question.machines[0].worker.clients
        seats = sorted({max(1, min(MAX_CLIENTS, round(own * each))) for each in _FACTORS})
        axes: dict[str, tuple[Any, ...]] = {
            "machine": tuple(machine.name for machine in self.question.machines),
            "workers": given.pop("workers", (1,)),
            "clients": given.pop("clients", tuple(seats)),
            "policy": tuple(dict.fromkeys(policies)),
        }
        for clients in axes["clients"]:
            whole_number(clients, "search.clients", minimum=1, maximum=MAX_CLIENTS)
        said = {name for text in policies for name in self.specs[text].parameters}
        said |= {"dispatch"} if axes["workers"] == (1,) else set()
        return axes | {k: v for k, v in USUAL.items() if k in known - said} | given

    def _first(self) -> dict[str, Any]:
        """Return the values of the setting as shipped: the policy's defaults, the own seats."""
        first, spec = self.question.machines[0].worker, self.axes["policy"][0]
        said = {**first.settings, **self.specs[spec].parameters, "clients": first.clients}
        own = {**self._known[spec], **said}
        return {k: own[k] if own.get(k) in axis else axis[0] for k, axis in self.axes.items()}

    def _setting(self, values: Mapping[str, Any]) -> Setting | None:
        """Return the setting of some values, without those that change nothing; None: impossible.
        A split takes ``disaggregated`` in place of a policy for workers that do both."""
        (machine,) = (m for m in self.question.machines if m.name == values["machine"])
        workers, text = read_workers(values["workers"]), values["policy"]
        roles = getattr(method_named(self.specs[text].name), "needs_roles", False)
        if roles and not isinstance(workers, Split):
            return None
        text = SPLIT if isinstance(workers, Split) and not roles else text
        spec, left_out = self.specs[text], (*_FLEET, "dispatch") if workers == 1 else _FLEET
        own = {k: v for k, v in values.items() if k in self._known[text] and k not in left_out}
        policy = read_policy(spec.name, spec.information, {**spec.parameters, **own})
        budget = policy["parameters"].get(BUDGET)
        if isinstance(budget, int) and budget < values["clients"]:
            return None
        machine = machine._replace(worker=replace(machine.worker, clients=values["clients"]))
        machines, fleet, scene = _fleet_of(machine, workers)
        scene = {**self.question.scene, **scene}
        question = replace(self.question, machines=machines, policy=policy, scene=scene)
        shown = {**{name: values[name] for name in _FLEET}, "policy": text, **own}
        kept = tuple((k, v) for k, v in shown.items() if len(self.axes[k]) > 1)
        return Setting(kept, question, fleet)

    def settings(self) -> Iterator[Setting]:
        """Yield all settings of the grid, each once."""
        rows = product(*self.axes.values())
        return self._distinct(dict(zip(self.axes, values, strict=True)) for values in rows)

    def _distinct(self, rows: Iterable[dict[str, Any]]) -> Iterator[Setting]:
        found: set[tuple[Any, ...]] = set()
        for values in rows:
            setting = self._setting(values)
            if setting is not None and setting.values not in found:
                found.add(setting.values)
                yield setting

    def drawn(self, seed: int) -> Iterator[Setting]:
        """Yield all settings in a random order."""
        rows = list(self.settings())
        return (rows[k] for k in stream("tune", seed).permutation(len(rows)).tolist())

    def along(self, setting: Setting, name: str, near: bool) -> list[Setting]:
        """Return the settings that differ in one knob; ``near``: in a number by one step."""
        own, axis = {**self._first(), **dict(setting.values)}, self.axes[name]
        if own["policy"] not in self.axes["policy"]:  # of a split
            own["policy"] = self.axes["policy"][0]
        at = axis.index(own[name])
        if near and isinstance(axis[at], int):
            axis = axis[max(0, at - 1) : at + 2]
        rows = ({**own, name: value} for value in axis)
        return [each for each in self._distinct(rows) if each.values != setting.values]

    def kinds(self) -> tuple[Machine, ...]:
        """Return the kinds of workers among all settings: each machine with all its seats."""
        return tuple(
            machine._replace(worker=replace(machine.worker, clients=clients))
            for machine in self.question.machines
            for clients in self.axes["clients"]
        )


def _values(values: Sequence[Any], field: str) -> tuple[Any, ...]:
    """Return the values of a knob, each once."""
    found: tuple[Any, ...] = ()
    with suppress(TypeError):  # of a number, or of values such as lists
        found = tuple(dict.fromkeys(values))
    if not found or isinstance(values, str) or (field == "search.workers" and None in found):
        raise InputError("no values of a knob", field=field, remedy="list numbers or texts")
    return found


def _parameters(name: str) -> dict[str, Any]:
    return {each.name: each.default for each in method_info(name).parameters}


def _fleet_of(
    machine: Machine, workers: Any
) -> tuple[tuple[Machine, ...], Fleet, dict[str, dict[str, int]]]:
    """Return machines, their numbers and the link, for a number of workers or a split."""
    if isinstance(workers, int):
        return (machine,), (workers,), {}
    if not isinstance(workers, Split):
        raise InputError(
            "is neither a number nor a split", field="search.workers", remedy="e.g. 2 or 1P1D:free"
        )
    roles = with_roles(machine, [role for _, role in workers.roles])
    link = {} if workers.link is None else {"link": workers.link.to_dict()}
    return tuple(roles), tuple(count for count, _ in workers.roles), link
