"""Who may do what: an administrator everything, a service account what Roles of its namespace say."""

from __future__ import annotations

import secrets
from typing import Any

from platforms.kube.client import BINDINGS, ROLES
from platforms.kube.store import Store


class Rights:
    """Tokens, and the accounts that they were made for."""

    def __init__(self, store: Store) -> None:
        self.admin = secrets.token_hex(16)
        self._store = store
        self._accounts: dict[str, tuple[str, str]] = {}

    def new_token(self, namespace: str, account: str) -> str:
        token = secrets.token_hex(16)
        self._accounts[token] = (namespace, account)
        return token

    def revoke(self, token: str) -> None:
        """Let nobody in by this token any more."""
        del self._accounts[token]

    def knows(self, token: str) -> bool:
        return token == self.admin or token in self._accounts

    def allows(self, token: str, namespace: str, verb: str, group: str, thing: str) -> bool:
        """`thing`: the plural, or plural/subresource."""
        if token == self.admin:
            return True
        account = self._accounts[token]
        roles = {role["metadata"]["name"]: role for role in self._store.all(ROLES, namespace)}
        mine = [b["roleRef"]["name"] for b in self._store.all(BINDINGS, namespace) if account in _subjects(b)]
        rules = [rule for name in mine if name in roles for rule in roles[name]["rules"]]
        return any(
            verb in rule["verbs"] and group in rule["apiGroups"] and thing in rule["resources"] for rule in rules
        )


def _subjects(binding: Any) -> set[tuple[str, str]]:
    return {(entry.get("namespace", ""), entry["name"]) for entry in binding.get("subjects") or []}
