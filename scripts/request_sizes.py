"""Measure how large the first request for a trial is on the platforms that limit it.

`scripts/reference_pages.py` writes the table. The trial has neither parameters nor code, so what is left of a limit is
for both, and for the fields of the section.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nnilite import _keeper
from nnilite.service import Job
from nnilite.services.delivery import Delivery, deliver
from nnilite.units import SecretText

_JOB = Job("nni-abcdefgh-sample-0", "abcdefgh", "sample", 0, 0, {"report": "rest", "token": "0" * 43})
_ROUNDED_TO = 1000


@dataclass(frozen=True)
class RequestSize:
    """The size of one platform's first request, in bytes."""

    platform: str
    what: str
    size: int
    limit: int
    source: str


_PAGE = """\
# How large a request may be

Some platforms take keeper, parameters and code within the request for a trial, and limit the size of that request.
This page shows what is left of the limit, in thousands of bytes. Code counts compressed and as text, which makes it
larger by a third. nnilite refuses a request that is too large before it is sent, at the start of the experiment if no
trial could fit.

{}
With a storage that manager and trials mount, neither keeper nor code travels in the request. With `codeFrom: manager`
the code does not.
"""


def page() -> str:
    """Return the page. It has kB, as each change of the keeper would change bytes."""
    rows = "".join(
        f"| `{one.platform}` | {one.what} | {_kb(one.size)} | {_kb(one.limit)} | {_kb(one.limit - one.size)} | "
        f"{one.source} |\n"
        for one in sizes()
    )
    table = (
        "| platform | the request | its size | the limit | left for parameters and code | who states the limit |\n"
        f"| --- | --- | --- | --- | --- | --- |\n{rows}"
    )
    return _PAGE.format(table)


def sizes() -> Iterator[RequestSize]:
    """Measure each platform."""
    with tempfile.TemporaryDirectory() as folder:
        keeper = _keeper.build(Path(folder) / "keeper.pyz")
        package = SimpleNamespace(hash="0" * 64, archive=keeper)
        context: Any = SimpleNamespace(keeper=keeper, package=lambda: package)
        delivery = deliver(context, "manager", "rest", None, "https://manager.example.org:8080")
    yield _dlc(delivery)
    yield _openpai(delivery)
    yield _dlts(delivery)


def _dlc(delivery: Delivery) -> RequestSize:
    from nnilite_dlc import DlcConfig
    from nnilite_dlc._job_fields import LARGEST_BYTES, own_variables, request

    key = {"access_key_id": "id", "access_key_secret": SecretText("secret")}
    config = DlcConfig(image="registry.example.org/image:1", ecs_spec="ecs.g6.large", region="cn-hangzhou", **key)
    size = len(json.dumps(request(_JOB, config, own_variables(_JOB, config, delivery))))
    return RequestSize("dlc", "`CreateJob`", size, LARGEST_BYTES, "Alibaba's reference of `CreateJob`")


def _openpai(delivery: Delivery) -> RequestSize:
    from nnilite_openpai import OpenPaiConfig
    from nnilite_openpai._convert import LARGEST_BODY, encoded, own_secrets, submission

    config = OpenPaiConfig(host="https://pai.example.org", username="user", token=SecretText("token"))
    size = len(encoded(submission(_JOB, config, own_secrets(_JOB, config, delivery))))
    return RequestSize("openpai", "the job in YAML", size, LARGEST_BODY, "the REST server's source")


def _dlts(delivery: Delivery) -> RequestSize:
    from nnilite_dlts import DltsConfig
    from nnilite_dlts._handover import LARGEST_BYTES, request

    login = {"email": "user@example.org", "password": SecretText("key"), "team": "team", "cluster": "cluster"}
    config = DltsConfig(dashboard="https://dlts.example.org", image="image:1", **login)
    size = len(json.dumps(request(_JOB, config, delivery, "P100")))
    return RequestSize("dlts", "the job in JSON", size, LARGEST_BYTES, "the dashboard's source")


def _kb(size: int) -> str:
    return f"{size / _ROUNDED_TO:,.0f} kB"


if __name__ == "__main__":
    print(page())
