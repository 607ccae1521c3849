"""Views of the naive simulator: every answer is looked up or counted anew when it is asked for."""

from collections.abc import Sequence

from orsched.simulator.policy import ClairvoyantView, Information, PredictedView, View


class Shown(Sequence):
    """A column of all requests, live: 0 for those that the policy must not know yet."""

    def __init__(self, oracle, attribute):
        self.oracle, self.attribute = oracle, attribute

    def __len__(self):
        return len(self.oracle.jobs)

    def __getitem__(self, row):
        job = self.oracle.jobs[row]
        return getattr(job, self.attribute) if self.oracle.knows(job) else 0


class NaiveView(View):
    """One worker as a policy may see it; without a prefix cache."""

    prefixes = None

    def __init__(self, oracle, index):
        self.oracle, self.index = oracle, index
        self.worker = oracle.instance.workers[index]
        self.first_token = oracle.instance.first_token
        self.output_limit_tokens = oracle.instance.output_limit_tokens
        self.classes, requests = oracle.instance.classes, oracle.instance.requests
        self.service_class, self.tenant = requests.service_class, requests.tenant
        self.deadline_ns = requests.deadline_ns

    @property
    def workers(self):
        return self.oracle.views

    @property
    def prompt_tokens(self):
        return Shown(self.oracle, "prompt")

    @property
    def arrival_ns(self):
        return Shown(self.oracle, "arrival")

    @property
    def running(self):
        return {job.row: job.client for job in self.oracle.on(self.index)}

    @property
    def prefilling(self):
        jobs = self.oracle.on(self.index)
        return {job.row: self.prefilled(job) for job in jobs if self.to_prefill(job.row)}

    available = True
    draining = False  # autoscaling is none of its rules
    sending = receiving = ()  # nobody prefills for others

    @property
    def now_ns(self):
        return self.oracle.now

    @property
    def rounds(self):
        return self.oracle.rounds[self.index]

    @property
    def free_clients(self):
        return self.worker.clients - len(self.running)

    def request_on(self, client):
        return next((row for row, where in self.running.items() if where == client), -1)

    def generated(self, request):
        return self.oracle.jobs[request].yielded

    def prefilled(self, job):
        """Tokens of a request on this worker, with the chunk of the step in progress."""
        _, runs = self.oracle.doing.get(self.index, (None, []))
        shares = [share for run in runs for iteration in run for share in iteration.shares]
        return job.prefilled + sum(s.tokens for s in shares if s.phase == 0 and s.job is job)

    def cached(self, request):
        job = self.oracle.jobs[request]
        return self.prefilled(job) + job.rounds if job.worker == self.index else 0

    def to_prefill(self, request):
        job = self.oracle.jobs[request]
        if job.worker == self.index:
            return job.target - self.prefilled(job)
        return self.prompt_tokens[request] + job.yielded

    def blocks_of(self, request):
        job = self.oracle.jobs[request]
        if self.worker.memory is None or not self.oracle.knows(job):
            return 0
        return self.oracle.set_aside(self.index, job)

    def decodes(self, request):
        job = self.oracle.jobs[request]
        return job.worker == self.index and job.ready

    @property
    def blocks_free(self):
        memory = self.worker.memory
        held = sum(self.blocks_of(job.row) for job in self.oracle.on(self.index))
        return None if memory is None else memory.blocks - held

    @property
    def blocks_unused(self):
        return self.blocks_left(0)

    def needing_blocks(self):
        memory = self.worker.memory
        if memory is None or memory.allocation == "whole" or self.worker.padding:
            return []
        jobs = [job for job in self.oracle.on(self.index) if job.ready]
        return [job.row for job in jobs if self.cached(job.row) % memory.block_tokens == 0]

    def blocks_left(self, rounds):
        memory = self.worker.memory
        if memory is None:
            return None
        ready = {job.row: job.ready for job in self.oracle.on(self.index)}
        caches = {row: self.cached(row) + rounds * ready[row] for row in ready}
        return memory.blocks - self.oracle.blocks(self.index, caches)


class NaivePredictedView(NaiveView, PredictedView):
    @property
    def predicted_tokens(self):
        return Shown(self.oracle, "predicted")

    @property
    def quantile_levels(self):
        return self.oracle.instance.requests.quantile_levels or ()

    def predicted_quantiles(self, request):
        quantiles = self.oracle.instance.requests.predicted_quantiles
        if quantiles is None:
            return []
        known = self.oracle.knows(self.oracle.jobs[request])
        return quantiles[request].tolist() if known else [0] * quantiles.shape[1]


class NaiveClairvoyantView(NaiveView, ClairvoyantView):
    @property
    def output_tokens(self):
        return Shown(self.oracle, "output")


VIEWS = {
    Information.NONE: NaiveView,
    Information.PREDICTED: NaivePredictedView,
    Information.CLAIRVOYANT: NaiveClairvoyantView,
}
