"""The OpenAPI document: responses are described by the structs that the routes return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from fastapi.openapi.utils import get_openapi

from leadhand.codec.field_docs import field_texts
from leadhand.server.documents import ProblemDocument
from leadhand.server.problems import MEDIA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fastapi import FastAPI

    from leadhand.core.plan.model import Doc

REF = "#/components/schemas/{name}"
PROBLEM = {MEDIA: {"schema": {"$ref": REF.format(name=ProblemDocument.__name__)}}}
DOCUMENTS: dict[str, type[Any]] = {ProblemDocument.__name__: ProblemDocument}
"""The structs that routes return, by name."""


def answered(model: type[Any], description: str) -> Doc:
    """Return the description of a response with `model`, and register `model` for `openapi`."""
    name = model.__name__
    if DOCUMENTS.setdefault(name, model) is not model:
        raise ValueError(f"two documents are named {name}")
    schema = {"$ref": REF.format(name=name)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def described(models: Iterable[type[Any]]) -> dict[str, Doc]:
    """Return the JSON Schemas of structs and of those they contain, by class name.

    A field's description is the text below it in its class.
    """
    _, found = msgspec.json.schema_components(models, ref_template=REF)
    texts: dict[str, dict[str, str]] = {}
    for kind in _structs(msgspec.Struct):
        if kind.__name__ in found:
            names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
            texts[kind.__name__] = {
                names[field]: text for field, text in field_texts(kind).items() if field in names
            }
    for name, schema in found.items():
        for field, text in texts[name].items():
            schema["properties"][field]["description"] = text
    return found


def _structs(base: type[Any]) -> Iterator[type[Any]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _structs(kind)


def openapi(app: FastAPI) -> Doc:
    """Return the OpenAPI document of the application, made once."""
    if app.openapi_schema is None:
        found: Any = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        parts = found.setdefault("components", {})
        schemas = {**parts.get("schemas", {}), **described(DOCUMENTS.values())}
        parts["schemas"] = dict(sorted(schemas.items()))
        parts["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "leadhand_session"},
        }
        found["security"] = [{"token": []}, {"session": []}]
        app.openapi_schema = found
    return app.openapi_schema
