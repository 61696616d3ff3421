"""Files that say where an API server is, and who we are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def write_kubeconfig(path: Path, cluster: dict[str, Any], user: dict[str, Any], namespace: str = "default") -> Path:
    """A file with one cluster, one user and one context; its path."""
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "current-context": "test",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.dump(whole, Dumper=yaml.CSafeDumper))
    return path


def cluster_of(path: Path) -> dict[str, Any]:
    """Where the server of a kubeconfig is, and how it shows that it is that."""
    whole = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    name = next(each["context"]["cluster"] for each in whole["contexts"] if each["name"] == whole["current-context"])
    found = dict(next(each["cluster"] for each in whole["clusters"] if each["name"] == name))
    authority = found.get("certificate-authority")
    return {**found, "certificate-authority": str(path.parent / authority)} if authority else found
