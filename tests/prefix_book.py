"""Prefix caches read literally: every block an object, every count made anew (see by_the_book).

Without a line of the simulator's caches or of the replay that the checker has.
"""

DECODE = 1


class Block:
    """A block: what it holds, since when, who refers to it, and when it became free."""

    def __init__(self):
        self.key, self.named, self.users, self.freed, self.bulk = None, 0, [], 0, False


class PrefixBook:
    """The caches of the workers that have one; ``found`` by stay, ``used`` by number of step."""

    def __init__(self, book, rule, ahead):
        self.book, self.rule, self.ahead, self.held = book, rule, ahead, []
        self.instance, self.requests = book.instance, book.requests
        self.found, self.used, self.acted, self.clock = {}, {}, set(), 0
        self.pools = {
            index: [Block() for _ in range(worker.memory.blocks)]
            for index, worker in enumerate(self.instance.workers)
            if worker.caches_prefixes
        }
        self.tables, self.soon = {}, []
        self.admits = {stay.first for stay in book.stays}
        for action in sorted(self.actions(), key=lambda action: action[:5]):
            self.act(*action)

    def order(self, stay):
        """Order of admission."""
        return stay.first, stay.turn

    def actions(self):
        """What happens: moment, worker, step, kind, order within it, and the stay."""
        steps = self.book.steps
        for stay in self.book.stays:
            if stay.worker not in self.pools:
                continue
            for number, (phase, _, _) in stay.does.items():
                step = steps[number]
                moment = step.end_ns if step.phase == DECODE else step.start_ns
                kind = 2 if number == stay.first else 1
                yield moment, stay.worker, number, kind, self.order(stay), stay, phase
            if stay.finished:
                last, free = steps[stay.last], 4
                later = [n for n, each in enumerate(steps) if each.worker == stay.worker]
                later = [n for n in later if n > stay.last]
                late = stay.rested == 1
                if (late or stay.exit) and later:
                    free, number = 5, later[0]
                    step, kind = steps[number], 2.5 if late else 0
                    moment = step.end_ns if late and step.phase == DECODE else step.start_ns
                    turn = self.order(stay) if late else (stay.exit,)
                    yield moment, stay.worker, number, kind, turn, stay, None
                yield last.end_ns, stay.worker, stay.last, free, self.order(stay), stay, None
            elif stay.sent is not None:
                end, own = stay.sent.end_ns, enumerate(steps)
                own = [n for n, each in own if each.worker == stay.worker]
                within = [n for n in own if steps[n].start_ns < end <= steps[n].end_ns]
                later = [n for n in own if steps[n].start_ns >= end]
                for number, kind in [(n, 3.5) for n in within] or [(n, -1) for n in later[:1]]:
                    yield end, stay.worker, number, kind, (), stay, None
            elif self.leaves(stay) is not None:
                number = self.leaves(stay)
                turn = (stay.exit, *(-x for x in self.order(stay)))
                yield steps[number].start_ns, stay.worker, number, 0, turn, stay, None
        for worker, when in self.absences():
            later = [n for n, s in enumerate(steps) if s.worker == worker and s.start_ns >= when]
            if later:
                yield steps[later[0]].start_ns, worker, later[0], 0.25, (), None, None
        for number, step in enumerate(steps):
            if step.worker in self.pools:
                moment = step.end_ns if step.phase == DECODE else step.start_ns
                yield moment, step.worker, number, 3, (), None, None

    def absences(self):
        """When workers with a cache were lost or off."""
        for index in self.pools:
            for _, end in self.instance.workers[index].available_ns:
                if end is not None:
                    yield index, end
        for row in self.book.on_times:
            if row.worker in self.pools and row.end_ns is not None:
                yield row.worker, row.end_ns

    def leaves(self, stay):
        """Number of the step before which an evicted stay is freed; None behind the last one."""
        steps = enumerate(self.book.steps)
        later = [n for n, step in steps if step.worker == stay.worker and n > stay.last]
        return later[stay.rested] if stay.rested < len(later) else None

    def act(self, moment, worker, number, kind, order, stay, phase):
        """Let something happen."""
        self.now, self.worker = moment, worker
        if kind in (0.25, 2.5, 3):
            self.evict(worker)
        if kind == 0 and number not in self.admits and self.rule == "lru":
            self.soon.append(stay)
            return
        if kind == 3:
            self.used[number] = sum(bool(block.users) for block in self.pools[worker])
            return
        if kind == 0.25:
            self.held = [each for each in self.held if each.worker != worker]
            self.pools[worker] = [Block() for _ in self.pools[worker]]
            return
        if kind == 5:
            self.held.append(stay)
            return
        if kind == 2.5 or (kind == 0 and stay.finished):
            if stay in self.held:
                self.held.remove(stay)
                self.free(stay)
            return
        if kind in (-1, 0, 3.5, 4):
            self.free(stay)
            self.acted.add((id(stay), "end"))
            return
        if kind == 2:
            self.admit(stay)
            self.acted.add((id(stay), "begin"))
        self.grow(stay, stay.does[number][2])

    # -- one stay ---------------------------------------------------------------------------

    def size(self, stay):
        return self.instance.workers[stay.worker].memory.block_tokens

    def key(self, request, place, size):
        """The key of a full block."""
        requests, end = self.requests, (place + 1) * size
        turn = requests.parent is not None and requests.parent[request] >= 0
        if turn and end <= self.continued(request):
            return self.key(int(requests.parent[request]), place, size)
        said = self.said(request, place, size)
        return ("own", request, place) if said is None else said

    def said(self, request, place, size):
        """The identifier that a prompt states of a block, or one that continues it."""
        requests, end = self.requests, (place + 1) * size
        ids = [] if requests.prefixes is None else requests.prefixes.of(request).tolist()
        if place < len(ids) and end <= requests.prompt_tokens[request]:
            return ids[place]
        for turn in range(len(requests)) if requests.parent is not None else ():
            if requests.parent[turn] == request and end <= self.continued(turn):
                found = self.said(turn, place, size)
                if found is not None:
                    return found
        return None

    def continued(self, turn):
        """Tokens of a prompt that are its parent's prompt and answer."""
        requests, parent = self.requests, int(self.requests.parent[turn])
        prompt, whole = int(requests.prompt_tokens[turn]), int(requests.prompt_tokens[parent])
        if prompt >= whole + requests.output_tokens[parent]:
            return whole + int(requests.output_tokens[parent])
        return whole if prompt >= whole else 0

    def name(self, table, request, first, last, size):
        """Give blocks of a table that hold nothing yet their keys."""
        for place in range(first, last):
            if table[place].key is None:
                self.clock += 1
                table[place].key = self.key(request, place, size)
                table[place].named = self.clock

    def admit(self, stay):
        size, table = self.size(stay), []
        while (len(table) + 1) * size < stay.due:
            key = self.key(stay.request, len(table), size)
            same = [block for block in self.pools[stay.worker] if block.key == key]
            if not same:
                break
            table.append(min(same, key=lambda block: block.named))
        self.found[id(stay)] = len(table) * size
        self.tables[id(stay)] = table = table[: stay.hit // size]
        for block in table:
            block.users.append(id(stay))

    def grow(self, stay, tokens):
        size, table = self.size(stay), self.tables[id(stay)]
        while len(table) * size < tokens:
            block = self.next_block(stay.worker)
            block.key, block.users = None, [id(stay)]
            table.append(block)
        # The blocks of an answer hold something for others when the request leaves.
        self.name(table, stay.request, 0, min(tokens, stay.due) // size, size)

    def free(self, stay):
        cached, size = stay.does[stay.last][2], self.size(stay)
        if self.ahead and not stay.finished and cached > stay.due:
            cached -= 1
        table = self.tables[id(stay)]
        self.name(table, stay.request, 0, min(cached // size, len(table)), size)
        for block in reversed(self.tables.pop(id(stay))):
            block.users.remove(id(stay))
            if not block.users:
                self.clock += 1
                block.freed, block.bulk = self.clock, self.instance.bulk[stay.request]

    # -- who is taken -----------------------------------------------------------------------

    def next_block(self, worker):
        free = [block for block in self.pools[worker] if not block.users]
        if not free and self.soon:
            self.evict(worker, 1)
            return self.next_block(worker)
        empty = [block for block in free if block.key is None]
        if empty:
            return empty[0]
        if not free:
            self.pools[worker].append(Block())  # more than there are: the memory rule sees it
            return self.pools[worker][-1]
        return min(free, key=lambda block: (self.worth(block), block.freed))

    def evict(self, worker, most=2**62):
        """Let evictions go that wait until a block is wanted and none is free."""
        for stay in [each for each in self.soon if each.worker == worker][:most]:
            self.soon.remove(stay)
            if stay in self.held:
                self.held.remove(stay)
            self.free(stay)

    def worth(self, block):
        if self.rule == "lru":
            return 0
        users = sum(self.wants(request, block.key) for request in range(len(self.requests)))
        left = 0.5 if self.rule == "task_aware" and not block.bulk else 0
        return users or left

    def wants(self, request, key):
        """Whether a request waits, as this worker sees it now, for a block with a key."""
        if self.rule == "task_aware" and not (
            self.instance.bulk[request] and self.requests.arrival_ns[request] <= self.now
        ):
            return False
        due, waits = int(self.requests.prompt_tokens[request]), True
        for stay in [stay for stay in self.book.stays if stay.request == request]:
            if self.sees(stay, "begin", self.book.steps[stay.first].start_ns):
                waits = False
            left = None if stay.finished else self.left_at(stay)
            if left is not None and self.sees(stay, "end", left):
                due, waits = stay.then, True
            if stay.finished and not waits:
                return False
        size = self.instance.workers[self.worker].memory.block_tokens
        return waits and any(self.key(request, k, size) == key for k in range(due // size))

    def left_at(self, stay):
        number = self.leaves(stay)
        return None if number is None else self.book.steps[number].start_ns

    def sees(self, stay, what, moment):
        """Whether this worker knows: what happened before now, and what it did itself."""
        own = stay.worker == self.worker and (id(stay), what) in self.acted
        return moment < self.now or own
