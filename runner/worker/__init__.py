"""A decoder-only model on torch: slots with caches, prefill of several requests, decode rounds."""
