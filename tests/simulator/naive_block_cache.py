"""A prefix cache as its rules say it, with lists and no short cuts (least recent use)."""

from __future__ import annotations


class NaiveBlockCache:
    """Blocks are objects; free ones stand in one list, those without content in front."""

    def __init__(self, blocks, size, chains):
        self.size, self.chains = size, chains
        self.key = [None] * blocks
        self.got = [0] * blocks  # when each block got its key
        self.users = [[] for _ in range(blocks)]
        self.queue = list(range(blocks))
        self.tables = {}
        self.clock = 0

    def name(self, request, place):
        """Return the key of a block of a request."""
        known = self.chains[request]
        return known[place] if place < len(known) else (request, place)

    def lookup(self, request, due):
        """Return the blocks that are hit."""
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
