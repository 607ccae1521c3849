"""Random workloads whose prompts share prefixes, on workers with few blocks."""

import random

import orsched
from orsched import AffineCost, Information, Policy, PrefixCache, Prefixes, Step
from orsched.heuristics.continuous import ContinuousBatching, ContinuousParams, make_queue
from orsched.heuristics.dispatching import DISPATCHERS, Dispatched
from tests.in_order import in_order

COST = in_order(AffineCost, 1000, 10, 1000, 10)


def prefix_instance(seed, workers=1, eviction="lru"):
    """Return an instance whose requests begin with parts of a few documents."""
    rng = random.Random(seed)
    n, size = rng.choice((6, 15, 40)), rng.choice((2, 4, 16))
    longest, limit = rng.choice((10, 60, 200)), rng.choice((2, 5, 40))
    prompts = [rng.randint(1, longest) for _ in range(n)]
    documents = [rng.randint(-1, rng.randint(0, 3)) for _ in range(n)]
    shared = [rng.choice((0, prompt, rng.randint(0, prompt))) for prompt in prompts]
    least = -(-(longest + limit) // size)
    memory = orsched.BlockMemory(
        least + rng.choice((0, 1, least, 4 * least)), size, "paged", PrefixCache(eviction)
    )
    span = rng.choice((0, 1000 * limit, 4000 * limit * n // 4))
    requests = orsched.Requests(
        prompts,
        [rng.randint(1, limit) for _ in range(n)],
        arrival_ns=[rng.randint(0, span) for _ in range(n)],
        service_class=[rng.randint(0, 1) for _ in range(n)],
        prefixes=Prefixes.from_documents(documents, shared, size),
    )
    clients = rng.choice((2, 4, 16))
    machines = tuple(
        orsched.Worker(clients, COST, memory=memory, name=f"w{index}") for index in range(workers)
    )
    rule = rng.choice(("prefill", "decode"))
    return orsched.Instance(requests, machines, rule, output_limit_tokens=limit)


def prefix_params(seed, clients):
    """Return parameters of ``vllm``, from chunks of a token upward."""
    rng = random.Random(seed + 10**6)
    return ContinuousParams(
        policy=rng.choice(("fcfs", "priority")),
        priority="service_class",
        max_num_batched_tokens=rng.choice((1, clients, clients + 7, 64, 2048)),
        long_prefill_token_threshold=rng.choice((0, 0, 4)),
        reserve_full_prompt=rng.random() < 0.7,
        mode=rng.choice(("mixed", "mixed", "decode_first")),
    )


def prefix_policy(instance, params, kind=ContinuousBatching):
    """Return ``vllm`` on one worker, or one a worker below the dispatcher ``prefix``."""

    def make():
        queue = make_queue(instance, params, Information.NONE)
        return kind(params, Information.NONE, queue)

    return make() if len(instance.workers) == 1 else Dispatched(make, DISPATCHERS["prefix"]())


class Whimsical(Policy):
    """Evicts, pauses, chunks and admits at random, as far as a trial says that it fits."""

    name = "whimsical"
    many_workers = True

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.waiting = []

    def on_arrival(self, view, request):
        self.waiting.append(request)

    def on_preempt(self, view, request):
        self.waiting.insert(0, request)

    def decide(self, view):
        rng = self.rng
        victims = [each for each in view.running if rng.random() < 0.1]
        rng.shuffle(victims)
        with view.prefixes.trial() as trial:
            for request in victims:
                trial.release(request)
            decode = [
                each for each in view.running
                if each not in victims and view.to_prefill(each) == 0 and rng.random() < 0.8
            ]  # fmt: skip
            due = {*view.needing_blocks()} & {*decode}
            while len(due) > trial.free_blocks:
                decode.remove(due.pop())
            trial.grow(len(due))
            chunks = self._chunks(view, trial, victims)
        if chunks:
            return Step(list(chunks), list(chunks.values()), None, decode, preempt=victims)
        if decode:
            return Step(decode=decode, preempt=victims)
        if victims or view.running:
            return Step(preempt=victims or [rng.choice(list(view.running))], decode=())
        if self.waiting:  # the whole worker is free
            return Step([self.waiting.pop(0)], None, None, ())
        return None

    def _chunks(self, view, trial, victims):
        rng, size, chunks = self.rng, view.prefixes.block_tokens, {}
        clients = view.free_clients + len(victims)
        for request, done in view.prefilling.items():
            tokens = rng.randint(1, view.to_prefill(request))
            more = -(-(done + tokens) // size) + -done // size
            if request not in victims and rng.random() < 0.7 and more <= trial.free_blocks:
                trial.extend(request, tokens)
                chunks[request] = tokens
        for request in list(self.waiting):
            hit, leaving = trial.hit(request)
            tokens = rng.randint(1, view.to_prefill(request) - hit)
            if rng.random() < 0.5 and clients and -(-tokens // size) + leaving <= trial.free_blocks:
                clients -= 1
                trial.admit(request, tokens)
                chunks[request] = tokens
                self.waiting.remove(request)
        return chunks
