"""An OpenAPI description as HTML. Every text in it is escaped; the only markup known is `code`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, TypeAlias

Described: TypeAlias = Mapping[str, Any]

METHODS = ("get", "post", "put", "delete", "patch")

_CODE = re.compile(r"`([^`]*)`")


def page(described: Described) -> str:
    """Returns the whole page for a description, as `/openapi.json` has it."""
    info = described["info"]
    title = escape(info["title"])
    operations = list(_operations(described))
    index = "".join(
        f'<li><a href="#{_anchor(method, path)}">{_call(method, path)}</a> '
        f"<span>{_text(_says(operation).partition('. ')[0].rstrip('.'))}</span></li>"
        for method, path, operation in operations
    )
    sections = "".join(_section(described, *operation) for operation in operations)
    schemas = "".join(
        _schema(name, schema)
        for name, schema in sorted(described.get("components", {}).get("schemas", {}).items())
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title}</title><link rel="stylesheet" href="docs/style.css"></head><body>'
        f"<header><h1>{title}</h1><p>Version {escape(info['version'])}. The same for programs: "
        '<a href="openapi.json">openapi.json</a>.</p>'
        f"{_paragraphs(info.get('description', ''))}</header>"
        f"<nav><h2>Calls</h2><ul>{index}</ul></nav><main>{sections}"
        f"<h2>Schemas</h2>{schemas}</main></body></html>\n"
    )


def _operations(described: Described) -> Iterator[tuple[str, str, Described]]:
    """Returns the operations in the order of their use by clients: calls between nodes are last."""

    def place(path: str) -> tuple[bool, bool, str]:
        return path.startswith("/peer/"), not path.startswith("/requests"), path

    for path in sorted(described["paths"], key=place):
        for method in METHODS:
            if method in described["paths"][path]:
                yield method, path, described["paths"][path][method]


def _says(operation: Described) -> str:
    """FastAPI makes a summary of a function's name: what the function says is better."""
    said: str = operation.get("description") or operation.get("summary", "")
    return said


def _section(described: Described, method: str, path: str, operation: Described) -> str:
    parts = [
        f'<section id="{_anchor(method, path)}"><h3>{_call(method, path)}</h3>',
        _paragraphs(_says(operation)),
    ]
    parameters = operation.get("parameters", [])
    if parameters:
        rows = "".join(
            f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}"
            f"{', required' if one.get('required') else ''}</td>"
            f"<td>{_text(one.get('description', ''))} {_limits(one.get('schema', {}))}</td></tr>"
            for one in parameters
        )
        parts.append(_table("Parameters", ("name", "in", "meaning"), rows))
    if "requestBody" in operation:
        parts.append(f"<h4>Body</h4>{_content(described, operation['requestBody']['content'])}")
    rows = "".join(
        f"<tr><td>{escape(str(status))}</td><td>{_text(response.get('description', ''))}"
        f"{_headers(response.get('headers', {}))}"
        f"{_content(described, response.get('content', {}))}</td></tr>"
        for status, response in sorted(operation["responses"].items())
    )
    parts.append(_table("Answers", ("status", "meaning"), rows))
    return "".join([*parts, "</section>"])


def _headers(headers: Described) -> str:
    said = [
        f"<li><code>{escape(name)}</code>: {_text(header.get('description', ''))}</li>"
        for name, header in headers.items()
    ]
    return f"<ul>{''.join(said)}</ul>" if said else ""


def _content(described: Described, content: Described) -> str:
    """Returns for each content type its schema's name, and examples to be opened."""
    parts = []
    for kind, told in content.items():
        reference = told.get("schema", {}).get("$ref", "")
        name = reference.rpartition("/")[2]
        link = f' <a href="#schema-{escape(name)}">{escape(name)}</a>' if name else ""
        parts.append(f"<p><code>{escape(kind)}</code>{link}</p>{_fields(told.get('schema', {}))}")
        for title, example in _examples(described, told, name):
            shown = escape(json.dumps(example, indent=2, ensure_ascii=False))
            parts.append(f"<details><summary>{escape(title)}</summary><pre>{shown}</pre></details>")
    return "".join(parts)


def _examples(described: Described, told: Described, name: str) -> Iterator[tuple[str, Any]]:
    own = told.get("examples", {})
    yield from ((f"Example: {title}", one["value"]) for title, one in own.items())
    if not own:
        schema = described["components"]["schemas"][name] if name else told.get("schema", {})
        yield from (("Example", one) for one in schema.get("examples", []))


def _fields(schema: Described) -> str:
    required = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_type(told)}"
        f"{', required' if field in required else ''}</td>"
        f"<td>{_text(told.get('description', ''))} {_limits(told)}</td></tr>"
        for field, told in schema.get("properties", {}).items()
    )
    return _table("", ("field", "type", "meaning"), rows) if rows else ""


def _schema(name: str, schema: Described) -> str:
    says = _paragraphs(schema.get("description", "")) + _fields(schema)
    return f'<section id="schema-{escape(name)}"><h3>{escape(name)}</h3>{says}</section>'


def _type(schema: Described) -> str:
    """A type in words: alternatives, lists, references."""
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if "items" in schema else "list"
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return f"mapping to {_type(values)}"
    return escape(str(schema.get("type", "any")))


def _limits(schema: Described) -> str:
    names = ("enum", "const", "default", "minimum", "maximum", "minLength", "maxLength", "pattern")
    said = [
        f"{name} <code>{escape(json.dumps(schema[name]))}</code>"
        for name in names
        if schema.get(name) is not None
    ]
    return f"({', '.join(said)})" if said else ""


def _table(title: str, heads: tuple[str, ...], rows: str) -> str:
    head = "".join(f"<th>{one}</th>" for one in heads)
    above = f"<h4>{title}</h4>" if title else ""
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _call(method: str, path: str) -> str:
    return f"<b>{method.upper()}</b> <code>{escape(path)}</code>"


def _anchor(method: str, path: str) -> str:
    return method + re.sub(r"[^a-z0-9]+", "-", path.lower()).rstrip("-")


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_text(part)}</p>" for part in text.split("\n\n") if part.strip())


def _text(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(" ".join(text.split())))
