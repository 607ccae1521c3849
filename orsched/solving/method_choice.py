"""One way from what a user names (a name with its parameters, ``module:Class``, a registered
policy, a method, a policy class or a policy object) to what runs, simulated or real: a method.
Those that are policies (``LiveMethod``) decide live on a real worker, too; for the others a
schedule is made and then followed."""

from __future__ import annotations

import os
from copy import deepcopy
from functools import cache
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError, known_names
from orsched.common.own_code import is_own, path_in
from orsched.common.parameters import Parameter, of_dataclass, of_function, read_pairs
from orsched.common.registry import names, resolve
from orsched.costs.exact import require_whole_times
from orsched.simulator.policy import Information, Policy
from orsched.solving.methods import MethodInfo, objectives_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orsched.data.instance import Instance
    from orsched.solving.methods import Method


class Spec(NamedTuple):
    """A method in one word: ``name[@information][+parameter=value]...``."""

    name: str
    information: str | None
    parameters: dict[str, Any]
    label: str


class Chosen(NamedTuple):
    """A method, and what it is run with."""

    method: Method
    information: Information  # what it may know; a policy of the user's own says it itself
    parameters: dict[str, Any]
    label: str = ""  # what it is called in comparisons; empty: the name in its schedule


def read_spec(text: str, field: str = "method") -> Spec:
    """Return the parts of a method's specification; values are JSON where they can be, else text.
    Raises ``InputError`` at the field for a parameter without a value or given twice."""
    path = path_in(text) or ""
    head, *pairs = text[len(path) :].split("+")
    name, at, information = head.partition("@")
    name = path + name
    if at and not information:
        raise InputError(
            f"{text!r} names no information", field=field, remedy="none, predicted, clairvoyant"
        )
    parameters, label = read_pairs(pairs, field), "+".join([f"{name}{at}{information}", *pairs])
    if "-" in name and name in presets():
        name, known, given, _ = read_spec(presets()[name]["method"])
        information, parameters = information or known or "", given | parameters
    return Spec(name, information or None, parameters, label)


@cache
def presets() -> dict[str, dict[str, str]]:
    """Return methods with the settings of papers, by name: ``method``, what it ``does``, a
    ``note``."""
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("orsched.solving").joinpath("presets.toml").read_text("utf-8"))


def choose(
    source: str | Method | Policy | type[Policy] | Chosen,
    information: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    field: str = "method",
) -> Chosen:
    """Return the method that a name, ``module:Class``, a class or an object stands for. What the
    name itself specifies takes precedence over ``information`` and ``parameters``. What has been
    chosen already is returned as it is. Raises ``InputError`` where there is no such method, which
    is named at ``field``, or it does not run with the information."""
    if isinstance(source, Chosen):
        return source
    given, label = dict(parameters or {}), ""
    method: Method
    if isinstance(source, str):
        spec = read_spec(source, field)
        method, information = method_named(spec.name, field), spec.information or information
        given |= spec.parameters
        label = "" if is_own(spec.name) else spec.label
    elif isinstance(source, Policy):
        from orsched.heuristics.policy_method import PolicyObject

        method = PolicyObject(source, source.name)
    elif isinstance(source, type) and issubclass(source, Policy):
        from orsched.heuristics.policy_method import OwnMethod

        method = OwnMethod(f"{source.__module__}:{source.__qualname__}", source)
    elif callable(source) and hasattr(source, "information") and not isinstance(source, type):
        method = source
    else:
        raise InputError(
            f"{source!r} is not a method", field=field, remedy="give a name, e.g. hybrid"
        )
    return Chosen(method, _information(method, information), given, label)


def choose_all(
    sources: Iterable[str | Method | Policy | type[Policy] | Chosen],
    information: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    field: str = "methods",
) -> list[Chosen]:
    """Return the methods that several sources stand for, each labelled as it was given. A policy
    object is copied: it stays as it is, and can be given more than once, unless it has run before
    or cannot be copied."""
    found: list[Chosen] = []
    seen: list[Policy] = []
    for source in sources:
        chosen = choose(_copied(source, seen), information, parameters, field)
        _check_parameters(chosen)
        fresh = getattr(chosen.method, "require_fresh", None)
        if fresh is not None:
            fresh()
        label = _label(source, chosen)
        if not isinstance(source, (str, Chosen)):
            taken = {each.label for each in found}
            numbered = (f"{label} ({number})" for number in count(2))
            label = next(name for name in chain([label], numbered) if name not in taken)
        found.append(chosen._replace(label=label))
    return found


def _copied(source: Any, seen: list[Policy]) -> Any:
    if not isinstance(source, Policy):
        return source
    twice = any(source is each for each in seen)
    seen.append(source)
    try:
        return deepcopy(source)
    except Exception as error:
        if not twice:
            return source
        raise InputError(
            f"an object of {type(source).__name__} is given twice and cannot be copied: {error}",
            field="methods",
            remedy="give the class, or two objects",
        ) from None


def _label(source: object, chosen: Chosen) -> str:
    """Return what a method is called beside others: a file by its name, without its folders."""
    if chosen.label:
        return chosen.label
    if isinstance(source, str):
        path = path_in(source) or ""
        return os.path.basename(path) + source[len(path) :]
    policy = getattr(chosen.method, "policy", None)
    named: str = chosen.method.name if policy is None else policy.name
    if named != Policy.name or policy is None:
        return named
    return policy.__name__ if isinstance(policy, type) else type(policy).__name__


def _information(method: Method, information: str | None) -> Information:
    kinds = tuple(method.information)
    if information is None:
        return kinds[0] if kinds else Information.NONE
    if not kinds:
        raise InputError(
            "the class itself says what it must know",
            field="information",
            remedy="leave information out",
        )
    if information not in kinds:
        raise InputError(
            f"method {method.name} does not run with information {information!r}",
            field="information",
            remedy=known_names(information, kinds, "one of: "),
        )
    return Information(information)


def method_names() -> list[str]:
    """Return the names of all methods and registered policies."""
    known = names("methods")
    return known + [name for name in names("policies") if name not in known]


def method_named(name: str, field: str = "method") -> Method:
    """Return the method of a name, or of ``module:Class``, whose module is then imported."""
    method: Method
    if is_own(name):
        from orsched.heuristics.policy_method import own_method

        return own_method(name, field)
    if name in names("methods"):
        method = resolve("methods", name)
        return method
    if name in names("policies"):
        from orsched.common.own_code import require_class
        from orsched.heuristics.policy_method import OwnMethod

        cls = resolve("policies", name)
        require_class(cls, Policy, name)
        return OwnMethod(name, cls)
    if name.endswith(".py"):
        from orsched.common.own_code import classes_in

        raise InputError(
            "a file holds several classes: which one?",
            file=name,
            field=field,
            remedy=f"write {name}:{classes_in(name, field)}",
        )
    own, file = "of your own: path/to/own.py:Class, module:Class", f"{name.partition('.')[0]}.py"
    if os.path.isfile(file):
        own += f"; did you mean a class in {file}?"
    raise InputError(
        f"unknown method {name!r}",
        field=field,
        remedy=f"{known_names(name, [*method_names(), *presets()])}; {own}",
    )


def require_choice(
    source: str,
    information: str | None,
    parameters: Mapping[str, Any],
    fields: tuple[str, str, str] = ("policy", "information", "parameters"),
) -> None:
    """Refuse, before anything runs, an unknown method or a parameter that it does not have. What
    depends on the workers or the instance is left to the run, as are methods that check their
    parameters themselves, and the user's own, since looking at it would run it. ``fields`` say
    where name, information and parameters stand."""
    if is_own(source):
        return
    try:
        chosen = choose(source, information, parameters)
    except InputError as error:
        place = fields[1] if error.field == "information" else fields[0]
        raise InputError(error.problem, field=place, remedy=error.remedy) from None
    try:
        _check_parameters(chosen)
    except InputError as error:
        if error.file is not None:  # of a parameter that names a file: the fault stands there
            raise
        own = error.field not in (None, "parameters")
        place = f"{fields[2]}.{error.field}" if own else fields[2]
        raise InputError(error.problem, field=place, remedy=error.remedy) from None


def require_fit(instance: Instance, chosen: Chosen) -> None:
    """Refuse what does not go together, at the parameter that the user set where there is one;
    asked before bounds, searches and simulations. A method says it by
    ``check_parameters(parameters)``, for whatever instance, and by ``require_fit(instance,
    information, parameters)``; both are optional. A cost model of the user's own must return times
    that are whole nanoseconds."""
    for cost in {id(worker.cost): worker.cost for worker in instance.workers}.values():
        require_whole_times(cost)
    _check_parameters(chosen)
    if not any(getattr(chosen.method, name, False) for name in ("live", "any_arrivals")):
        instance.require_known_arrivals(chosen.method.name)
    fits = getattr(chosen.method, "require_fit", None)
    if fits is not None:
        fits(instance, chosen.information, chosen.parameters)


def _check_parameters(chosen: Chosen) -> None:
    check = getattr(chosen.method, "check_parameters", None)
    if check is not None:
        check(chosen.parameters)


_PANG = "Pang et al., Hybrid Offline-online Scheduling Method for LLM Inference, arXiv 2502.15763"
_VLLM = "Kwon et al., PagedAttention, SOSP 2023, arXiv 2309.06180"
_SCLS = "Cheng et al., Slice-Level Scheduling, arXiv 2406.13511"
_SSJF = "Qiu et al., Efficient Interactive LLM Serving with SSJF, arXiv 2404.08509"
_ECHO = "Wang et al., Echo, arXiv 2504.03651"
_OWN = "orsched's own"

PAPERS = {
    "fcfs": _PANG,
    "offline": _PANG,
    "online": _PANG,
    "hybrid": f"{_OWN}, of the parts of {_PANG}",
    "vllm": _VLLM,
    "vtc": "Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, arXiv 2401.00588",
    "sls": _SCLS,
    "ils": _SCLS,
    "scls": _SCLS,
    "scls_continuous": _SCLS,
    "ssjf": _SSJF,
    "sjf": _SSJF,
    "fcfs_batched": _SSJF,
    "mico": "Cong et al., MICO: Efficient Query Scheduling for Multi-Cloud LLM Inference",
    "echo": _ECHO,
    "hygen": "HyGen, arXiv 2501.14808",
    "conserve": "ConServe, arXiv 2410.01228",
    "disaggregated": "Zhong et al., DistServe, OSDI 2024, arXiv 2401.09670",
    "gittins": _OWN,
    "slack": _OWN,
    "mc_sf": "Jaillet et al., Online Scheduling with KV Cache Constraints, arXiv 2502.07115",
    "robust": _OWN,
    "windows": _OWN,
    "fleet": _OWN,
    "latency_search": _OWN,
    "auto": _OWN,
    "exact": _PANG,
}  # where each method comes from, by name; one that has an attribute ``paper`` says it itself


SETS_ASIDE = (
    "fcfs", "offline", "online", "hybrid", "static", "dynamic", "one_at_a_time", "sls", "ils",
    "robust",
)  # fmt: skip
"""Methods that set aside prompt and answer (as known, else the limit) though memory is paged."""


def all_methods() -> list[MethodInfo]:
    """Return all methods and registered policies; importing them may take a second."""
    return [method_info(name) for name in method_names()]


def method_info(name: str) -> MethodInfo:
    """Return what is known of a method, or of ``module:Class``; raises as ``method_named``."""
    method = method_named(name)
    return MethodInfo(
        name,
        tuple(str(kind) for kind in method.information),
        "any" if _takes_several(method) else "one",
        not getattr(method, "live", False),
        method.summary,
        parameters_of(method),
        getattr(method, "paper", PAPERS.get(name, "")),
        () if getattr(method, "live", False) else objectives_of(method),
    )


def parameters_of(method: Method) -> tuple[Parameter, ...]:
    """Return the parameters of a method: those of its policy, then those of a dispatcher."""
    from orsched.heuristics.policy_method import Dispatching, OwnMethod

    shared = of_dataclass(Dispatching)
    if (default := getattr(method, "dispatch", "")) != shared[0].default and default:
        shared = (shared[0]._replace(default=default), *shared[1:])
    if isinstance(method, OwnMethod):
        own = of_function(method.policy)
        return own if method.policy.many_workers else (*own, *_others(shared, own))
    kind: Any = getattr(method, "params", None) or getattr(method, "defaults", None)
    own = () if kind is None else of_dataclass(kind)
    if _takes_several(method) and getattr(method, "many_workers", True) is False:
        own = (*own, *_others(shared, own))
    return own


def _others(shared: tuple[Parameter, ...], own: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    names = {each.name for each in own}
    return tuple(each for each in shared if each.name not in names)


def _takes_several(method: Method) -> bool:
    """Whether a method serves several workers; those that plan, and Pang's, take one."""
    from orsched.heuristics.policy_method import OwnMethod, PolicyMethod

    return bool(getattr(method, "several_workers", isinstance(method, (OwnMethod, PolicyMethod))))
