"""What Azure answers instead of what was asked for."""

from __future__ import annotations

from typing import Any


class AzureRefusal(Exception):
    """By the shape of Resource Manager's errors; `content` is another one's."""

    def __init__(self, status: int, code: str, message: str, content: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.content = content or {"error": {"code": code, "message": message}}
