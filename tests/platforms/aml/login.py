"""Microsoft Entra: the tokens of a service principal."""

from __future__ import annotations

import base64
import itertools
import json
import time
from typing import Any
from urllib.parse import parse_qs

from platforms.aml.refusal import AzureRefusal

TENANT = "72f988bf-0000-0000-0000-000000000001"
CLIENT = "5ec7e7a5-0000-0000-0000-000000000002"
SECRET = "the secret; of a service principal"
_HOST = "https://login.microsoftonline.com"


class Entra:
    """`revoke` makes all tokens worthless that were given so far."""

    def __init__(self) -> None:
        self.secret = SECRET
        self.logins = 0
        self._numbers = itertools.count(1)
        self._good: set[str] = set()

    def answer(self, method: str, path: str, body: bytes) -> Any:
        if path == "/common/discovery/instance":
            return {
                "tenant_discovery_endpoint": f"{_HOST}/{TENANT}/v2.0/.well-known/openid-configuration",
                "metadata": [],
            }
        if path.endswith("/.well-known/openid-configuration"):
            return {
                "issuer": f"{_HOST}/{TENANT}/v2.0",
                "authorization_endpoint": f"{_HOST}/{TENANT}/oauth2/v2.0/authorize",
                "token_endpoint": f"{_HOST}/{TENANT}/oauth2/v2.0/token",
            }
        if method == "POST" and path == f"/{TENANT}/oauth2/v2.0/token":
            return self._token({name: values[0] for name, values in parse_qs(body.decode()).items()})
        raise AzureRefusal(400, "", "", {"error": "invalid_tenant", "error_description": f"AADSTS90002: no {path}"})

    def _token(self, given: dict[str, str]) -> Any:
        if given.get("client_id") != CLIENT or given.get("client_secret") != self.secret:
            told = "AADSTS7000215: Invalid client secret provided. Trace ID: 1 Correlation ID: 2"
            raise AzureRefusal(401, "", "", {"error": "invalid_client", "error_description": told})
        self.logins += 1
        claims = {
            "oid": "0",
            "tid": TENANT,
            "aud": given["scope"],
            "exp": int(time.time()) + 3600,
            "n": next(self._numbers),
        }
        parts = [{"alg": "none", "typ": "JWT"}, claims, {}]
        token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        self._good.add(token)
        return {"token_type": "Bearer", "expires_in": 3599, "access_token": token}

    def admit(self, token: str) -> None:
        """Raises: AzureRefusal."""
        if token not in self._good:
            raise AzureRefusal(
                401, "ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than now."
            )

    def revoke(self) -> None:
        self._good.clear()
