"""``slack`` as a registered method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.policy_method import PolicyMethod
from orsched.heuristics.slack.params import SlackParams
from orsched.heuristics.slack.policy import Slack
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.simulator.policy import Policy


def _slack(instance: Instance, params: SlackParams, information: Information, seed: int) -> Policy:
    return Slack(instance, params)


SLACK = PolicyMethod(
    "slack",
    (Information.NONE,),
    "bulk work in the slack of interactive requests, by tokens per second of shared prefixes",
    _slack,
    SlackParams,
)
