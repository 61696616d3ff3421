"""A copy of all objects of one kind with one label, kept up to date by a thread that watches them.

List, then watch from the list's version on. A watch that ends or breaks resumes from the last version seen; if the
server has forgotten that version (410), or seems to be another one, everything is listed again. Readers get what is
known; `age_s` is the time for which a server that should have answered has not.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from nnilite.records import Json
from nnilite_kubernetes._api import ApiError, Cluster, Resource, Watch

log = logging.getLogger(__name__)

_BACKOFF_S = (0.2, 20.0)
_ROUND_S = 0.2  # watches last minutes; one that ends at once, again and again, does not keep server and processor busy


class Informer:
    """Calls `changed`, in the watching thread, with each object that has changed, and whether it is gone."""

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        namespace: str,
        selector: str,
        changed: Callable[[Json, bool], None],
    ) -> None:
        self._cluster = cluster
        self._place = (resource, namespace)
        self._selector = selector
        self._changed = changed
        self._lock = threading.Lock()
        self._objects: dict[str, Json] = {}
        self._version = ""
        self._watch: Watch | None = None
        self._closed = threading.Event()
        self._failures = 0
        self._down_since: float | None = None
        self.trouble = ""
        self.refused = False  # the server has answered, but not with what was asked for
        self._thread = threading.Thread(target=self._run, name=f"watch-{resource.plural}", daemon=True)

    def start(self) -> None:
        """List, and then keep watching. Raises: ApiError if the list is refused."""
        self._list()
        self._thread.start()

    def close(self) -> None:
        """Stop soon."""
        self._closed.set()
        watch = self._watch
        if watch is not None:
            watch.stop()

    @property
    def plural(self) -> str:
        """Return what these objects are called."""
        return self._place[0].plural

    @property
    def age_s(self) -> float:
        """Return for how many seconds the server has not answered; 0 while it does."""
        since = self._down_since
        return 0.0 if since is None else time.monotonic() - since

    def all(self) -> list[Json]:
        """Return all known objects, in no order."""
        with self._lock:
            return list(self._objects.values())

    def get(self, name: str) -> Json | None:
        """Return one object, None if it is not known."""
        with self._lock:
            return self._objects.get(name)

    def put(self, content: Json) -> None:
        """Keep an object that the server has just sent, unless a newer one is known, or the watch has seen it go."""
        with self._lock:
            if not _is_older(content, self._version):
                self._objects.setdefault(content["metadata"]["name"], content)

    def _run(self) -> None:
        while not self._closed.is_set():
            begun = time.monotonic()
            try:
                if not self._version:
                    self._list()
                self._follow()
                self._answered()
            except ApiError as error:
                self._fail(error)
            except Exception as error:  # the watch must go on, or the last state would count forever
                log.exception("an internal error in the watch of %s, which continues", self._place[0].plural)
                self._fail(ApiError(f"an internal error: {error!r}"))
            self._closed.wait(begun + _ROUND_S - time.monotonic())

    def _list(self) -> None:
        found = self._cluster.select(*self._place, labelSelector=self._selector)
        objects = {item["metadata"]["name"]: item for item in found.get("items") or []}
        version = str((found.get("metadata") or {}).get("resourceVersion") or "0")
        with self._lock:
            before, self._objects = self._objects, objects
            self._version = version
        self._answered()
        for name, content in before.items():  # another object may have the name by now
            if name not in objects or objects[name]["metadata"]["uid"] != content["metadata"]["uid"]:
                self._pass_on(content, True)
        for content in objects.values():
            self._pass_on(content, False)

    def _follow(self) -> None:
        self._watch = watch = self._cluster.watch(*self._place, self._selector, self._version)
        if self._closed.is_set():
            watch.stop()
        self._answered()
        for kind, content in watch:
            self._version = content["metadata"]["resourceVersion"]
            self._failures = 0
            if kind != "BOOKMARK":
                self._keep(content, kind == "DELETED")

    def _keep(self, content: Json, gone: bool) -> None:
        name = content["metadata"]["name"]
        with self._lock:
            if gone:
                self._objects.pop(name, None)
            else:
                self._objects[name] = content
        self._pass_on(content, gone)

    def _pass_on(self, content: Json, gone: bool) -> None:
        """Pass on a change. One object that makes no sense, as others may make it, does not keep the later ones out."""
        try:
            self._changed(content, gone)
        except ApiError:
            raise
        except Exception:  # else the watch would come to this object again and again
            log.exception("an internal error about %s of the %s", content["metadata"]["name"], self._place[0].plural)

    def _answered(self) -> None:
        self._down_since = None
        self.trouble = ""

    def _fail(self, error: ApiError) -> None:
        """Wait before the next try. A watch that broke off is resumed at once, the first time."""
        if self._closed.is_set():
            return
        self._failures += 1
        if error.status == 410 or not error.passing:
            self._version = ""
        if error.status == 410:
            log.debug("the watch of %s is too old; listing all again", self._place[0].plural)
            return
        if self._down_since is None:
            self._down_since = time.monotonic()
        self.refused = error.status != 0
        if str(error) != self.trouble:
            self.trouble = str(error)
            log.warning("cannot watch %s: %s", self._place[0].plural, error)
        first, longest = _BACKOFF_S
        pause = min(longest, first * 2 ** min(self._failures - 1, 10)) * random.uniform(0.5, 1.0)
        self._closed.wait(max(pause, min(error.wait_s, longest)))


def _is_older(content: Json, version: str) -> bool:
    """Return whether a watch that has come to this version has reported all of this state of an object."""
    try:
        return int(content["metadata"]["resourceVersion"]) < int(version)
    except (KeyError, TypeError, ValueError):  # servers may have versions that are no numbers
        return False
