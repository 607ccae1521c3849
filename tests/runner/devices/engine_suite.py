"""What a run on another engine has to do, whatever the engine: ``tests`` for each that is known."""

import random
from dataclasses import replace

import orsched
from orsched import AffineCost, BlockMemory, Instance, Requests, Worker
from orsched.runner import RunSettings, run
from orsched.runner.devices.device import open_device
from orsched.runner.devices.settings import WorkerSettings
from orsched.runner.loop.resume import random_prompt, residual
from orsched.runner.measuring import measure_worker
from tests.in_order import in_order

COST = in_order(AffineCost, 100_000, 10_000, 200_000, 10_000)
CLIENTS = 3


def instance(seed=1, requests=12, workers=1, first_token="prefill", memory=None, **more):
    """Return requests that come and go over some workers."""
    rng = random.Random(seed)
    outputs = [rng.randint(1, 9) for _ in range(requests)]
    made = Requests([rng.randint(1, 20) for _ in outputs], outputs)
    each = Worker(CLIENTS, COST, 24, memory)
    names = [replace(each, name=f"w{index}") for index in range(workers)]
    return Instance(made, names, first_token=first_token, **more)


def reference(problem, next_token, vocabulary, seed=0, ends=()):
    """Return what each request yields by an engine's own formula, up to its length or an end."""
    requests, found = problem.requests, []
    rows = zip(requests.prompt_tokens.tolist(), requests.output_tokens.tolist(), strict=True)
    for request, (prompt, output) in enumerate(rows):
        tokens = random_prompt(seed, request, prompt, vocabulary)
        while len(tokens) < prompt + output and not (tokens[prompt:] and tokens[-1] in ends):
            tokens.append(next_token(tokens))
        found.append(tokens[prompt:])
    return found


class Suite:
    """The tests of an engine: a subclass says which, and by what formula it yields tokens."""

    worker, vocabulary = "", 0
    arguments = ()

    @staticmethod
    def next_token(tokens):
        raise NotImplementedError

    def settings(self, **more):
        return RunSettings(worker=self.worker, arguments=self.arguments, **more)

    def played(self, problem, policy, **more):
        """Run a policy, and hold tokens and trace against what they must be."""
        settings = more.pop("settings", None) or self.settings()
        done = run(problem, policy, settings, **more)
        assert (done.violations, done.stopped) == ([], "")
        assert done.tokens == reference(problem, self.next_token, self.vocabulary)
        return done

    def test_policies_plans_and_modes(self):
        for policy in ("fcfs", "vllm", "gittins", "hybrid", "online"):
            self.played(instance(), policy)
        self.played(instance(first_token="decode"), "vllm")
        done = self.played(instance(), "static")
        assert done.trace.run["worker"] == self.worker
        assert done.trace.run["busy_share"] > 0

    def test_passes_are_those_of_the_plan(self):
        for policy in ("fcfs", "hybrid", "vllm"):
            done = self.played(instance(2), policy)
            for name in ("request", "client", "phase", "tokens", "stay"):
                columns = (getattr(each.work, name).tolist() for each in (done.plan, done.trace))
                assert len(set(map(tuple, columns))) == 1, name
            assert done.plan.steps.rounds.sum() == done.trace.steps.rounds.sum()

    def test_evictions_of_paged_memory(self):
        problem = instance(3, 12, memory=BlockMemory(8, 4, "paged"))
        done = self.played(problem, "vllm")
        assert int(done.trace.work.stay.max()) > 0

    def test_ends_at_a_token(self):
        problem = instance(4, output_limit_tokens=9)
        open_ended = problem.replace(
            requests=replace(problem.requests, output_tokens=[9] * len(problem))
        )
        free = reference(open_ended, self.next_token, self.vocabulary)
        end = free[0][2]
        done = run(problem, "vllm", self.settings(), end_of_sequence=[end])
        expected = reference(open_ended, self.next_token, self.vocabulary, ends=[end])
        assert (done.tokens, done.violations) == (expected, [])
        assert len(done.tokens[0]) <= 3

    def test_several_workers_in_processes_are_lost_and_come_back(self, monkeypatch):
        from orsched.runner.devices.processes import ProcessDevice

        boot = ProcessDevice.__init__

        def doomed(device, settings, *given, **more):
            boot(device, settings, *given, **more)
            device.faults = {12: "kill"}  # the first ones are those of the warm-up

        monkeypatch.setattr(ProcessDevice, "__init__", doomed)
        done = self.played(instance(5, 16, workers=2), "vllm")
        assert {event["what"] for event in done.trace.run["events"]} == {"lost", "restarted"}
        assert done.trace.run["place"] == "process"

    def test_a_run_that_is_stopped_is_resumed(self, monkeypatch):
        import orsched.runner.execution as execution

        problem, before = instance(6), execution._observer

        def stopping(*given):
            observe, steps = before(*given), iter(range(1000))

            def stop(view, step):
                observe(view, step)
                if next(steps) == 4:
                    import signal

                    signal.raise_signal(signal.SIGINT)

            return stop

        monkeypatch.setattr(execution, "_observer", stopping)
        part = run(problem, "vllm", self.settings())
        assert part.stopped == "interrupted"
        monkeypatch.setattr(execution, "_observer", before)
        rest = run(problem, "vllm", self.settings(), resume=part.trace)
        assert orsched.check(problem, rest.trace, times="measured") == []
        whole = reference(problem, self.next_token, self.vocabulary)
        rows = residual(problem, part.trace).rows.tolist()
        for request, tokens in zip(rows, rest.tokens, strict=True):
            assert tokens == whole[request][-len(tokens) :]

    def test_it_is_measured_by_real_prefills(self):
        settings = WorkerSettings(
            slots=2, length=40, worker=self.worker, device="auto", dtype="auto",
            arguments=self.arguments,
        )  # fmt: skip
        device = open_device(settings)
        assert not device.pretend([1])
        found, speed = measure_worker(device, 40, repeats=1, requests=4)
        device.close()
        assert set(found.phase) == {"prefill", "decode", "mixed"}
        assert int(found.column("duration_ns").min()) > 0
        assert max(found.column("cached").tolist()) > 0
        assert len(speed.reference_ns) >= 3
