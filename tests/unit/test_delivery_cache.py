"""What jobs are given is made once for each way of reporting."""

from __future__ import annotations

import asyncio

import pytest

from nnilite.errors import NoCapacity
from nnilite.service import Job
from nnilite.services.bootstrap import Supply
from nnilite.services.delivery import Delivery, DeliveryCache, keeper_spec


class Making:
    """Makes deliveries, and finds the way back at the second try."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []
        self.is_open = False

    def deliver(self, report: str, callback: str) -> Delivery:
        self.made.append((report, callback))
        return Delivery(Supply(file="keeper"), "0", None, "0", callback)

    async def job_callback_url(self) -> str:
        if not self.is_open:
            self.is_open = True
            raise NoCapacity("not yet")
        return "http://manager"


def _job(report: str | None) -> Job:
    return Job("j", "e", "t", 0, 0, {"report": report})


def test_a_delivery_is_made_once_for_each_way_of_reporting() -> None:
    making = Making()
    deliveries = DeliveryCache(making.deliver, making.job_callback_url)

    async def ask() -> None:
        await deliveries.prepare(_job("stdout"))
        with pytest.raises(NoCapacity):
            await deliveries.prepare(_job(None))
        for _ in range(2):
            assert (await deliveries.prepare(_job(None))).callback == "http://manager"
        deliveries.forget()
        await deliveries.prepare(_job("stdout"))

    asyncio.run(ask())
    assert making.made == [("stdout", ""), ("rest", "http://manager"), ("stdout", "")]


def test_nodes_that_report_by_log_have_a_secret_of_their_own_in_place_of_the_token() -> None:
    def spec(token: str) -> dict[str, object]:
        job = Job("j", "e", "t", 0, 0, {"report": "stdout", "token": token, "distributed": {"nodes": 2}})
        return keeper_spec(job, "/work", "")

    first, other = spec("first"), spec("other")
    assert first["token"] == ""
    assert "first" not in str(first)
    assert first["distributed"] != other["distributed"], "whoever knows the name of a job knows its secret"
