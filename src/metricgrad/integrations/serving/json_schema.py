"""The columns of a run as JSON Schema, and the service as OpenAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricgrad import __version__

if TYPE_CHECKING:
    from metricgrad.comparison.tables.schema import Schema
    from metricgrad.estimators.columns.column import Column

_TYPES = {
    "number": ["number", "string", "null"],
    "boolean": ["boolean", "string", "number", "null"],
    "category": ["string", "number", "boolean", "null"],
    "date": ["string", "number", "null"],
    "text": ["string", "number", "boolean", "null"],
}
_MOST_EXAMPLES = 20


def describe_record(schema: Schema) -> dict[str, Any]:
    """Return the JSON Schema of a record that the model predicts: its feature columns, of which none may be left out.

    New categories are no error, so categories are examples. Other columns are ignored.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "record",
        "type": "object",
        "properties": {column.name: _describe_column(column) for column in schema.columns},
        "required": schema.inputs,
        "additionalProperties": True,
    }


def _describe_column(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"type": _TYPES[column.kind], "description": column.kind}
    how = column.number_format or column.date_format
    if how is not None:
        found["description"] += f", written as in training: {how}"
    if column.kind == "category":
        found["examples"] = list(column.categories[:_MOST_EXAMPLES])
    elif column.mean is not None:
        found["examples"] = [round(column.mean, 4)]
    return found


def describe_prediction(schema: Schema, abstains: bool) -> dict[str, Any]:
    """Return the JSON Schema of a prediction; ``abstains``: whether rows may be left undecided."""
    if schema.task == "binary":
        return _make_object(prediction={"type": _LABEL}, score={"type": "number", "description": _SCORE})
    scores = _make_object(**{name: {"type": "number"} for name in schema.classes})
    if schema.task == "multiclass":
        return _make_object(prediction={"type": [*_LABEL, "null"] if abstains else _LABEL}, scores=scores)
    return _make_object(prediction={"type": "array", "items": {"enum": list(schema.classes)}}, scores=scores)


_LABEL = ["string", "number", "boolean"]
_SCORE = "of the positive class"


def _make_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def describe_service(schema: Schema, about: str, abstains: bool = False) -> dict[str, Any]:
    """Return the service as an OpenAPI document; ``abstains``: whether rows may be left undecided."""
    record = describe_record(schema)
    record.pop("$schema")
    body = {"oneOf": [_refer("record"), {"type": "array", "items": _refer("record"), "minItems": 1}]}
    answer = {"oneOf": [_refer("prediction"), {"type": "array", "items": _refer("prediction")}]}
    errors = {
        "400": "The body is no JSON.",
        "413": "The body or the list is too long.",
        "415": "The body is of another type.",
        "422": "The records cannot be predicted.",
    }
    predict = {
        "summary": "Predict one record, or a list of records",
        "requestBody": {"required": True, "content": _as_json(body)},
        "responses": {"200": _answer("The prediction, or a list in the order of the records", answer)}
        | {code: _answer(text, _refer("error")) for code, text in errors.items()},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "metricgrad", "description": about, "version": __version__},
        "paths": {
            "/predict": {"post": predict},
            "/schema": {"get": _get("The JSON Schema of a record")},
            "/health": {"get": _get("Whether the service is ready")},
            "/metrics": {"get": {"summary": "Counters for Prometheus", "responses": {"200": {"description": "text"}}}},
        },
        "components": {
            "schemas": {
                "record": record,
                "prediction": describe_prediction(schema, abstains),
                "error": _make_object(error={"type": "string"}),
            }
        },
    }


def _refer(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _as_json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _answer(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": _as_json(schema)}


def _get(summary: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": _answer("JSON", {"type": "object"})}}
