"""Find a cluster and who we are there: the settings of the Python client, which are loaded again when they expire.

The client reads a kubeconfig, and the file of a token that it names, once. Others renew these files meanwhile, as does
who signs in again, so a server that no longer accepts us (401) has us look there.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Any

import yaml
from kubernetes import config as kubeconfig
from kubernetes.client.configuration import Configuration
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION, KubeConfigMerger

from nnilite.errors import ConfigError, Place

log = logging.getLogger(__name__)

_PLACE = Place(field="kubeconfig")
_LOAD_S = 60.0  # time limit for a program that signs in
_UNREADABLE = (ConfigException, OSError, TypeError, ValueError, yaml.YAMLError)
_PAUSE_S = 10.0  # before credentials that did not help are loaded again


class Credentials:
    """May be used by several threads. Raises, when it is made: ConfigError."""

    def __init__(self, file: str | None, context: str | None) -> None:
        self._file = file
        self._context = context
        self._inside = "KUBERNETES_SERVICE_HOST" in os.environ and not (file or os.environ.get("KUBECONFIG"))
        self._lock = threading.Lock()
        self._tried_at = -_PAUSE_S
        self.configuration = self._load()

    @property
    def source(self) -> str:
        """Return where they come from, for messages."""
        if self._inside:
            return "the service account of this pod"
        return self._file or KUBE_CONFIG_DEFAULT_LOCATION

    def headers(self) -> dict[str, str]:
        """Return the headers of a request, which are made each time: tokens of plugins and service accounts expire."""
        settings: Mapping[str, Any] = self.configuration.auth_settings()
        headers = {str(entry["key"]): str(entry["value"]) for entry in settings.values() if entry.get("value")}
        if self.configuration.username and "authorization" not in {name.lower() for name in headers}:
            headers["authorization"] = str(self.configuration.get_basic_auth_token())
        return headers

    def renew(self, refused: Configuration) -> bool:
        """Load the credentials again, unless another thread has. Return whether they may be new ones."""
        with self._lock:
            if self.configuration is not refused:
                return True
            if time.monotonic() - self._tried_at < _PAUSE_S:
                return False
            try:
                self.configuration = self._load()
            except ConfigError as error:
                log.warning("the credentials of %s cannot be loaded again: %s", self.source, error)
                return False
            finally:
                self._tried_at = time.monotonic()
            return True

    def _load(self) -> Configuration:
        """Read the configuration of the cluster. Raises: ConfigError."""
        if not self._inside:
            self._check_program()
        loaded: Future[Configuration] = Future()
        # Not a thread that the end of this process would wait for.
        threading.Thread(target=self._fill, args=(loaded,), name="sign-in", daemon=True).start()
        try:
            return loaded.result(_LOAD_S)
        except NotInTime:
            raise ConfigError(
                f"signing in as {self.source} says has not ended within {_LOAD_S:g} s; {_CURE}", _PLACE
            ) from None
        except (*_UNREADABLE, CancelledError) as error:
            hint = "set kubeconfig, or KUBECONFIG in the environment"
            raise ConfigError(f"no cluster can be found: {error}; {hint}", _PLACE) from error

    def _fill(self, loaded: Future[Configuration]) -> None:
        configuration = Configuration()
        try:
            if self._inside:
                kubeconfig.load_incluster_config(client_configuration=configuration)
            else:
                kubeconfig.load_kube_config(self._file, self._context, configuration, persist_config=False)
        except _UNREADABLE as error:
            loaded.set_exception(error)
        else:
            loaded.set_result(configuration)
        finally:
            loaded.cancel()  # only has an effect after a fault, which this thread logs

    def _check_program(self) -> None:
        """Check that no program that signs in has to ask on a terminal. Raises: ConfigError."""
        program = _read_program(self._file or KUBE_CONFIG_DEFAULT_LOCATION, self._context)
        if program.get("interactiveMode") == "Always":
            raise ConfigError(
                f"{self.source} signs in by {program.get('command')}, which asks on a terminal (interactiveMode: "
                f"Always), and a manager has none; {_CURE}",
                _PLACE,
            )


_CURE = "name a kubeconfig with a token, a certificate, or a program that signs in without questions"


def _read_program(file: str, context: str | None) -> Mapping[str, Any]:
    """Return the section `exec` of the user of a context; {} if there is none, or the file makes no sense."""
    try:
        whole = KubeConfigMerger(file).config
        chosen = whole["contexts"].get_with_name(context or whole["current-context"])["context"]
        user = whole["users"].get_with_name(chosen["user"])["user"]
        return dict(user["exec"].value)
    except (*_UNREADABLE, AttributeError):
        return {}
