"""What there is to know of each method before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.parameters import Parameter, of_dataclass, of_function
from orsched.solving.method_choice import method_named, method_names
from orsched.solving.methods import MethodInfo, objectives_of

if TYPE_CHECKING:
    from orsched.solving.methods import Method

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
    "latency_search": _OWN,
    "auto": _OWN,
    "exact": _PANG,
}
"""Where each method comes from, by name; one that has an attribute ``paper`` says it itself."""


SETS_ASIDE = (
    "fcfs", "offline", "online", "hybrid", "static", "dynamic", "one_at_a_time", "sls", "ils",
    "robust", "rolling",
)  # fmt: skip
"""Methods that set aside prompt and answer at admission where memory is paged, too.

Of the answer they count what they may know: its true length, else the output limit.
"""


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
    from orsched.heuristics.own_method import OwnMethod
    from orsched.heuristics.policy_method import Dispatching

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
    from orsched.heuristics.own_method import OwnMethod
    from orsched.heuristics.policy_method import PolicyMethod

    return bool(getattr(method, "several_workers", isinstance(method, (OwnMethod, PolicyMethod))))
