"""What the real API server would say of an object: the schemas of Kubernetes and of the operators' own CRDs.

Unknown fields are errors where the request asks for strict checks, as newer servers do.
"""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

PLACE = Path(__file__).parent / "contracts"
CORE = {
    ("", "v1", "pods"): "io.k8s.api.core.v1.Pod",
    ("", "v1", "secrets"): "io.k8s.api.core.v1.Secret",
    ("", "v1", "services"): "io.k8s.api.core.v1.Service",
    ("", "v1", "persistentvolumeclaims"): "io.k8s.api.core.v1.PersistentVolumeClaim",
    ("batch", "v1", "jobs"): "io.k8s.api.batch.v1.Job",
}


def complaint(key: tuple[str, str, str], content: Any, crd: str | None, strict: bool) -> str:
    """The first thing that is wrong with an object, "" if nothing is."""
    validator = _of_crd(crd, key[1], strict) if crd else _of_core(CORE[key], strict) if key in CORE else None
    if validator is None:
        return ""
    for error in validator.iter_errors(content):
        return f"{'.'.join(map(str, error.instance_path))}: {error.message[:500]}"
    return ""


@functools.cache
def crd_of(file: str) -> Any:
    """A CustomResourceDefinition."""
    text = gzip.decompress((PLACE / f"{file}.gz").read_bytes()) if (PLACE / f"{file}.gz").exists() else None
    return yaml.load(text or (PLACE / file).read_bytes(), Loader=yaml.CSafeLoader)


@functools.cache
def parts_of(file: str, version: str) -> frozenset[str]:
    """The parts of an object of this kind that are written by themselves: status, scale."""
    found = next(entry for entry in crd_of(file)["spec"]["versions"] if entry["name"] == version)
    return frozenset(found.get("subresources") or ())


@functools.cache
def _of_crd(file: str, version: str, strict: bool) -> Any:
    found = next(entry for entry in crd_of(file)["spec"]["versions"] if entry["name"] == version)
    schema = dict(found["schema"]["openAPIV3Schema"])
    meta = {"type": "object", **(schema.get("properties", {}).get("metadata") or {})}
    known = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    schema["properties"] = {
        **known,
        **schema["properties"],
        "metadata": {**meta, "x-kubernetes-preserve-unknown-fields": True},
    }
    return jsonschema_rs.validator_for(_converted(schema, strict))


@functools.cache
def _of_core(definition: str, strict: bool) -> Any:
    whole = json.loads((PLACE / "kubernetes-core.json").read_text())
    # Since 1.21: staging/src/k8s.io/api/batch/v1/types.go.
    modes = {"type": "string", "enum": ["NonIndexed", "Indexed"]}
    whole["definitions"]["io.k8s.api.batch.v1.JobSpec"]["properties"]["completionMode"] = modes
    definitions = {name: _converted(schema, strict) for name, schema in whole["definitions"].items()}
    definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["additionalProperties"] = True
    definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = {"type": ["string", "integer"]}
    return jsonschema_rs.validator_for({"$ref": f"#/definitions/{definition}", "definitions": definitions})


def _converted(schema: Any, strict: bool) -> Any:
    """OpenAPI's dialect as JSON Schema."""
    if isinstance(schema, list):
        return [_converted(entry, strict) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _converted(value, strict) for key, value in schema.items() if key not in ("properties", "format")}
    if "properties" in schema and isinstance(schema["properties"], dict):
        found["properties"] = {name: _converted(value, strict) for name, value in schema["properties"].items()}
        if strict and not schema.get("x-kubernetes-preserve-unknown-fields"):
            found.setdefault("additionalProperties", False)
    if schema.get("nullable") and "type" in schema:
        found["type"] = [schema["type"], "null"]
    return found
