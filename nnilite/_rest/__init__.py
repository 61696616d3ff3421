"""The REST interface: experiment API, trial callbacks, NNI-compatible API, live stream and the user interface's files.

    request -> Gate (Host, Origin, token) -> handler -> Backend (the manager) -> wire -> answer

One table, `routes.ROUTES`, says what there is. `wire` alone knows the JSON, `backend.Backend` is all that is known of
the manager. A handler holds no state; what the manager refuses, it refuses by raising an error of `nnilite.errors`.
"""

from nnilite._rest.application import RestApplication, RestServer, listen, make_application, sign_in_path
from nnilite._rest.backend import Backend
from nnilite._rest.changes import Changes, Subscription
from nnilite._rest.log_filter import SecretFilter
from nnilite._rest.options import Options

__all__ = [
    "Backend",
    "Changes",
    "Options",
    "RestApplication",
    "RestServer",
    "SecretFilter",
    "Subscription",
    "listen",
    "make_application",
    "sign_in_path",
]
