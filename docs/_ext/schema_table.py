"""Directive ``schema-table``: the fields of a published JSON Schema, or of one of its parts.

The argument is the schema's name, with the name of a definition or property after a slash:
``instance``, ``instance/worker``, ``schedule/steps``.
"""

import json
from importlib.resources import files

from sphinx.util.docutils import SphinxDirective


def _kind(field):
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return " or ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    if "$ref" in field:
        return f"object *{field['$ref'].rpartition('/')[2]}*"
    if "oneOf" in field:
        return " or ".join(_kind(option) for option in field["oneOf"])
    kind = field.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(_kind({**field, "type": one}) for one in kind)
    if kind == "array" and "prefixItems" in field:
        return "[" + ", ".join(_kind(item) for item in field["prefixItems"]) + "]"
    if kind == "array":
        return f"list of {_kind(field['items'])}"
    if kind == "integer":
        return "whole number" + _limits(field)
    return {"string": "text", "null": "null"}.get(kind, kind)


def _limits(field):
    low, high = field.get("minimum"), field.get("maximum")
    if high is not None and high >= 2**31 - 1:
        high = None  # the limits of 32 and 64 bits are stated once, in the text
    if low is not None and low <= -(2**31):
        low = None
    if low is None:
        return "" if high is None else f" ≤ {high}"
    return f" ≥ {low}" if high is None else f" {low}–{high}"


def _markdown(schema, definitions):
    required = schema.get("required", ())
    lines = ["| field | value | needed | meaning |", "| --- | --- | --- | --- |"]
    for name, field in schema["properties"].items():
        needed = "yes" if name in required else ""
        cells = (f"`{name}`", _kind(field), needed, _meaning(field, definitions))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _meaning(field, definitions):
    definition = definitions.get(field.get("$ref", "").rpartition("/")[2], {})
    return field.get("description", definition.get("description", "")).replace("|", "\\|")


class SchemaTable(SphinxDirective):
    """A table with one row a field."""

    required_arguments = 1

    def run(self):
        """Return the table."""
        name, _, part = self.arguments[0].partition("/")
        path = files("orsched.files").joinpath("schemas", f"{name}.schema.json")
        self.env.note_dependency(str(path))
        schema = json.loads(path.read_text())
        definitions = schema.get("$defs", {})
        if part:
            schema = definitions.get(part) or schema["properties"][part]
        return self.parse_text_to_nodes(_markdown(schema, definitions))


def setup(app):
    """Register the directive."""
    app.add_directive("schema-table", SchemaTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
