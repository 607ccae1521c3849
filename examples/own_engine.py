"""Support for another engine: a model that is a formula, driven by orsched step by step.

On the command line:

    orsched run with-arrivals --policy vllm --worker examples/own_engine.py:FormulaEngine
"""

import numpy as np

import orsched
from orsched.runner import EngineDevice, RunSettings, run


class FormulaEngine(EngineDevice):
    """Yields the sum of all tokens so far, below the size of its vocabulary."""

    name, vocabulary = "formula", 509
    on_cpu = True  # it computes in this thread: its CPU time is what steps take

    def __init__(self, settings):
        super().__init__(settings)
        self.tokens = {}  # slot -> prompt and what was yielded

    def compute(self, chunks, active, rounds):
        """Execute a step: chunks of prompts beside a round, or some rounds."""
        for _ in range(rounds):
            for slot in active:
                self.tokens[slot].append(sum(self.tokens[slot]) % self.vocabulary)
        for chunk in chunks:
            if chunk.whole:
                self.tokens[chunk.slot] = list(chunk.whole)
            if chunk.yields:
                tokens = self.tokens[chunk.slot]
                tokens.append(sum(tokens) % self.vocabulary)

    def yielded(self, slots, tokens=1):
        """Return the last tokens of requests."""
        return np.array([self.tokens[slot][-tokens:] for slot in slots])

    def release(self, slot, prompt_tokens):
        """Free a slot; return what its request yielded."""
        return self.tokens.pop(slot, [])[prompt_tokens:]


def main() -> None:
    """Let a policy drive the engine."""
    settings = RunSettings(worker=f"{__file__}:FormulaEngine")
    done = run(orsched.load("with-arrivals"), "vllm", settings)
    print(
        f"{len(done.trace.steps)} steps on {done.trace.run['device']}, valid: {not done.violations}"
    )


if __name__ == "__main__":
    main()
