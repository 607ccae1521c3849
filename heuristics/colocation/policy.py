"""Interactive requests first, bulk work in what they leave: the steps of all such policies."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from orsched.common.columns import read_only, whole_number
from orsched.common.errors import InputError, PolicyError
from orsched.common.units import MAX_TOKENS, NEVER, seconds_to_ns
from orsched.heuristics.colocation.draft import UNLIMITED, Draft, MachineTime, Room, StepTime
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.data.instance import Instance
    from orsched.data.step import Step
    from orsched.heuristics.colocation.draft import Pool


class Deadlines:
    """Token i of a request is due at its arrival + TTFT + i TPOT (Echo, section 5.1), i from 0;
    ``ttft_s`` and ``tpot_s`` replace the limits of all interactive requests' classes."""

    def __init__(
        self, instance: Instance, ttft_s: float | None = None, tpot_s: float | None = None
    ) -> None:
        self.bulk: list[bool] = instance.bulk.tolist()  # whether it is of a bulk class, by row
        self.kind: list[int] = instance.requests.service_class.tolist()
        self.interactive_kinds = [i for i, each in enumerate(instance.classes) if not each.bulk]
        ttft = None if ttft_s is None else seconds_to_ns(ttft_s, "ttft_s")
        tpot = None if tpot_s is None else seconds_to_ns(tpot_s, "tpot_s")
        self.limits = [  # TTFT and TPOT of each class in nanoseconds, None for none
            (each.ttft_ns if ttft is None else ttft, each.tpot_ns if tpot is None else tpot)
            for each in instance.classes
        ]

    def due_ns(self, view: View, request: int) -> int:
        """Return when the next token of a request is due; NEVER without a limit. A class with a
        TTFT alone has none behind its first token, one with a TPOT alone none before; its tokens
        count from the arrival."""
        if self.bulk[request]:
            return NEVER
        ttft, tpot = self.limits[self.kind[request]]
        generated = view.generated(request)
        if (tpot if generated else ttft) is None:
            return NEVER
        return view.arrival_ns[request] + (ttft or 0) + generated * (tpot or 0)


def require_seconds(value: float | None, field: str) -> None:
    """Raise ``InputError`` unless a parameter is None or a time of at least 0 seconds."""
    if value is not None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(
                f"{value!r} is not a number of seconds",
                field=field,
                remedy="give seconds of at least 0",
            )
        seconds_to_ns(value, field)


@dataclass(frozen=True)
class ColocationParams:
    """Common parameters of policies that serve bulk work beside interactive requests.

    Attributes:
        ttft_s, tpot_s: limits of the interactive requests; None: those of their service classes.
        max_num_batched_tokens: the token budget of a step, as in vLLM: one for each request that
            decodes, and the prompt tokens.
        least_chunk: least tokens of an interactive prefill in a step, even if this makes a token of
            another request late.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    max_num_batched_tokens: int = 2048
    least_chunk: int = 256

    def __post_init__(self) -> None:
        require_seconds(self.ttft_s, "ttft_s")
        require_seconds(self.tpot_s, "tpot_s")
        for name in ("max_num_batched_tokens", "least_chunk"):
            whole_number(getattr(self, name), name, minimum=1, maximum=MAX_TOKENS)


IN_RANGE = "give a number in this range"


class Colocation(Policy):
    """Plans each step again: interactive requests first come first served, then bulk work.

    In a step stand, in this order: interactive requests that decode; their begun prefills, then
    those that wait, as long as clients, memory and the token budget allow; bulk requests that
    decode; their begun prefills; and, if no interactive request waits, bulk requests from the pool.
    Bulk requests that decode and find no place in a step pause: they keep client and cache. Where
    an interactive request finds no client or no memory, bulk requests are preempted for it.
    """

    chunks = True

    def __init__(self, name: str, instance: Instance, params: ColocationParams, pool: Pool) -> None:
        self.name = name
        self.information = Information.NONE
        self.params = params
        self.pool = pool
        self.deadlines = Deadlines(instance, params.ttft_s, params.tpot_s)
        self.bulk = self.deadlines.bulk
        self.queue: deque[int] = deque()
        self.decoding: Mapping[int, int] = {}  # requests that decode in the step -> context
        prefixes = instance.requests.prefixes
        self.ids = memoryview(b"") if prefixes is None else read_only(prefixes.ids)
        self.offsets = None if prefixes is None else read_only(prefixes.offsets)
        self.block_tokens = 1 if prefixes is None else prefixes.block_tokens
        self.limited = False  # whether an interactive prefill keeps to the others' deadlines

    # -- what policies differ in ------------------------------------------------------------

    def step_time(self, view: View) -> StepTime:
        """Return what gives the times of steps."""
        return MachineTime(view.worker.cost)

    @abstractmethod
    def bulk_limit_ns(self, view: View, draft: Draft) -> int:
        """Return how long the step may last if bulk work is in it."""

    @abstractmethod
    def next_bulk(self, view: View, draft: Draft, room: Room, limit_ns: int) -> int | None:
        """Return the waiting bulk request that is tried next, or None."""

    def victim(self, view: View, draft: Draft, running: Sequence[int]) -> int:
        """Return which of the running bulk requests, in order of admission, is preempted."""
        return running[-1]

    def bulk_room(self, view: View, draft: Draft, room: Room) -> int:
        """Return the free blocks that bulk requests may take at their admission."""
        begun = [each for each in view.prefilling if each not in draft.victims]
        return room.free - room.promised(begun, draft.chunks)

    def observe(self, view: View, room: Room) -> None:
        """See the worker before a step is planned."""

    # -- events -------------------------------------------------------------------------------

    def start(self, view: View) -> None:
        """Know the worker; raises ``InputError`` for one that pads."""
        if view.worker.padding:
            raise InputError(
                "steps with prompts beside a round do not pad",
                field="padding",
                remedy="leave padding out",
            )
        self.time = self.step_time(view)

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request."""
        if self.bulk[request]:
            self.pool.add(request)
        else:
            self.queue.append(request)

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request again, before the others."""
        if self.bulk[request]:
            self.pool.put_back(request)
        else:
            self.queue.appendleft(request)

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.queue) + len(self.pool)

    def surrender(self) -> int:
        """Give up the request that would be served last."""
        if len(self.pool):
            request = self.pool.last()
            self.pool.take(request)
            return request
        return self.queue.pop()

    # -- a step -------------------------------------------------------------------------------

    def decide(self, view: View) -> Step | None:
        """Return the next step."""
        draft = self.plan(view)
        self.decoding = draft.decode
        may_last = not self.queue and not len(self.pool)
        if may_last and draft.decode:
            kinds = {self.bulk[request] for request in draft.decode}
            may_last = len(kinds) == 1
        step = draft.step(may_last)
        if step is None and (self.queue or len(self.pool)) and not view.running:
            request = self.queue[0] if self.queue else self.pool.last()
            raise PolicyError(f"request {request} can never be admitted: it does not fit")
        return step

    def plan(self, view: View) -> Draft:
        """Plan a step; again, without the request, whenever one has to be preempted."""
        victims: list[int] = []
        while True:
            room = Room(view)
            try:
                return self._plan(view, room, victims)
            except _Preempt as preempt:
                victims.append(preempt.victim)
            finally:
                room.close()

    def _plan(self, view: View, room: Room, victims: list[int]) -> Draft:
        """Plan a step, in the order in which its effects take place on the memory."""
        draft = Draft(view, self.time, self.params.max_num_batched_tokens, victims)
        order = list(view.running)
        for request in sorted(victims, key=order.index, reverse=True):
            room.release(request)
        now = Present.of(view, self.bulk, victims)
        self.observe(view, room)
        self._decode_interactive(view, draft, room, now)
        self._prefill_interactive(view, draft, room, now)
        reserved = self._foresee_interactive(view, draft, room, now)
        limit_ns = self.bulk_limit_ns(view, draft)
        self._decode_bulk(view, draft, room, now, limit_ns, reserved)
        self._prefill_bulk(view, draft, room, now, limit_ns, reserved)
        self._admit_interactive(view, draft, room)
        if not self.waits_interactive(draft) and not victims:
            self._admit_bulk(view, draft, room, limit_ns)
        if not draft.chunks and not draft.decode:
            if now.bulk:
                self._force(view, draft, room, now)
            elif not view.running:  # no step is short enough: one has to be taken all the same
                self._admit_bulk(view, draft, room, UNLIMITED)
        while self.queue and self.queue[0] in draft.chunks:
            self.queue.popleft()
        return draft

    def waits_interactive(self, draft: Draft) -> bool:
        """Whether an interactive request waits that is not in the step."""
        return bool(self.queue) and self.queue[-1] not in draft.chunks

    def due_ns(self, view: View, request: int) -> int:
        """Return when the next token of a request is due."""
        return self.deadlines.due_ns(view, request)

    def _note_due(self, view: View, draft: Draft, request: int) -> None:
        draft.due_ns = min(draft.due_ns, self.due_ns(view, request))

    def _preempt_bulk(self, view: View, draft: Draft, now: Present) -> None:
        """Plan again without a bulk request, if there is one that runs."""
        if now.bulk:
            raise _Preempt(self.victim(view, draft, now.bulk))

    # -- interactive requests ---------------------------------------------------------------

    def _decode_interactive(self, view: View, draft: Draft, room: Room, now: Present) -> None:
        for request in now.interactive:
            if request in view.prefilling:
                continue
            if not room.extend(request, 1):
                self._preempt_bulk(view, draft, now)
                if len(now.interactive) == 1:
                    raise PolicyError(f"request {request} does not fit into the memory, even alone")
                raise _Preempt(now.interactive[-1])
            draft.add_decode(request, view.cached(request) + 1)
            self._note_due(view, draft, request)

    def _interactive_chunk(self, view: View, draft: Draft, left: int, cached: int) -> int:
        limit_ns = UNLIMITED
        if self.limited and draft.due_ns < UNLIMITED:
            limit_ns = draft.due_ns - view.now_ns
        fit = draft.largest_chunk(left, limit_ns, cached)
        least = min(left, self.params.least_chunk, draft.tokens, draft.prompt_tokens)
        return max(fit, least, 0)

    def _prefill_interactive(self, view: View, draft: Draft, room: Room, now: Present) -> None:
        for request in now.interactive:
            if request not in view.prefilling:
                continue
            cached = view.cached(request)
            chunk = self._interactive_chunk(view, draft, view.to_prefill(request), cached)
            if chunk and not room.extend(request, chunk):
                self._preempt_bulk(view, draft, now)
                continue
            if chunk:
                draft.add_chunk(request, chunk, cached)
                self._note_due(view, draft, request)

    def _foresee_interactive(self, view: View, draft: Draft, room: Room, now: Present) -> int:
        """Give waiting interactive requests their chunks; return the blocks to keep for them."""
        begun = [each for each in now.interactive if each in view.prefilling]
        reserved = room.promised(begun, draft.chunks)
        for request in self.queue:
            hit, leaving = room.peek(request)
            left = view.to_prefill(request) - hit
            chunk = self._interactive_chunk(view, draft, left, hit)
            if not chunk:
                break
            new = room.needed(request, hit, left) + leaving
            if draft.clients < 1 or new > room.free - reserved:
                self._preempt_bulk(view, draft, now)
                break
            reserved += new
            draft.add_chunk(request, chunk, hit)
            draft.clients -= 1
            self._note_due(view, draft, request)
        return reserved

    def _admit_interactive(self, view: View, draft: Draft, room: Room) -> None:
        """Take the blocks of the step's waiting interactive requests, which may find more than was
        foreseen, or less."""
        for request in self.queue:
            if request not in draft.chunks:
                return
            hit = room.peek(request)[0]
            left = view.to_prefill(request) - hit
            if left < draft.chunks[request]:
                draft.shorten(request, left, hit)
            room.admit(request, draft.chunks[request])

    # -- bulk requests --------------------------------------------------------------------------

    def _decode_bulk(
        self, view: View, draft: Draft, room: Room, now: Present, limit_ns: int, reserved: int
    ) -> None:
        for request in now.bulk:
            if request in view.prefilling or draft.tokens <= 0:
                continue
            context = view.cached(request) + 1
            if limit_ns < UNLIMITED and draft.ns_with_decode(context) > limit_ns:
                continue
            if self._extend_bulk(room, now, request, 1, reserved):
                draft.add_decode(request, context)

    def _extend_bulk(
        self, room: Room, now: Present, request: int, tokens: int, reserved: int
    ) -> bool:
        """Take blocks for a running bulk request; plan again without the last one if need be."""
        if room.more(request, tokens) <= room.free - reserved and room.extend(request, tokens):
            return True
        if now.bulk[-1] != request:
            raise _Preempt(now.bulk[-1])
        return False

    def _prefill_bulk(
        self, view: View, draft: Draft, room: Room, now: Present, limit_ns: int, reserved: int
    ) -> None:
        for request in now.bulk:
            if request not in view.prefilling:
                continue
            cached = view.cached(request)
            chunk = draft.largest_chunk(view.to_prefill(request), limit_ns, cached)
            if chunk > 0 and self._extend_bulk(room, now, request, chunk, reserved):
                draft.add_chunk(request, chunk, cached)

    def _admit_bulk(self, view: View, draft: Draft, room: Room, limit_ns: int) -> None:
        while len(self.pool) and draft.clients > 0 and draft.tokens > 0:
            request = self.next_bulk(view, draft, room, limit_ns)
            if request is None or not self._try_bulk(view, draft, room, request, limit_ns):
                break

    def _try_bulk(self, view: View, draft: Draft, room: Room, request: int, limit_ns: int) -> bool:
        """Admit a bulk request if its whole prefill has memory and a chunk of it has time."""
        hit, leaving = room.peek(request)
        left = view.to_prefill(request) - hit
        alone = not view.running and not draft.chunks
        allowed = room.free if alone else self.bulk_room(view, draft, room)
        if room.needed(request, hit, left) + leaving > allowed:
            return False
        chunk = draft.largest_chunk(left, limit_ns, hit)
        if chunk <= 0 or self.is_being_prefilled(view, draft, request, hit):
            return False
        room.admit(request, chunk)
        self.pool.take(request)
        draft.add_chunk(request, chunk, hit)
        draft.clients -= 1
        return True

    def is_being_prefilled(self, view: View, draft: Draft, request: int, hit: int) -> bool:
        """Whether another prefill computes the block that a request misses first: then it waits."""
        if self.offsets is None:
            return False
        place = hit // self.block_tokens
        key = self._key(request, place)
        if key is None:
            return False
        prefills = [*view.prefilling, *draft.chunks]
        return any(self._key(each, place) == key for each in prefills if each != request)

    def _key(self, request: int, place: int) -> int | None:
        """Return the identifier of a block of a prompt, None where it has none."""
        assert self.offsets is not None
        at = self.offsets[request] + place
        return self.ids[at] if at < self.offsets[request + 1] else None

    def _force(self, view: View, draft: Draft, room: Room, now: Present) -> None:
        """Let the oldest bulk request go on where none found a place: preempt the others."""
        oldest, tokens = now.bulk[0], 1
        if oldest in view.prefilling:
            tokens = min(view.to_prefill(oldest), draft.tokens, draft.prompt_tokens)
        if not room.extend(oldest, tokens):
            if len(now.bulk) == 1:
                raise PolicyError(f"request {oldest} does not fit into the memory, even alone")
            raise _Preempt(now.bulk[-1])
        if oldest in view.prefilling:
            draft.add_chunk(oldest, tokens, view.cached(oldest))
        else:
            draft.add_decode(oldest, view.cached(oldest) + 1)


class _Preempt(Exception):
    def __init__(self, victim: int) -> None:
        super().__init__(victim)
        self.victim = victim


class Present(NamedTuple):
    """The requests on the worker that stay there, in order of admission."""

    interactive: list[int]
    bulk: list[int]

    @classmethod
    def of(cls, view: View, bulk: Sequence[bool], victims: Sequence[int]) -> Present:
        """Tell the running requests apart."""
        now = cls([], [])
        for request in view.running:
            if request not in victims:
                now[bulk[request]].append(request)
        return now
