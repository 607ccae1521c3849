"""From a plan to times: one worker's requests in order, decoded step by step.

The source is loaded twice: plain, and with every function compiled (``compiled_kernels``). It takes
and returns arrays of numbers only. Times are floats of whole nanoseconds, exact below 2**53; under
a cost model with contexts they are the exact times without their rounding.

The requests of a worker are admitted strictly in the order of its sequence. The next one joins as
soon as it has arrived, a client is free, memory holds it to its end beside all that runs, fewer
requests than its *gate* are on the worker, and the step has tokens left: as many as the first
request of the step has as its *budget*. What is admitted is prefilled beside a round of all that
decode, or, if the first request of the step says so, in a stage *alone*.
"""

from __future__ import annotations

from typing import Any

FIXED_STAGE, TOKEN, ATTENDED, FIXED_ROUND, REQUEST, CONTEXT, FIXED_MIXED, MIXED_CONTEXT = range(8)
"""Columns of a worker's times, in nanoseconds (``orsched.costs.linear`` has the formula)."""

CLIENTS, CAP, CHUNKS, BLOCKS, BLOCK_TOKENS, FIRST = range(6)
"""Columns of a worker's limits: clients, most tokens of a step, whether prompts may be divided,
memory blocks (0: no memory), tokens of a block where it is paged (else 0), whether a prefill yields
a token."""

PROMPT, ROUNDS, HELD, GATE, BUDGET, ALONE, COUNT = range(7)
"""Columns of a request's whole numbers: prompt tokens, rounds, blocks held at its end; its plan;
and how many were on the worker when it joined, itself among them, as last kept."""

ARRIVAL, FINISH_WEIGHT, FIRST_WEIGHT, START, DUE = range(5)
"""Columns of a request's floats: arrival, weights of finish and first token; when it joined, as
last kept; and until when its last token costs no more, 0 where it always does."""

NOW, SUM, FRESH, OPEN, PAIRS = range(5)
"""Floats of a worker's state: time, sum so far, weight of the requests that wait for their first
token, weight of what is not finished; and the tokens that the step's chunks attend to."""

TURN, PLACE, DECODING, PARTIAL, LEFT, BASE, TAKEN, COMING, TOKENS, STAGE, MARK, HEAD = range(12)
"""Whole numbers of it: rounds, place in the sequence, requests that decode, the one whose prefill
is not complete or -1, its tokens left, sum of bases, blocks held in the end by all, and by those
that are being prefilled; the step's tokens, whether it is a stage, the place of the next mark, and
where in ``ends`` the next one to end is."""

REALS, WHOLES = 4, 8
"""How many of either are kept in a mark."""

ROW_CHUNK, ROW_STAGE, ROW_MIXED, ROW_ROUNDS, ROW_WAIT = range(5)
"""Kinds of rows of a script: a chunk of the next step; that step; rounds; a wait for a request."""

INFINITE = 1e300


def decode(
    sequence: Any,
    length: int,
    whole: Any,
    real: Any,
    times: Any,
    limits: Any,
    state: Any,
    place: Any,
    ends: Any,
    who: Any,
    marks: Any,
    mark_ends: Any,
    mark_who: Any,
    every: int,
    most: float,
    script: Any,
) -> float:
    """Decode a worker's sequence from a state on; return the weighted sum of its times: INFINITE
    where that is above ``most``, or where a request fits onto no empty worker.

    ``sequence``, ``length``: the requests in order, and how many there are; ``whole``, ``real``:
    their numbers; ``times``, ``limits``: the worker's; ``state``, ``place``: where to go on, and
    where it ends; ``ends``, ``who``: rounds in which those that decode end, in order, and their
    numbers, twice as long as needed (what follows in ``who`` is room for the step's new requests);
    ``marks``, ``mark_ends``, ``mark_who``: states to be kept, one each ``every`` positions, 0:
    none; ``script``: rows of kind and three numbers that are written, if there are any; the first
    counts them, and says 1 where there are too few."""
    place[MARK] = (place[PLACE] // every) * every if every else length + 1
    while place[PLACE] < length or place[DECODING] > 0 or place[PARTIAL] >= 0:
        if state[SUM] + state[OPEN] * state[NOW] > most:
            return INFINITE
        if place[PLACE] >= place[MARK]:
            slot = place[PLACE] // every
            place[MARK] = (slot + 1) * every
            _keep(state, place, ends, who, marks[slot], mark_ends[slot], mark_who[slot])
        count = _fill(sequence, length, whole, real, limits, state, place, ends, who, every, script)
        passed = 0
        if place[TOKENS] > 0:
            passed = _prefill(times, state, place, script)
        elif place[DECODING] > 0:
            arrival = 0.0
            if place[PLACE] < length:
                arrival = real[sequence[place[PLACE]], ARRIVAL]
            passed = _decode_on(times, state, place, ends, arrival, script)
        else:
            i = sequence[place[PLACE]]
            if real[i, ARRIVAL] <= state[NOW]:
                return INFINITE  # too large for the worker
            state[NOW] = real[i, ARRIVAL]
            _write(script, ROW_WAIT, i, 0)
        if passed:
            _finish(whole, real, state, place, ends, who)
        if count:
            _activate(count, whole, real, limits, state, place, ends, who)
    return INFINITE if state[SUM] > most else state[SUM]


def _keep(
    state: Any, place: Any, ends: Any, who: Any, mark: Any, mark_ends: Any, mark_who: Any
) -> None:
    """Keep a state."""
    for k in range(REALS):
        mark[k] = state[k]
    for k in range(WHOLES):
        mark[REALS + k] = place[k]
    for k in range(place[DECODING]):
        mark_ends[k] = ends[place[HEAD] + k]
        mark_who[k] = who[place[HEAD] + k]


def _fill(
    sequence: Any,
    length: int,
    whole: Any,
    real: Any,
    limits: Any,
    state: Any,
    place: Any,
    ends: Any,
    who: Any,
    every: int,
    script: Any,
) -> int:
    """Choose what the step prefills; return how many prefills it completes."""
    tokens, pairs, room, count = 0, 0.0, 0, 0
    clients, chunks, new = limits[CLIENTS], limits[CHUNKS], len(ends)
    if place[PARTIAL] >= 0:
        i, left = place[PARTIAL], place[LEFT]
        room = min(whole[i, BUDGET], limits[CAP])
        place[STAGE] = whole[i, ALONE]
        tokens = min(left, room)
        pairs = tokens * (0.5 * (tokens + 1) + (whole[i, PROMPT] - left))
        place[LEFT] = left - tokens
        _write(script, ROW_CHUNK, i, tokens)
        if tokens == left:
            who[new] = i
            count, place[PARTIAL] = 1, -1
    while place[PARTIAL] < 0 and place[PLACE] < length:
        i = sequence[place[PLACE]]
        on = place[DECODING] + count
        if real[i, ARRIVAL] > state[NOW] or on >= clients or (on > 0 and on >= whole[i, GATE]):
            break
        prompt = whole[i, PROMPT]
        if tokens == 0:
            room = min(whole[i, BUDGET], limits[CAP])
            if not chunks:
                room = max(room, prompt)
            place[STAGE] = whole[i, ALONE]
        chunk = min(prompt, room - tokens)
        if chunk <= 0 or (chunk < prompt and not chunks):
            break
        if limits[BLOCKS]:
            if not _holds(i, chunk == prompt, whole, limits, place, ends, who):
                break
            place[TAKEN] += whole[i, HELD]
            if limits[BLOCK_TOKENS]:
                place[COMING] += whole[i, HELD]
        if every:
            real[i, START] = state[NOW]
            whole[i, COUNT] = on + 1
        tokens += chunk
        pairs += chunk * (0.5 * (chunk + 1))
        place[PLACE] += 1
        _write(script, ROW_CHUNK, i, chunk)
        if chunk == prompt:
            who[new + count] = i
            count += 1
        else:
            place[PARTIAL], place[LEFT] = i, prompt - chunk
    place[TOKENS], state[PAIRS] = tokens, pairs
    return count


def _prefill(times: Any, state: Any, place: Any, script: Any) -> int:
    """Let the step's prefill take its time; return the rounds that pass beside it: 1 or 0."""
    duration = times[TOKEN] * place[TOKENS] + times[ATTENDED] * state[PAIRS]
    active = place[DECODING]
    if active == 0 or place[STAGE]:
        state[NOW] += duration + times[FIXED_STAGE]
        _write(script, ROW_STAGE, 0, 0)
        return 0
    context = place[BASE] + float(active) * (place[TURN] + 1)
    duration += max(times[FIXED_STAGE], times[FIXED_ROUND]) + times[FIXED_MIXED]
    duration += times[REQUEST] * active
    duration += (times[CONTEXT] + times[MIXED_CONTEXT]) * context
    state[NOW] += duration
    place[TURN] += 1
    state[SUM] += state[FRESH] * state[NOW]
    state[FRESH] = 0.0
    _write(script, ROW_MIXED, 0, 0)
    return 1


def _decode_on(times: Any, state: Any, place: Any, ends: Any, arrival: float, script: Any) -> int:
    """Let rounds pass until a request ends, or the next one arrives; return how many."""
    active = place[DECODING]
    passed = ends[place[HEAD]] - place[TURN]
    context = place[BASE] + float(active) * (place[TURN] + 1)
    begin = times[FIXED_ROUND] + times[REQUEST] * active + times[CONTEXT] * context
    slope = times[CONTEXT] * active
    if arrival > state[NOW]:
        passed = _rounds_to(arrival - state[NOW], passed, begin, slope)
    state[SUM] += state[FRESH] * (state[NOW] + begin)
    state[FRESH] = 0.0
    state[NOW] += passed * begin + slope * (0.5 * passed * (passed - 1))
    place[TURN] += passed
    _write(script, ROW_ROUNDS, passed, 0)
    return int(passed)


def _finish(whole: Any, real: Any, state: Any, place: Any, ends: Any, who: Any) -> None:
    """Let the requests leave that have had their last round."""
    turn, n, head = place[TURN], place[DECODING], place[HEAD]
    while n > 0 and ends[head] == turn:
        i = who[head]
        head, n = head + 1, n - 1
        state[SUM] += real[i, FINISH_WEIGHT] * max(state[NOW], real[i, DUE])
        state[OPEN] -= real[i, FINISH_WEIGHT]
        place[BASE] -= whole[i, PROMPT] - (turn - whole[i, ROUNDS])
        place[TAKEN] -= whole[i, HELD]
    place[DECODING], place[HEAD] = n, head


def _activate(
    count: int, whole: Any, real: Any, limits: Any, state: Any, place: Any, ends: Any, who: Any
) -> None:
    """Let the requests decode whose prefill is complete."""
    turn, n, new = place[TURN], place[DECODING], len(ends)
    if place[HEAD] + n + count > new:
        for k in range(n):
            ends[k], who[k] = ends[place[HEAD] + k], who[place[HEAD] + k]
        place[HEAD] = 0
    head = place[HEAD]
    for k in range(count):
        i = who[new + k]
        if limits[BLOCK_TOKENS]:
            place[COMING] -= whole[i, HELD]
        if limits[FIRST]:
            state[SUM] += real[i, FIRST_WEIGHT] * state[NOW]
        else:
            state[FRESH] += real[i, FIRST_WEIGHT]
        if whole[i, ROUNDS] == 0:
            state[SUM] += real[i, FINISH_WEIGHT] * max(state[NOW], real[i, DUE])
            state[OPEN] -= real[i, FINISH_WEIGHT]
            place[TAKEN] -= whole[i, HELD]
            continue
        end, at = turn + whole[i, ROUNDS], head + n
        place[BASE] += whole[i, PROMPT] - turn
        while at > head and ends[at - 1] > end:
            ends[at] = ends[at - 1]
            who[at] = who[at - 1]
            at -= 1
        ends[at] = end
        who[at] = i
        n += 1
    place[DECODING] = n


def _holds(i: int, done: bool, whole: Any, limits: Any, place: Any, ends: Any, who: Any) -> bool:
    """Whether memory holds a request beside all that runs, to the end of each. Where each has its
    last block from the start that is a sum. Else caches grow with the rounds: the most is held when
    one ends, counted a block less a token too large; what is being prefilled counts as it will be
    at its end, as does the new one unless its prefill is ``done`` in the step."""
    mine, blocks, size = whole[i, HELD], limits[BLOCKS], limits[BLOCK_TOKENS]
    if place[TAKEN] + mine <= blocks:
        return True
    if not size:
        return False
    turn, caches, present = place[TURN], place[BASE], place[DECODING]
    room = (blocks - place[COMING]) * size
    start = turn if place[STAGE] or present == 0 else turn + 1
    base, last = whole[i, PROMPT] - start, start + whole[i, ROUNDS]
    for k in range(place[HEAD], place[HEAD] + place[DECODING]):
        end = ends[k]
        more = mine * size
        if done:
            more = base + end + size - 1 if end <= last else 0
            # at its own end it is beside all that end later
            if end > last and caches + base + last + (present + 1) * size > (room - present * last):
                return False
        if end > turn and caches + present * (end + size - 1) + more > room:
            return False
        caches -= whole[who[k], PROMPT] - (end - whole[who[k], ROUNDS])
        present -= 1
    return bool(mine <= blocks - place[COMING])


def _rounds_to(time_left: float, most: int, begin: float, slope: float) -> int:
    """Return the fewest rounds, at least 1 and at most ``most``, that last so long."""
    if most * begin + slope * (0.5 * most * (most - 1)) < time_left:
        return most
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if middle * begin + slope * (0.5 * middle * (middle - 1)) >= time_left:
            high = middle
        else:
            low = middle + 1
    return low


def _write(script: Any, kind: int, first: int, second: int) -> None:
    """Write a row of the script, if there is one."""
    if len(script) == 0:
        return
    row = script[0, 0] + 1
    if row >= len(script):
        script[0, 1] = 1
        return
    script[row, 0], script[row, 1], script[row, 2] = kind, first, second
    script[0, 0] = row
