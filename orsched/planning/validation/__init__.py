"""Predictions held against measured rows of served configurations, and against measured runs."""
