"""HTTP to the REST interface of a platform, for services that have no better client. Needs the extra `http`.

    class MyConfig(HttpConfig):
        host: str
        token: Secret | None = None

    http = PlatformHttp("OpenPAI", config.host, config, Credential(config.token or "", renew=self._log_in))
    jobs = (await http.get("/api/v2/jobs", query={"username": user})).json()

It uses `requests` in threads of its own, and not tornado's AsyncHTTPClient, which is here anyway: machines on which
managers run often reach a platform only through the proxy that the environment names (HTTPS_PROXY, NO_PROXY), which
tornado's own client cannot use; and a connection that is kept saves a TLS handshake with each call. What requests does
not do is done here: a limit for the whole time of a call, a limit for the size of an answer, and no credentials for any
host but the platform (no .netrc, no cookies, redirects only to the platform's own address).

Each call has an end: `timeout_s` for one try, and `patience_s` for all tries together. Calls that may be repeated
safely (GET, HEAD, PUT, DELETE, and others with `repeat=True`) are tried again, with growing pauses, where the platform
cannot be reached or answers 429, 500, 502, 503 or 504; all other calls only where the platform has certainly done
nothing yet: it could not be connected to, or it said 429. `Retry-After` is heeded, by later calls too. After a 401
the credential is renewed, once, and one renewal serves all calls that wait for it.

What a call may raise. Each error has `status`, 0 where there was no answer, and `reply`, the platform's own words:

| error | kind | means |
| --- | --- | --- |
| `Outage` | ServiceError | no answer, 5xx, or an answer that makes no sense: nothing is known of the jobs, so UNKNOWN |
| `Throttled` | ServiceError | 429; `retry_after_s` |
| `Untrusted` | ServiceError | the platform's certificate is not one that this machine trusts |
| `AccessRefused` | ServiceError | 401 or 403: a login that has expired says nothing of the jobs that run |
| `Missing` | NotFound | 404 or 410 |
| `Contradiction` | Conflict | 409 or 412, mostly because there is something of this name already |
| `CallRefused` | JobRefused, a ConfigError | 400, 422 and others: the same request can never work |
| `RequestTooLarge` | ConfigError | 413 |

A service whose platform has a library of its own, which blocks, calls it by `LibraryCalls`, with the same errors.

When a service opens, a wrong address, login or certificate can never work either: see `as_config_error`.

client         the calls to a REST interface
library_calls  the calls of a platform's own library
_abortable     connections that end with the time of a try
_deadlines     ends what takes too long, whatever it is
_patience      how long they are tried, and the pause that a platform asks for
_problems      their errors, and how they are worded
"""

from __future__ import annotations

from nnilite._logging.redaction import hide, redact
from nnilite._loop_waits import in_thread
from nnilite.platform_http._abortable import Try, make_abortable
from nnilite.platform_http._deadlines import limited_by
from nnilite.platform_http._problems import (
    AccessRefused,
    CallRefused,
    Contradiction,
    Missing,
    Outage,
    Problem,
    RequestTooLarge,
    Throttled,
    Untrusted,
    chain,
    kind_and_cure,
    retry_after_s,
)
from nnilite.platform_http.client import Credential, HttpAnswer, HttpConfig, HttpRequest, PlatformHttp, as_config_error
from nnilite.platform_http.library_calls import LibraryCalls, need_module

__all__ = [
    "AccessRefused",
    "CallRefused",
    "Contradiction",
    "Credential",
    "HttpAnswer",
    "HttpConfig",
    "HttpRequest",
    "LibraryCalls",
    "Missing",
    "Outage",
    "PlatformHttp",
    "Problem",
    "RequestTooLarge",
    "Throttled",
    "Try",
    "Untrusted",
    "as_config_error",
    "chain",
    "hide",
    "in_thread",
    "kind_and_cure",
    "limited_by",
    "make_abortable",
    "make_endable",
    "need_module",
    "redact",
    "retry_after_s",
]

make_endable = make_abortable
"""The old name, which goes with version 0.2."""
