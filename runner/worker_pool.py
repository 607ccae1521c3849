"""The workers of a run: what they are, and the devices that stand for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, OrschedError, known_names
from orsched.common.own_code import is_own
from orsched.common.scalars import require_one_of, require_seconds
from orsched.runner.capacity import (
    length_needed,
    model_config,
    require_room,
    require_slots,
    size_of,
    slots_needed,
)
from orsched.runner.devices.device import (
    ENGINES,
    TorchDevice,
    VirtualDevice,
    WorkerLostError,
    open_device,
    require_engine,
    start_together,
    warm_up,
)
from orsched.runner.devices.settings import (
    AUTO,
    LONGEST_S,
    MOST_THREADS,
    Chosen,
    WorkerSettings,
    choose,
    one_each,
    require_budget,
)
from orsched.runner.utilization import Watch, model_size
from orsched.runner.worker.graphs import Budget
from orsched.runner.worker.language_model import DTYPES

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.runner.devices.device import Device
    from orsched.runner.speed import Speed

WORKERS = ("torch", "virtual", *ENGINES)
PLACES = ("here", "process", "ray")
WATCHED = ("torch", "vllm")
"""Workers whose use of their device is known where they are in this process."""


@dataclass(frozen=True)
class RunSettings:
    """What executes a run.

    Attributes:
        worker: ``torch``; ``vllm``: vLLM's engine; ``virtual``: steps take the time of the cost
            model; or ``module:Class`` of your own, derived from ``EngineDevice``.
        model: a preset, or a folder with a model in the format of transformers.
        device: ``auto`` (a GPU where there is one), or as torch names it.
        dtype: of weights and caches; None: float32 on the CPU, bfloat16 on a GPU.
        slots: requests on a worker at a time; None: the clients of the instance's workers.
        length: tokens that a slot holds; None: those of the longest request.
        threads: on the CPU; None: torch's own choice.
        place: where real workers live: ``here`` (a single one, in this process), ``process`` (one
            each) or ``ray`` (actors); None: here, or in processes if there are several.
        worker_timeout: seconds that a step may take on a worker in a process of its own or behind
            Ray, before the worker is taken for hung, killed and restarted; None: 120, or many
            times what its slowest step took by token and round.
        peaks: whether to measure the device's peaks first, and the run's use of them (of a torch
            worker that is here).
        allow_pickle: whether the weights in a model's folder may be pickled.
        graph_sizes, graph_bytes: the most graphs of steps, on a GPU, captured before time 0, and
            the most memory for them; a step without a graph runs as it is.
        arguments: names and values that another engine than torch takes.
        calibrated: how fast the machine was when its cost model was measured; it is looked at again
            before and after the run (of a worker that is here).

    Raises:
        InputError: a value is out of range.
    """

    worker: str = "torch"
    model: str = "tiny"
    device: str = "auto"
    dtype: str | None = None
    slots: int | None = None
    length: int | None = None
    threads: int | None = None
    place: str | None = None
    peaks: bool = False
    allow_pickle: bool = False
    worker_timeout: float | None = None
    graph_sizes: int = Budget().sizes
    graph_bytes: int = Budget().bytes
    arguments: tuple[tuple[str, Any], ...] = ()
    calibrated: Speed | None = None

    def __post_init__(self) -> None:
        if self.worker not in WORKERS and not is_own(self.worker):
            raise InputError(
                f"unknown worker {self.worker!r}",
                field="worker",
                remedy=known_names(self.worker, WORKERS, "module:Class, or one of "),
            )
        if self.arguments and self.worker in ("torch", "virtual"):
            raise InputError(
                f"the {self.worker} worker has no arguments of its own",
                field="arguments",
                remedy="leave them out",
            )
        for name, known in (
            ("dtype", (None, *DTYPES)),
            ("place", (None, *PLACES)),
        ):
            require_one_of(getattr(self, name), name, known)
        for name in ("slots", "length", "threads"):
            if getattr(self, name) is not None:
                most = MOST_THREADS if name == "threads" else 2**62
                whole_number(getattr(self, name), name, minimum=1, maximum=most)
        if self.worker_timeout is not None:
            require_seconds(self.worker_timeout, "worker_timeout", LONGEST_S)
        require_budget(self.graph_sizes, self.graph_bytes)


class WorkerPool(NamedTuple):
    """The workers of a run."""

    devices: list[Device]  # one for each worker of the instance, ready
    vocabulary: int  # prompts are of tokens below this
    about: dict[str, Any]  # what a trace says of them
    watch: Watch | None = None  # watches a worker in this process

    def close(self) -> None:
        """End the workers; none is left behind."""
        for device in self.devices:
            device.close()


def require_fit(instance: Instance, settings: RunSettings) -> None:
    """Refuse, before any planning, what cannot be run in any case; raises as ``worker_pool``."""
    instance.require_steady("a run on real workers")
    here = settings.place == "here" or (settings.place is None and len(instance.workers) == 1)
    if settings.peaks and not (here and settings.worker in WATCHED):
        raise InputError(
            "only of a torch worker or vLLM in this process", field="peaks", remedy="leave it out"
        )
    if settings.calibrated is not None and (not here or settings.worker == "virtual"):
        raise InputError(
            "of a real worker in this process", field="calibration", remedy="leave it out"
        )
    if settings.worker_timeout is not None and (here or settings.worker == "virtual"):
        raise InputError(
            "of workers in processes of their own or behind Ray",
            field="worker_timeout",
            remedy="leave it out, or --workers-as process",
        )
    if settings.place == "here" and len(instance.workers) > 1:
        raise InputError(
            f"{len(instance.workers)} workers in one process", field="place", remedy="process, ray"
        )
    _require_reusable(instance, settings, here)
    if settings.worker == "torch":
        requests = instance.requests
        longest = int((requests.prompt_tokens + requests.output_tokens).max(initial=1))
        _fitting(instance, settings, settings.slots or 1, settings.length or longest)
    elif settings.worker != "virtual":
        require_engine(settings.worker)


def _require_reusable(instance: Instance, settings: RunSettings, here: bool) -> None:
    """Refuse a prefix cache where the worker could not hold what the schedule says it holds."""
    if not instance.caches_prefixes or settings.worker == "virtual":
        return
    able = settings.worker == "torch" or require_engine(settings.worker).reuses_prefixes
    if not here or len(instance.workers) > 1 or not able:
        raise InputError(
            "prefixes are reused by a single torch or vllm worker in this process: one elsewhere "
            "may be lost, and its cache with it",
            field="place",
            remedy="an instance with one worker, and --workers-as here; or no prefix_cache",
        )
    if instance.first_token != "prefill":
        raise InputError(
            "a worker reuses prefixes where the prefill yields the first token: otherwise "
            "the last token of a prompt is computed in a round, after its block counts as stored",
            field="first_token",
            remedy='"first_token": "prefill"',
        )


def worker_pool(
    instance: Instance, settings: RunSettings, plan: Schedule, follows: bool, seed: int
) -> WorkerPool:
    """Return workers that are ready for a run; one that ``follows`` its plan does nothing else."""
    least = slots_needed(instance, plan, follows)
    slots = max(w.clients for w in instance.workers) if settings.slots is None else settings.slots
    require_slots(slots, least)
    longest = length_needed(instance, plan, follows)
    length = longest if settings.length is None else settings.length
    if length < longest:
        raise InputError(
            f"the longest request takes {longest:,} tokens, a slot holds {length:,}",
            field="length",
            remedy=f"at least {longest}",
        )
    about = {"worker": settings.worker, "slots": slots, "length": length}
    if settings.worker == "virtual":
        return WorkerPool([VirtualDevice() for _ in instance.workers], 2, about)
    return _real(instance, settings, about, seed)


def _fitting(instance: Instance, settings: RunSettings, slots: int, length: int) -> Chosen:
    """Return a device that torch has and on which its model fits; what another engine is told."""
    if settings.worker != "torch":
        return Chosen(settings.device, settings.dtype or AUTO)
    model_config(settings.model)  # says if there is none
    chosen = choose(settings.device, settings.dtype)
    size = size_of(settings.model, chosen.dtype, settings.allow_pickle)
    stored, tokens = _stored(instance)
    many = len(instance.workers)
    require_room(size, slots, length, chosen.device, many, stored * tokens)
    return chosen


def _stored(instance: Instance) -> tuple[int, int]:
    """Return the blocks of prefixes that a worker keeps, and tokens of each."""
    memory = instance.workers[0].memory
    if memory is None or memory.prefix_cache is None:
        return 0, 1
    return memory.blocks, memory.block_tokens


def _real(
    instance: Instance, settings: RunSettings, about: dict[str, Any], seed: int
) -> WorkerPool:
    """Return real workers that have taken their first steps."""
    slots, length, many = about["slots"], about["length"], len(instance.workers)
    chosen = _fitting(instance, settings, slots, length)
    place = settings.place or ("here" if many == 1 else "process")
    # elsewhere, any GPU will do that was not named with its number
    any_gpu = chosen.on_gpu and place != "here" and ":" not in settings.device
    where = "cuda" if any_gpu else chosen.device
    caps = [worker.prefill_cap_tokens for worker in instance.workers]
    spare = settings.calibrated is not None  # a slot for looks at the machine's speed
    own = WorkerSettings(
        *(settings.model, slots + spare, length, where, chosen.dtype),
        *(seed, settings.threads, settings.allow_pickle),
        *_stored(instance),
        *(settings.graph_sizes, settings.graph_bytes),
        settings.worker,
        None if None in caps else max(cap or 0 for cap in caps),
        settings.arguments,
    )
    watch = None
    if place == "here":
        devices: list[Device] = [open_device(own)]
        watch = _watch(devices[0], own, settings.peaks)
    else:
        # Ray places each on a GPU of its own, on whatever machine there is one
        by_ray = place == "ray" and own.device == "cuda"
        each = [own] * many if by_ray else one_each(own, many)
        devices = _elsewhere(place, each, settings.worker_timeout)
    prompts = instance.requests.prompt_tokens
    try:
        start_together(devices)
        workers = WorkerPool(devices, devices[0].vocabulary, about, watch)
        if len(prompts):
            for device in devices:
                warm_up(device, slots, length, [int(prompts.min()), int(prompts.max())])
    except BaseException as error:
        for device in devices:
            device.close()
        if isinstance(error, WorkerLostError):
            raise OrschedError(f"a worker was lost before the run began: {error}") from None
        raise
    about |= {"model": settings.model, "dtype": chosen.dtype, "place": place}
    about["threads"] = None if chosen.on_gpu else devices[0].facts.get("threads")
    if settings.worker != "torch":
        about |= {"engine": devices[0].facts, "arguments": dict(settings.arguments)}
    return workers


def _watch(device: Device, settings: WorkerSettings, peaks: bool) -> Watch | None:
    """Return what watches a worker in this process: a torch worker, or vLLM's engine."""
    if settings.worker not in WATCHED:
        return None
    where = "cpu" if device.name.endswith("cpu") else settings.device
    chosen = choose(where, None if settings.dtype == AUTO else settings.dtype)
    worker = device.worker if isinstance(device, TorchDevice) else None
    size = None
    if peaks:
        from orsched.runner.worker.language_model import model_on_paper

        size = model_size(model_on_paper(settings.model, chosen.dtype))
    return Watch(worker, size, *chosen)


def _elsewhere(place: str, each: list[WorkerSettings], hang_s: float | None) -> list[Device]:
    """Return devices in processes of their own."""
    if place == "process":
        from orsched.runner.devices.processes import ProcessDevice

        return [ProcessDevice(settings, hang_s=hang_s) for settings in each]
    from orsched.runner.devices.processes import RayDevice, connect

    connect()
    return [RayDevice(settings, hang_s=hang_s) for settings in each]
