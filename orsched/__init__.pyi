from orsched._version import __version__ as __version__
from orsched.calibration import (
    Machine as Machine,
)
from orsched.calibration import (
    machine as machine,
)
from orsched.calibration import (
    machines as machines,
)
from orsched.checker import (
    Violation as Violation,
)
from orsched.checker import (
    check as check,
)
from orsched.common.errors import (
    InfeasibleError as InfeasibleError,
)
from orsched.common.errors import (
    InputError as InputError,
)
from orsched.common.errors import (
    InvalidScheduleError as InvalidScheduleError,
)
from orsched.common.errors import (
    OrschedError as OrschedError,
)
from orsched.common.errors import (
    PolicyError as PolicyError,
)
from orsched.common.errors import (
    TimeLimitError as TimeLimitError,
)
from orsched.common.stop import (
    CpuSeconds as CpuSeconds,
)
from orsched.common.stop import (
    FirstOf as FirstOf,
)
from orsched.common.stop import (
    MaxIterations as MaxIterations,
)
from orsched.common.stop import (
    MaxRuntime as MaxRuntime,
)
from orsched.common.stop import (
    TargetGap as TargetGap,
)
from orsched.common.versions import (
    show_versions as show_versions,
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
from orsched.costs import (
    StepLine as StepLine,
)
from orsched.data.autoscaling import (
    Autoscaling as Autoscaling,
)
from orsched.data.instance import (
    Instance as Instance,
)
from orsched.data.links import (
    Link as Link,
)
from orsched.data.links import (
    Transfers as Transfers,
)
from orsched.data.memory import (
    BlockMemory as BlockMemory,
)
from orsched.data.memory import (
    Eviction as Eviction,
)
from orsched.data.memory import (
    PrefixCache as PrefixCache,
)
from orsched.data.prefixes import (
    Prefixes as Prefixes,
)
from orsched.data.requests import (
    Requests as Requests,
)
from orsched.data.schedule import (
    Schedule as Schedule,
)
from orsched.data.schedule import (
    Steps as Steps,
)
from orsched.data.schedule import (
    Work as Work,
)
from orsched.data.service_classes import (
    SLO as SLO,
)
from orsched.data.service_classes import (
    ServiceClass as ServiceClass,
)
from orsched.data.step import (
    ARRIVAL as ARRIVAL,
)
from orsched.data.step import (
    FINISH as FINISH,
)
from orsched.data.step import (
    Step as Step,
)
from orsched.data.step import (
    decode_rounds as decode_rounds,
)
from orsched.data.step import (
    prefill_stage as prefill_stage,
)
from orsched.data.workers import (
    Worker as Worker,
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
from orsched.files.locate import (
    load as load,
)
from orsched.heuristics.gates import (
    Gate as Gate,
)
from orsched.heuristics.gates import (
    Waiting as Waiting,
)
from orsched.heuristics.scls.offloading import (
    Offloading as Offloading,
)
from orsched.heuristics.scls.offloading import (
    offload as offload,
)
from orsched.heuristics.stealing import (
    StealingQueues as StealingQueues,
)
from orsched.heuristics.stealing import (
    sort_with_stealing as sort_with_stealing,
)
from orsched.metrics.summary import (
    summarise as summarise,
)
from orsched.models.batch import (
    Batches as Batches,
)
from orsched.models.batch import (
    batch as batch,
)
from orsched.models.bounds.bounds import (
    Bound as Bound,
)
from orsched.models.bounds.bounds import (
    bound as bound,
)
from orsched.models.bounds.bulk_bound import (
    BulkBound as BulkBound,
)
from orsched.models.bounds.bulk_bound import (
    attainment_bound as attainment_bound,
)
from orsched.models.bounds.bulk_bound import (
    bulk_bound as bulk_bound,
)
from orsched.models.bounds.request_slack import (
    RequestSlack as RequestSlack,
)
from orsched.models.bounds.request_slack import (
    request_slack as request_slack,
)
from orsched.models.bounds.sensitivity import (
    Sensitivity as Sensitivity,
)
from orsched.models.bounds.sensitivity import (
    sensitivity as sensitivity,
)
from orsched.models.full_mip.mathopt_model import (
    Mip as Mip,
)
from orsched.models.full_mip.mathopt_model import (
    MipResult as MipResult,
)
from orsched.models.full_mip.mathopt_model import (
    full_mip as full_mip,
)
from orsched.models.packing import (
    PackingResult as PackingResult,
)
from orsched.models.packing import (
    pack as pack,
)
from orsched.papers.running import (
    Rerunning as Rerunning,
)
from orsched.papers.running import (
    paper as paper,
)
from orsched.planning.capacity import (
    Capacity as Capacity,
)
from orsched.planning.capacity import (
    capacity as capacity,
)
from orsched.planning.tuning import (
    Tuning as Tuning,
)
from orsched.planning.tuning import (
    tune as tune,
)
from orsched.simulator.policy import (
    ClairvoyantView as ClairvoyantView,
)
from orsched.simulator.policy import (
    Information as Information,
)
from orsched.simulator.policy import (
    Policy as Policy,
)
from orsched.simulator.policy import (
    PredictedView as PredictedView,
)
from orsched.simulator.policy import (
    View as View,
)
from orsched.solving.comparison import (
    Comparison as Comparison,
)
from orsched.solving.methods import (
    methods as methods,
)
from orsched.solving.result import (
    Result as Result,
)
from orsched.solving.result import (
    Status as Status,
)
from orsched.solving.result import (
    Termination as Termination,
)
from orsched.solving.solver import (
    compare as compare,
)
from orsched.solving.solver import (
    simulate as simulate,
)
from orsched.solving.solver import (
    solve as solve,
)
from orsched.views.gantt import (
    gantt as gantt,
)
from orsched.views.gantt import (
    save_gantt as save_gantt,
)
from orsched.views.html import (
    write_report as write_report,
)
from orsched.views.latency import (
    latency as latency,
)
from orsched.views.latency import (
    save_latency as save_latency,
)
from orsched.views.over_time import (
    save_timeline as save_timeline,
)
from orsched.views.over_time import (
    save_usage as save_usage,
)
from orsched.views.over_time import (
    timeline_chart as timeline_chart,
)
from orsched.views.over_time import (
    usage as usage,
)
