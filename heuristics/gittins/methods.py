"""``gittins`` as a registered method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.gittins.params import GittinsParams
from orsched.heuristics.gittins.policy import Gittins
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.simulator.policy import Policy


def _gittins(
    instance: Instance, params: GittinsParams, information: Information, seed: int
) -> Policy:
    return Gittins(params, information, memoryview(instance.requests.service_class))  # type: ignore[arg-type]


GITTINS = PolicyMethod(
    "gittins",
    (Information.NONE, Information.PREDICTED, Information.CLAIRVOYANT),
    "Gittins index on learned lengths; each request where it delays the others least",
    _gittins,
    GittinsParams,
    many_workers=True,
)
