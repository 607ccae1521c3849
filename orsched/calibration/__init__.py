"""Where step times come from: fits to measurements, data sheets, and the catalogue of machines."""

from orsched.common.lazy_names import lazy_names

_HOME = {
    "orsched.calibration.catalogue": (
        "Machine",
        "machine",
        "machines",
        "read_cost",
        "read_machine",
        "cost_words",
        "machine_words",
    ),
    "orsched.calibration.data_sheet": ("Layout", "data_sheet_cost", "fitting"),
    "orsched.calibration.gpus": ("GPUS", "Constants", "Gpu", "constants_of"),
    "orsched.calibration.shapes": ("MODELS", "ModelShape", "read_config"),
    "orsched.calibration.recipe": ("RunFit", "fit_run"),
    "orsched.calibration.runs": ("MeasuredRun", "Server", "Times", "read_run", "recorded_settings"),
}

__all__ = sorted(name for names in _HOME.values() for name in names)
__getattr__ = lazy_names(__name__, _HOME)
