from orsched._version import __version__ as __version__
from orsched.autoscaling import (
    Autoscaling as Autoscaling,
)
from orsched.checker import (
    Violation as Violation,
)
from orsched.checker import (
    check as check,
)
from orsched.comparison import (
    Comparison as Comparison,
)
from orsched.costs import (
    AffineCost as AffineCost,
)
from orsched.costs import (
    BilinearCost as BilinearCost,
)
from orsched.costs import (
    CostModel as CostModel,
)
from orsched.costs import (
    Floor as Floor,
)
from orsched.costs import (
    LevelsCost as LevelsCost,
)
from orsched.costs import (
    LinearCost as LinearCost,
)
from orsched.costs import (
    PoolingCost as PoolingCost,
)
from orsched.costs import (
    ProfiledCost as ProfiledCost,
)
from orsched.costs import (
    RooflineCost as RooflineCost,
)
from orsched.costs import (
    RoundFloor as RoundFloor,
)
from orsched.costs import (
    StageFloor as StageFloor,
)
from orsched.errors import (
    InfeasibleError as InfeasibleError,
)
from orsched.errors import (
    InputError as InputError,
)
from orsched.errors import (
    InvalidScheduleError as InvalidScheduleError,
)
from orsched.errors import (
    OrschedError as OrschedError,
)
from orsched.errors import (
    PolicyError as PolicyError,
)
from orsched.errors import (
    TimeLimitError as TimeLimitError,
)
from orsched.eviction import (
    Eviction as Eviction,
)
from orsched.files import (
    load_schedule as load_schedule,
)
from orsched.files import (
    save_instance as save_instance,
)
from orsched.files import (
    save_schedule as save_schedule,
)
from orsched.frontier_points import (
    Frontier as Frontier,
)
from orsched.frontier_points import (
    FrontierPoint as FrontierPoint,
)
from orsched.frontiers import (
    frontier as frontier,
)
from orsched.hardware import (
    Machine as Machine,
)
from orsched.hardware import (
    machine as machine,
)
from orsched.hardware import (
    machines as machines,
)
from orsched.instance import (
    Instance as Instance,
)
from orsched.links import (
    Link as Link,
)
from orsched.locate import (
    load as load,
)
from orsched.memory import (
    BlockMemory as BlockMemory,
)
from orsched.memory import (
    PrefixCache as PrefixCache,
)
from orsched.methods import (
    methods as methods,
)
from orsched.metrics import (
    summarise as summarise,
)
from orsched.models.bounds import (
    Bound as Bound,
)
from orsched.models.bounds import (
    bound as bound,
)
from orsched.models.bulk_bound import (
    BulkBound as BulkBound,
)
from orsched.models.bulk_bound import (
    attainment_bound as attainment_bound,
)
from orsched.models.bulk_bound import (
    bulk_bound as bulk_bound,
)
from orsched.plotting.frontier import (
    frontier_chart as frontier_chart,
)
from orsched.plotting.frontier import (
    save_frontier as save_frontier,
)
from orsched.plotting.gantt import (
    gantt as gantt,
)
from orsched.plotting.gantt import (
    save_gantt as save_gantt,
)
from orsched.plotting.latency import (
    latency as latency,
)
from orsched.plotting.latency import (
    save_latency as save_latency,
)
from orsched.plotting.timeline import (
    save_timeline as save_timeline,
)
from orsched.plotting.timeline import (
    timeline_chart as timeline_chart,
)
from orsched.plotting.usage import (
    save_usage as save_usage,
)
from orsched.plotting.usage import (
    usage as usage,
)
from orsched.policy import (
    ClairvoyantView as ClairvoyantView,
)
from orsched.policy import (
    Information as Information,
)
from orsched.policy import (
    Policy as Policy,
)
from orsched.policy import (
    PredictedView as PredictedView,
)
from orsched.policy import (
    View as View,
)
from orsched.prefixes import (
    Prefixes as Prefixes,
)
from orsched.report.html import (
    write_report as write_report,
)
from orsched.requests import (
    Requests as Requests,
)
from orsched.result import (
    Result as Result,
)
from orsched.result import (
    Status as Status,
)
from orsched.result import (
    Termination as Termination,
)
from orsched.schedule import (
    Schedule as Schedule,
)
from orsched.schedule import (
    Steps as Steps,
)
from orsched.schedule import (
    Work as Work,
)
from orsched.service_classes import (
    ServiceClass as ServiceClass,
)
from orsched.sizing import (
    Capacity as Capacity,
)
from orsched.sizing import (
    capacity as capacity,
)
from orsched.slo import (
    SLO as SLO,
)
from orsched.solver import (
    compare as compare,
)
from orsched.solver import (
    simulate as simulate,
)
from orsched.solver import (
    solve as solve,
)
from orsched.step import (
    ARRIVAL as ARRIVAL,
)
from orsched.step import (
    FINISH as FINISH,
)
from orsched.step import (
    Step as Step,
)
from orsched.step import (
    decode_rounds as decode_rounds,
)
from orsched.step import (
    prefill_stage as prefill_stage,
)
from orsched.stop import (
    FirstOf as FirstOf,
)
from orsched.stop import (
    MaxIterations as MaxIterations,
)
from orsched.stop import (
    MaxRuntime as MaxRuntime,
)
from orsched.stop import (
    TargetGap as TargetGap,
)
from orsched.transfers import (
    Transfers as Transfers,
)
from orsched.versions import (
    show_versions as show_versions,
)
from orsched.workers import (
    Worker as Worker,
)
