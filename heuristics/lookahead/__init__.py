"""Policies that admit a request only where memory holds until all that run are done."""
