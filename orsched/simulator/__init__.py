"""The event-driven simulator: runs a policy on an instance, from event to event."""

from orsched.simulator.loop import Simulated
from orsched.simulator.simulate import simulate_policy

__all__ = ["Simulated", "simulate_policy"]
