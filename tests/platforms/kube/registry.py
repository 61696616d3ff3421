"""What an API server does with objects beyond storing them: names, schemas, quotas, status parts, deletion."""

from __future__ import annotations

import re
from typing import Any

from platforms.kube.client import JOBS, KINDS, PODS, QUOTAS, WORKLOADS, Key, find_kind, now
from platforms.kube.quota import amount, quantity, used
from platforms.kube.schemas import complaint, parts_of
from platforms.kube.store import Store

_WITH_STATUS = {"pods", "jobs", "nodes", "resourcequotas", "persistentvolumeclaims"}
_ENDED = ("Succeeded", "Failed")
_QUEUE = "kueue.x-k8s.io/queue-name"
_FOREGROUND = "foregroundDeletion"


class Refusal(Exception):
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Registry:
    """`crds` is what the operators have installed, with the files of their definitions."""

    def __init__(self, store: Store, crds: dict[Key, str], admission: dict[Key, Any]) -> None:
        self.store = store
        self.crds = crds
        self.ending: set[str] = set()  # namespaces that are being deleted
        self.admission = admission  # what webhooks say: an object's fault, or ""

    def create(self, key: Key, namespace: str, body: Any, strict: bool) -> Any:
        """Raises: Refusal."""
        if namespace in self.ending:  # plugin/pkg/admission/namespace/lifecycle/admission.go
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise Refusal(403, "Forbidden", f'{key[2]} "{body["metadata"]["name"]}" is forbidden: {why}')
        self._valid(key, body, strict)
        self._within_quota(key, namespace, body)
        if key == JOBS and WORKLOADS in self.crds and _QUEUE in (body["metadata"].get("labels") or {}):
            # Kueue's webhook does it before the check, but the schema is that of Kubernetes 1.20, which has no suspend.
            body = merged(body, {"spec": {"suspend": True}})
        if self._has_status(key):  # who creates an object does not say its status; some definitions allow no empty one
            body = {name: value for name, value in body.items() if name != "status"}
            body |= {} if key in self.crds else {"status": {"phase": "Pending"} if key == PODS else {}}
        try:
            return self.store.create(key, namespace, body)
        except KeyError:
            raise Refusal(409, "AlreadyExists", f'{key[2]} "{body["metadata"]["name"]}" already exists') from None

    def undefine(self, key: Key) -> None:
        """Delete the definition of a kind, with all objects of that kind."""
        for content in self.store.all(key):
            self.store.remove(key, content["metadata"]["namespace"], content["metadata"]["name"])
        del self.crds[key]

    def list(self, key: Key, namespace: str, query: dict[str, str]) -> Any:
        with self.store.lock:  # a change in between would never be heard of
            found, version = self.store.all(key, namespace), self.store.version
        items = [item for item in found if selected(item, query)]
        if key not in self.crds:  # a list of these names their kind once
            items = [{name: value for name, value in item.items() if name not in find_kind(key)} for item in items]
        head = {"apiVersion": "v1", "kind": f"{KINDS.get(key, '')}List"}
        return {**head, "metadata": {"resourceVersion": str(version)}, "items": items}

    def patch(self, key: Key, content: Any, body: Any, part: str | None) -> Any:
        """Raises: Refusal."""
        with self.store.lock:  # what was changed since the request came in stays so
            return self._patch(key, self.store.get(key, *_place(content)) or content, body, part)

    def _patch(self, key: Key, content: Any, body: Any, part: str | None) -> Any:
        metadata = content["metadata"]
        wanted = {name: (body.get("metadata") or {}).get(name) for name in ("uid", "resourceVersion")}
        if any(value not in (None, metadata[name]) for name, value in wanted.items()):
            raise Refusal(409, "Conflict", "the object has been modified; please apply your changes to the latest one")
        if part == "status" and not self._has_status(key):
            raise Refusal(404, "", "404 page not found")
        whole = merged(content, body)
        if part == "status":
            whole = {**content, "status": whole.get("status")}
        elif self._has_status(key):
            whole = {name: value for name, value in whole.items() if name != "status"}
            whole |= {"status": content["status"]} if "status" in content else {}
        if key in self.crds and (wrong := complaint(key, whole, self.crds[key], False)):
            raise Refusal(422, "Invalid", wrong)
        if _is_terminating(whole) and not whole["metadata"].get("finalizers") and key != PODS:
            self.store.remove(key, metadata["namespace"], metadata["name"])
            return whole
        return self._change(key, metadata, lambda draft: (draft.clear(), draft.update(whole)))

    def bind(self, pod: Any, body: Any) -> Any:
        """Give a pod its node. Raises: Refusal."""
        if (body.get("metadata") or {}).get("uid") not in (None, pod["metadata"]["uid"]):
            raise Refusal(409, "Conflict", "the UID in the precondition does not match")
        if pod["spec"].get("nodeName") or _is_terminating(pod):
            raise Refusal(409, "Conflict", "the pod is already assigned to a node, or being deleted")
        entry = {"type": "PodScheduled", "status": "True"}

        def change(draft: Any) -> None:
            draft["spec"]["nodeName"] = body["target"]["name"]
            draft["status"]["conditions"] = [entry]

        self._change(PODS, pod["metadata"], change)
        return {"kind": "Status", "status": "Success"}

    def evict(self, pod: Any) -> Any:
        """Delete a pod, with a word on why, as servers have it from version 1.26 on. Raises: Refusal."""
        entry = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        entry["message"] = "Eviction API: evicting"
        told = self._change(
            PODS, pod["metadata"], lambda draft: draft["status"].setdefault("conditions", []).append(entry)
        )
        return self.delete(PODS, told, {})

    def delete(self, key: Key, content: Any, options: Any) -> Any:
        """Pods end gracefully, owners may wait for what they own. Raises: Refusal."""
        metadata = content["metadata"]
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != metadata["uid"]:
            raise Refusal(409, "Conflict", "the UID in the precondition does not match")
        marks: dict[str, Any] = {}
        if key == PODS:
            grace = options.get("gracePeriodSeconds", content["spec"].get("terminationGracePeriodSeconds", 30))
            if grace and content["spec"].get("nodeName") and content["status"]["phase"] not in _ENDED:
                marks = {"deletionGracePeriodSeconds": grace}
        elif options.get("propagationPolicy") == "Foreground":
            marks = {"finalizers": sorted({*(metadata.get("finalizers") or []), _FOREGROUND})}
        if not marks:
            self.store.remove(key, metadata["namespace"], metadata["name"])
            return {"kind": "Status", "status": "Success"}
        since = metadata.get("deletionTimestamp") or now(marks.get("deletionGracePeriodSeconds", 0))
        return self._change(key, metadata, lambda draft: draft["metadata"].update(marks, deletionTimestamp=since))

    def _change(self, key: Key, metadata: Any, change: Any) -> Any:

        def change_same(draft: Any) -> None:
            if draft["metadata"]["uid"] != metadata["uid"]:  # another object has taken the name meanwhile
                raise Refusal(409, "Conflict", "the UID in the precondition does not match")
            change(draft)

        found = self.store.update(key, metadata["namespace"], metadata["name"], change_same)
        if found is None:
            raise Refusal(404, "NotFound", f'{key[2]} "{metadata["name"]}" not found')
        return found

    def _valid(self, key: Key, body: Any, strict: bool) -> None:
        name = body["metadata"]["name"]
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name):
            raise Refusal(422, "Invalid", f"metadata.name: {name!r} is no DNS name")
        for text in (body["metadata"].get("labels") or {}).values():
            if not re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?", text):
                raise Refusal(422, "Invalid", f"metadata.labels: {text!r} is no label")
        wrong = complaint(key, body, self.crds.get(key), strict) or (_twice_mounted(body) if key == PODS else "")
        if wrong:
            raise Refusal(422, "Invalid", wrong)
        denial = self.admission[key](body) if key in self.admission else ""
        if denial:
            raise Refusal(403, "Forbidden", f"admission webhook denied the request: {denial}")

    def _within_quota(self, key: Key, namespace: str, body: Any) -> None:
        for quota in self.store.all(QUOTAS, namespace):
            hard = (quota.get("status") or {}).get("hard") or {}
            have = used(hard, {key: self.store.all(key, namespace)})
            for name, limit in hard.items():
                asked = amount(name, key, body)
                if asked and quantity(have[name]) + asked > quantity(limit):
                    text = f"requested: {name}={asked}, used: {name}={have[name]}, limited: {name}={limit}"
                    raise Refusal(403, "Forbidden", f"exceeded quota: {quota['metadata']['name']}, {text}")

    def _has_status(self, key: Key) -> bool:
        return "status" in parts_of(self.crds[key], key[1]) if key in self.crds else key[2] in _WITH_STATUS


def merged(old: Any, new: Any) -> Any:
    """A JSON merge patch."""
    if not isinstance(new, dict):
        return new
    base = old if isinstance(old, dict) else {}
    whole = {**base, **{name: merged(base.get(name), value) for name, value in new.items()}}
    return {name: value for name, value in whole.items() if value is not None}


def selected(item: Any, query: dict[str, str]) -> bool:
    """Whether label and field selectors select an object."""
    labels = item["metadata"].get("labels") or {}
    wanted = dict(part.split("=", 1) for part in filter(None, query.get("labelSelector", "").split(",")))
    fields = dict(part.split("=", 1) for part in filter(None, query.get("fieldSelector", "").split(",")))
    involved = item.get("involvedObject") or {}
    known = {"type": item.get("type"), **{f"involvedObject.{name}": value for name, value in involved.items()}}
    return wanted.items() <= labels.items() and fields.items() <= known.items()


def _twice_mounted(pod: Any) -> str:
    """What a server says of a pod with two volumes at one path; "" for others."""
    for number, container in enumerate(pod["spec"]["containers"]):
        paths = [mount["mountPath"] for mount in container.get("volumeMounts") or []]
        twice = [path for path in paths if paths.count(path) > 1]
        if twice:
            return f'spec.containers[{number}].volumeMounts: Invalid value: "{twice[0]}": must be unique'
    return ""


def _place(content: Any) -> tuple[str, str]:
    return content["metadata"].get("namespace") or "", content["metadata"]["name"]


def _is_terminating(content: Any) -> bool:
    return bool(content["metadata"].get("deletionTimestamp"))
