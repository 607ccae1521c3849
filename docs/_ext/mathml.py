"""Render formulas as MathML with docutils: the pages need no script and no network."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError

# Commands that docutils lacks, and their equals that it knows.
_ALIASES = {r"\dots": r"\ldots", r"\lVert": r"\Vert", r"\rVert": r"\Vert"}
_COMMAND = re.compile(r"\\[A-Za-z]+")


def _visit(translator, node):
    is_block = isinstance(node, nodes.math_block)
    try:
        code = _COMMAND.sub(lambda m: _ALIASES.get(m[0], m[0]), node.astext())
        markup = tex2mathml(code, as_block=is_block)
    except MathError as error:
        raise ExtensionError(f"cannot set the formula {node.astext()!r}: {error}") from None
    translator.body.append(f'<div class="formula">{markup}</div>\n' if is_block else markup)
    raise nodes.SkipNode


def setup(app):
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (_visit, None), (_visit, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
