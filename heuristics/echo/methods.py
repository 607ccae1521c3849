"""Echo as a registered method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.echo.params import EchoParams
from orsched.heuristics.echo.policy import Echo
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.simulator.policy import Policy


def _echo(instance: Instance, params: EchoParams, information: Information, seed: int) -> Policy:
    return Echo(instance, params)


ECHO = PolicyMethod(
    "echo",
    (Information.NONE,),
    "bulk work beside interactive requests, by benefit per time under their limits (Echo)",
    _echo,
    EchoParams,
)
