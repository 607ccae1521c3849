"""The block cache beside one that is written as the rules say it, and what it undoes."""

from copy import deepcopy
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched.common.errors import PolicyError
from orsched.simulator.block_cache import BlockCache
from orsched.simulator.free_blocks import LeastRecent, PrefixChains

SIZE = 4
CHAINS = [[0, 1, 2], [0, 1, 3], [0, 4], [], [0, 1, 2]]
PROMPTS = [12, 14, 8, 9, 13]
DRAWN = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 11)), max_size=60)


class NaiveBlockCache:
    """A prefix cache as its rules say it: least recent use, all free blocks in one list."""

    def __init__(self, blocks, size, chains):
        self.size, self.chains = size, chains
        self.key = [None] * blocks
        self.got = [0] * blocks  # when each block got its key
        self.users = [[] for _ in range(blocks)]
        self.queue = list(range(blocks))
        self.tables = {}
        self.clock = 0

    def name(self, request, place):
        known = self.chains[request]
        return known[place] if place < len(known) else (request, place)

    def lookup(self, request, due):
        found = []
        for place in range((due - 1) // self.size):
            holders = [b for b, key in enumerate(self.key) if key == self.name(request, place)]
            if not holders:
                break
            found.append(min(holders, key=lambda block: self.got[block]))
        return found

    def admit(self, request, due):
        """Let a request start; return the tokens hit."""
        blocks = self.lookup(request, due)
        for block in blocks:
            self.users[block].append(request)
            if block in self.queue:
                self.queue.remove(block)
        self.tables[request] = list(blocks)
        return len(blocks) * self.size

    def extend(self, request, cached, tokens):
        """Let a cache grow, and give keys to all blocks that are full."""
        table = self.tables[request]
        while len(table) * self.size < cached + tokens:
            block = self.queue.pop(0)
            self.key[block] = None
            self.users[block] = [request]
            table.append(block)
        for place in range((cached + tokens) // self.size):
            if self.key[table[place]] is None:
                self.clock += 1
                self.key[table[place]] = self.name(request, place)
                self.got[table[place]] = self.clock

    def release(self, request):
        """Free a request's blocks, the last first; those without content go to the front."""
        for block in reversed(self.tables.pop(request)):
            self.users[block].remove(request)
            if not self.users[block]:
                if self.key[block] is None:
                    self.queue.insert(0, block)
                else:
                    self.queue.append(block)

    def contents(self):
        """Return what free blocks hold in the order in which they are taken, and what is held."""
        free = [self.key[block] for block in self.queue]
        held = sorted(map(str, (self.key[b] for b, users in enumerate(self.users) if users)))
        return free, held


class Both:
    """Does the same to both caches, if there is room for it."""

    def __init__(self, blocks):
        chains = PrefixChains.__new__(PrefixChains)
        chains.shared = [len(chain) for chain in CHAINS]
        chains.keys = lambda request, most: CHAINS[request][:most]
        self.cache = BlockCache(blocks, SIZE, chains, LeastRecent(blocks))
        self.naive = NaiveBlockCache(blocks, SIZE, CHAINS)
        self.cached = {}
        self.due = dict(enumerate(PROMPTS))

    def act(self, request, choice, naive=True):
        """Let a request start, grow, be evicted or be done."""
        cache, done = self.cache, self.cached.get(request)
        if done is None:
            if -(-self.due[request] // SIZE) > cache.free:
                return
            self.cached[request] = cache.admit(request, self.due[request])
            if naive:
                assert self.naive.admit(request, self.due[request]) == self.cached[request]
            self.grow(request, 1 + choice % (self.due[request] - self.cached[request]), naive)
        elif choice < 7:
            self.grow(request, 1 + choice, naive)
        else:
            # What was yielded is due again; once it is done a request does not come back.
            returns = choice < 11
            self.due[request] = max(done, PROMPTS[request]) if returns else 10**6
            del self.cached[request]
            cache.release(request, done, self.due[request] if returns else None)
            if naive:
                self.naive.release(request)

    def grow(self, request, tokens, naive):
        done = self.cached[request]
        if -(-(done + tokens) // SIZE) - -(-done // SIZE) > self.cache.free:
            return
        self.cache.extend(request, done, tokens)
        self.cached[request] = done + tokens
        if naive:
            self.naive.extend(request, done, tokens)

    def state(self):
        """Return all of the cache that can matter."""
        cache, order = self.cache, self.cache.order
        entries = [e for e in order.queue if order.entry[e & (2**32 - 1)] == e]
        held = SimpleNamespace(**{name: deepcopy(getattr(cache, name)) for name in (
            "counts", "key_of", "empty", "first", "others", "tables", "free", "evictions"
        )})  # fmt: skip
        return held, [entry & (2**32 - 1) for entry in entries]


@given(st.integers(6, 14), DRAWN)
@settings(max_examples=150)
def test_the_cache_does_what_the_rules_say(blocks, drawn):
    """INV-20, INV-21, INV-22: equal hits throughout, and equal contents that are lost."""
    both = Both(blocks)
    for request, choice in drawn:
        both.act(request, choice)
        cache = both.cache
        assert {r: len(t) for r, t in cache.tables.items()} == {
            r: len(t) for r, t in both.naive.tables.items()
        }
        assert cache.free == len(both.naive.queue)
        for other, due in both.due.items():
            if other not in both.cached and due < 10**6:
                assert len(cache.lookup(other, due)) == len(both.naive.lookup(other, due))


@given(st.integers(6, 14), DRAWN, st.integers(0, 59))
@settings(max_examples=150)
def test_what_is_tried_is_undone(blocks, drawn, split):
    """INV-22: after a trial all is as before: blocks, keys, counts and the order of the free."""
    both = Both(blocks)
    for request, choice in drawn[:split]:
        both.act(request, choice, naive=False)
    before, cached, due = both.state(), dict(both.cached), dict(both.due)
    both.cache.log = []
    for request, choice in drawn[split:]:
        both.act(request, choice, naive=False)
    both.cache.undo()
    assert both.state() == before
    both.cached, both.due = cached, due
    for request, choice in drawn[split:]:
        both.act(request, choice, naive=False)


def test_blocks_that_are_missing_are_named():
    """More blocks than are free are refused."""
    both = Both(3)
    both.cache.admit(0, 16)
    with pytest.raises(PolicyError, match=r"request 0 takes 4 more .* 3 of 3 are free"):
        both.cache.extend(0, 0, 16)
