"""Measured steps of a worker, cost models fitted to them, and the largest batches that fit."""
