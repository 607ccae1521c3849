"""Token hit ratios of an LRU cache of prefix blocks on Mooncake's conversations.

python -m benchmarks.reproductions.prefix_hits

Reads ``mooncake_conversation.jsonl`` from the folder that ``ORSCHED_DATA`` names. Requests come one
after the other in the order of the file, without time: each finds blocks, refers to all of its own,
and frees them, the last block first, before the next one comes. Two ways to count:

* ``blocks of the trace``: each of the ``hash_ids`` is a block of 512 tokens that can be found,
  the last one too, which is partial. The figures that are published with the data are these.
* ``vLLM's rule``: only full blocks are found again, and at least one token of each prompt is
  computed. This is how the prefix caches of orsched count.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from benchmarks.speed.section import table
from orsched.instances.datasets import data_directory
from orsched.instances.readers import read
from orsched.metrics.prefix_blocks import CacheBlocks

if TYPE_CHECKING:
    from orsched.data.requests import Requests

SIZES = (1_000, 5_000, 20_000, None)
PUBLISHED = {1_000: "4.5", 5_000: "11.4", 20_000: "29.4", None: "37.4"}
"""Percent, from the description of the data."""

UNBOUNDED = 2**31 - 1


def hit_ratio(requests: Requests, blocks: int | None, by_vllm: bool) -> float:
    """Return the share of prompt tokens that are found in a cache of so many blocks."""
    prefixes = requests.prefixes
    assert prefixes is not None
    size = prefixes.block_tokens
    cache = CacheBlocks(UNBOUNDED if blocks is None else blocks)
    found = 0
    for request, prompt in enumerate(requests.prompt_tokens.tolist()):
        chain = prefixes.of(request).tolist()
        named = min(len(chain), prompt // size) if by_vllm else len(chain)
        most = min(named, (prompt - 1) // size) if by_vllm else named
        hits: list[int] = []
        for key in chain[:most]:
            if key not in cache.holder:
                break
            hits.append(cache.holder[key])
        cache.refer(hits)
        own = cache.take(-(-prompt // size) - len(hits))
        for key, block in zip(chain[len(hits) : named], own, strict=False):
            cache.name(block, key)
        cache.release(hits + own, 0)
        found += len(hits) * size
    return found / int(requests.prompt_tokens.sum())


def rows(requests: Requests) -> list[dict[str, str]]:
    """Return the rows of the table, in percent."""
    found = []
    for blocks in SIZES:
        ratios = [100 * hit_ratio(requests, blocks, by_vllm) for by_vllm in (False, True)]
        found.append(
            {
                "blocks": "unbounded" if blocks is None else f"{blocks:,}",
                "published %": PUBLISHED[blocks],
                "blocks of the trace %": f"{ratios[0]:.1f}",
                "vLLM's rule %": f"{ratios[1]:.1f}",
            }
        )
    return found


def main() -> int:
    """Print the table; fails where a published figure is another."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    requests = read(data_directory() / "mooncake_conversation.jsonl").requests
    lines = rows(requests)
    print("\n".join(table(lines)))
    return 0 if all(row["published %"] == row["blocks of the trace %"] for row in lines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
