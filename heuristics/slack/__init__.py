"""Bulk work in the slack of interactive requests."""

from orsched.heuristics.slack.params import SlackParams
from orsched.heuristics.slack.policy import Slack

__all__ = ["Slack", "SlackParams"]
