"""Policies as users write them, some of them wrong: the text of a file."""

SOURCE = """
from orsched import Policy, decode_rounds, prefill_stage

class Mine(Policy):
    name = "mine"

    def __init__(self, most=1, stop_at=-1, kind="KeyError"):
        self.queue, self.most, self.stop_at, self.kind = [], most, stop_at, kind

    def on_arrival(self, view, request):
        self.queue.append(request)

    def decide(self, view):
        if len(self.queue) == self.stop_at:
            raise {"KeyError": KeyError, "OSError": OSError}[self.kind]("mine alone")
        count = min(self.most, len(self.queue), view.free_clients)
        if count:
            return prefill_stage([self.queue.pop(0) for _ in range(count)])
        return decode_rounds() if view.running else None

class Idle(Mine):
    def decide(self, view):
        return None

class Many(Mine):
    many_workers = True

SOME = 3

class Broken(Mine):
    def __init__(self):
        raise RuntimeError("not today")

class Leaves(Mine):
    def decide(self, view):
        raise SystemExit(0)

class Deaf(Mine):
    def on_finish(self, view, request):
        pass

class Undecided(Mine):
    decide = None

class Knowing(Mine):
    information = "everything"

class Talks(Mine):
    def decide(self, view):
        print("I decide")
        return super().decide(view)
"""
RAISES = 1 + SOURCE.partition("raise {")[0].count("\n")
"""The line of the file in which ``Mine`` raises its error."""
