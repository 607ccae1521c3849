"""Policies that serve bulk work beside interactive requests: what they have in common."""
