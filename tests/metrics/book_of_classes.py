"""Numbers by class and tenant read literally, sharing nothing with ``orsched.metrics``."""

from fractions import Fraction
from itertools import combinations, pairwise

from orsched.costs import mixed_ns
from tests.by_the_book import DECODE, PREFILL, Book, ratio


def token_times(book):
    """Times of all tokens of each request, in the order in which they come."""
    found = {}
    for request in range(len(book.instance)):
        yielding = tokens_by_step(book, request).items()
        found[request] = [at for step, many in yielding for at in round_ends(book, step)[:many]]
    return found


def round_ends(book, number):
    """Ends of the rounds of a step, by the cost model's own times of a round."""
    step = book.steps[number]
    worker = book.instance.workers[step.worker]
    if step.phase != DECODE:
        return [step.end_ns]
    here = [s for s in book.stays if s.worker == step.worker and number in s.does]
    contexts = [stay.does[number][2] - step.rounds + 1 for stay in here]
    if worker.padding:
        contexts = [max(contexts)] * len(contexts)
    now, ends = step.start_ns, []
    for later in range(step.rounds):
        total = sum(contexts) + later * len(contexts)
        now += mixed_ns(worker.cost, [], len(contexts), total, max(contexts) + later)
        ends.append(now)
    return ends


def class_figures(instance, schedule):
    """The numbers of ``results["classes"]`` that are not distributions."""
    book = Book(instance, schedule)
    times = token_times(book)
    found = {}
    for code, kind in enumerate(instance.classes):
        rows = [r for r in range(len(instance)) if instance.requests.service_class[r] == code]
        prompt = sum(int(instance.requests.prompt_tokens[r]) for r in rows)
        output = sum(len(times[r]) for r in rows)
        end = max((book.finish[r] for r in rows), default=0)
        found[kind.name] = {
            "requests": len(rows), "prompt_tokens": prompt, "output_tokens": output, "end_ns": end,
            "slo": attainment(instance, kind, {r: times[r] for r in rows}, book),
            "deadline": deadlines(instance, kind, rows, book),
            "tokens_per_s": ratio((prompt + output) * 10**9, end),
            "output_tokens_per_s": ratio(output * 10**9, end),
            "recomputed_tokens": sum(recomputed(book, r) for r in rows),
        }  # fmt: skip
    return found


def attainment(instance, kind, times, book):
    if kind.ttft_ns is None and kind.tpot_ns is None:
        return None
    attained = in_time = tokens = all_tokens = 0
    for request, moments in times.items():
        arrival = int(instance.requests.arrival_ns[request])
        origin = moments[0] if kind.ttft_ns is None else arrival + kind.ttft_ns
        timely = []
        for i, moment in enumerate(moments):
            if kind.tpot_ns is None:
                timely.append(i > 0 or moment <= origin)
            else:
                timely.append(moment <= origin + i * kind.tpot_ns)
        tokens, all_tokens = tokens + sum(timely), all_tokens + len(timely)
        in_time += all(timely)
        several = len(moments) > 1
        pace = (book.finish[request] - moments[0]) // (len(moments) - 1) if several else 0
        attained += (kind.ttft_ns is None or moments[0] - arrival <= kind.ttft_ns) and (
            kind.tpot_ns is None or pace <= kind.tpot_ns
        )
    return {
        "ttft_ns": kind.ttft_ns, "tpot_ns": kind.tpot_ns,
        "attained": attained, "attainment": ratio(attained, len(times)),
        "in_time": in_time, "in_time_share": ratio(in_time, len(times)),
        "tokens_in_time": tokens, "token_attainment": ratio(tokens, all_tokens),
    }  # fmt: skip


def deadlines(instance, kind, rows, book):
    own = instance.requests.deadline_ns
    limits = {}
    for request in rows:
        if own is not None and own[request] > 0:
            limits[request] = int(own[request])
        elif kind.deadline_ns is not None:
            limits[request] = kind.deadline_ns
    if not limits:
        return None
    arrivals = instance.requests.arrival_ns
    met = sum(book.finish[r] - int(arrivals[r]) <= limit for r, limit in limits.items())
    return {"requests": len(limits), "met": met, "attainment": met / len(limits)}


def recomputed(book, request):
    """Tokens that a stay prefills though they were in a cache of an earlier one."""
    known, again = set(), 0
    for stay in (each for each in book.stays if each.request == request):
        seen, at = set(), 0
        for phase, tokens, cache in stay.does.values():
            positions = set(range(at, cache))
            at = cache
            if phase == PREFILL:
                assert len(positions) == tokens
                again += len(positions & known)
            seen |= positions
        known |= seen
    return again


def service_difference(instance, schedule, prompt_weight=1, output_weight=2):
    """Largest difference of the service of two tenants between two times at which both wait."""
    book = Book(instance, schedule)
    tenant = [int(each) for each in instance.requests.tenant]
    served, waits = [], {each: [] for each in set(tenant)}
    for request, owner in enumerate(tenant):
        since = int(instance.requests.arrival_ns[request])
        for place, stay in enumerate(s for s in book.stays if s.request == request):
            waits[owner].append((since, book.steps[stay.first].start_ns))
            since = book.steps[stay.last].end_ns
            first = book.steps[stay.first].end_ns
            if place == 0:
                weight = prompt_weight * int(instance.requests.prompt_tokens[request])
                served.append((first, owner, weight))
        for number, many in tokens_by_step(book, request).items():
            served.append((book.steps[number].end_ns, owner, output_weight * many))
    times = sorted({moment for step in book.steps for moment in (step.start_ns, step.end_ns)})
    most = None
    for one, other in combinations(sorted(waits), 2):
        for i, j in combinations(range(len(times)), 2):
            if not all(throughout(waits[t], times[i], times[j]) for t in (one, other)):
                continue
            sums = [
                sum(w for at, t, w in served if t == who and times[i] < at <= times[j])
                for who in (one, other)
            ]
            most = max(most or 0, abs(sums[0] - sums[1]))
    return most


def tokens_by_step(book, request):
    """Number of tokens that each step yields for a request."""
    found, yielded = {}, 0
    for stay in (each for each in book.stays if each.request == request):
        due, prefilled = int(book.requests.prompt_tokens[request]) + yielded, 0
        for number in sorted(stay.does):
            phase, tokens, _ = stay.does[number]
            many = book.steps[number].rounds if phase == DECODE else 0
            if phase == PREFILL:
                prefilled += tokens
                many = int(book.by_prefill and prefilled == due)
            found[number] = found.get(number, 0) + many
            yielded += many
    return found


def throughout(waits, begin, end):
    """Whether some interval holds each moment between two times."""
    borders = sorted({begin, end, *(b for wait in waits for b in wait if begin < b < end)})
    middles = [Fraction(a + b, 2) for a, b in pairwise(borders)]
    return all(any(a <= moment <= b for a, b in waits) for moment in middles)
