"""The notices of an experiment, where they cannot be found."""

from __future__ import annotations

from typing import Any

import pytest

from nnilite._views.latest_notices import LatestNotices
from nnilite.errors import StoreError


class Reader:
    """Answers with what it is given, in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def ask(self, *question: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_mistake_of_ours_keeps_the_notices_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    reader: Any = Reader(["one"], ValueError("no median"), ValueError("no median"), StoreError("busy"), ["two"])
    notices = LatestNotices(reader)
    assert [await notices.find(["default"], False) for _ in range(5)] == [["one"], ["one"], ["one"], ["one"], ["two"]]
    assert [record.message for record in caplog.records] == [
        "the notices of the experiment cannot be found; those known before stay"
    ]
    assert "no median" in caplog.text
