"""SCLS Algorithm 1 as it is printed: for every request, every batch that could end with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orsched.models.batch.problem import Problem


def boundaries(problem: Problem) -> list[int]:
    """Return the positions between batches, 0 and n included, in O(n N_max) steps.

    Ties go to the smaller batch, as in the paper (line 12 asks for strictly less time). A batch of
    one is never tested for memory there; ``build`` has refused requests that do not fit alone.
    """
    n = len(problem)
    least = [0] * (n + 1)
    split = [0] * (n + 1)
    for start, end, size, slope, base in problem.groups():
        for i in range(start + 1, end + 1):
            split[i] = i - 1
            least[i] = least[i - 1] + slope + base
            j = i - 1
            while j > 0 and i - j + 1 <= size:
                time = least[j - 1] + slope * (i - j + 1) + base
                if time < least[i]:
                    least[i] = time
                    split[i] = j - 1
                j -= 1
    found = [n]
    while found[-1] > 0:
        found.append(split[found[-1]])
    return found[::-1]
