"""The Gittins policy without short cuts: every decision asks each worker about each request."""

from orsched.common.units import NS_PER_S
from orsched.heuristics.gittins import Gittins
from orsched.heuristics.gittins.worker_model import GittinsBatch
from orsched.simulator.policy import ClairvoyantView


class PlainGittins(Gittins):
    """Decides as the page *Gittins* says, from views and formulas alone."""

    def _first_fits(self, worker, rounds, blocks):
        return True

    def _chunks(self, view, worker, decoding, blocks):
        batch = GittinsBatch(worker, self.params.max_num_batched_tokens, blocks, self.growth)
        again = worker.evicted == view.rounds and len(view.running) > 0
        admits = bool(batch.clients) and not again
        begun = sorted((self.keys[request], request) for request in view.prefilling)
        passed = set()
        while batch.tokens > 0:
            firsts = [min(heap) for size, heap in self.queue.heaps.items()
                      if heap and size not in passed]  # fmt: skip
            first = min(firsts, default=None)
            if admits and first and batch.clients and (not begun or first[:2] < begun[0]):
                if not self.able(worker, first[1]):
                    passed.add(first[2])
                elif not batch.has_room(first[1], first[3]):
                    admits = False
                elif self.suits(view, worker, decoding, first, len(batch.chunks)):
                    self.queue.pop(self.queue.heads.index(first))
                    batch.admit(first[1], first[3])
                else:
                    passed.add(first[2])
            elif begun:
                batch.go_on(begun.pop(0)[1])
            else:
                break
        worker.spare = batch.blocks
        return batch.chunks

    def suits(self, view, worker, decoding, waiting, joined):
        """Whether the gate is open for a request, and no other worker would take it for less."""
        _, request, _, left, stamp, yielded, lengths = waiting
        limit_s = self.params.ttft_s
        if limit_s is not None and view.now_ns - view.arrival_ns[request] >= limit_s * NS_PER_S:
            return True
        if isinstance(view, ClairvoyantView):
            tokens = float(view.output_tokens[request] - yielded)
        else:
            tokens = lengths.left(yielded)
        if self.is_shut(view, worker, decoding, request, left, tokens):
            return False
        pace, prices = worker.pace.ns, worker.prices
        work = self.work(worker, left, tokens)
        here = tokens * pace + (len(view.running) + joined) * work * pace / prices.round_ns
        theirs = min(joined, len(self.queue) // len(self.workers))
        for other in self.workers:
            full = len(other.view.running) >= other.clients
            if other is worker or full or stamp <= other.slept or not self.able(other, request):
                continue
            delay = 0
            if stamp <= other.seen or other.prefills:
                delay = max(0, other.until_ns - view.now_ns)
            weight = other.pace.ns / other.prices.round_ns
            delayed = (len(other.view.running) + theirs) * self.work(other, left, tokens) * weight
            if delay + tokens * other.pace.ns + delayed < here and other.has_room(request, left):
                return False
        return True

    def work(self, worker, left, tokens):
        """Time that a request's prefill and its part of the rounds take on a worker."""
        return worker.prices.token_ns * left + worker.prices.client_ns * tokens

    def is_shut(self, view, worker, decoding, request, left, tokens):
        """Whether a prefill has to wait for those that decode."""
        prices, params = worker.prices, self.params
        delays = decoding / self.model.all.mean * prices.token_ns * left
        waited = (view.now_ns - view.arrival_ns[request]) / (tokens * worker.pace.ns)
        gate = params.gate * (1 + params.gate_aging * waited)
        return delays > gate * (prices.round_ns + prices.client_ns * decoding)
