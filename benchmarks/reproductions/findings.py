"""What every reproduction prints: parts, and statements of the paper that hold here or fail."""

from __future__ import annotations


class Findings:
    """Prints parts and findings, and counts what does not hold."""

    def __init__(self) -> None:
        self.misses = 0

    def head(self, text: str) -> None:
        """Begin a part."""
        print(f"\n== {text}", flush=True)

    def claim(self, text: str, holds: bool) -> None:
        """Print whether a statement of the paper holds here."""
        self.misses += not holds
        print(f"{'HOLDS' if holds else 'FAILS'}  {text}", flush=True)
