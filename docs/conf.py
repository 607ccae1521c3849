"""Settings of the documentation tool; `make docs` builds with warnings as errors, offline."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from orsched import __version__

project = "orsched"
author = "The orsched developers"
copyright = "2026, The orsched developers"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "mathml",
    "schema_table",
]
exclude_patterns = ["_build", "_ext", "jupyter_execute"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_title = f"orsched {__version__}"
html_math_renderer = "mathml"
html_show_copyright = False
html_last_updated_fmt = None

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 60

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# The names in "Attributes" sections are looked up everywhere; several classes have a `worker`.
suppress_warnings = ["ref.python"]
