"""From the name of a method to a checked result: solve, simulate and compare."""
