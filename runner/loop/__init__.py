"""Policies and schedules in real time: the loop over devices, losses, stops, and resuming."""
