"""Read the log of one job, piece by piece.

Azure writes what the first process prints to a blob, and a run's details have a URL for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from nnilite.platform_http import AccessRefused, Missing
from nnilite.services.job_log import JobLog
from nnilite_aml._workspace import AmlWorkspace, RunFacts

# As Azure's own library chooses the log that it shows: that of the first process, where there are several.
_FIRST = re.compile(r"user_logs/std_log\D*0*\.txt")
_PARAMETER_SERVER = "_ps"
_URL_LASTS_S = 600.0


class AmlLog(JobLog):
    """The log of the first process of a job, whose name on Azure is `name`."""

    def __init__(self, workspace: AmlWorkspace, name: str) -> None:
        super().__init__()
        self._workspace = workspace
        self._name = name
        self._url = ""
        self._url_since = float("-inf")

    def locate(self, facts: RunFacts) -> None:
        """Find the log."""
        self._url, self._url_since = _choose_first_log(facts.logs), time.monotonic()

    async def read_on(self) -> None:
        if not self._url or time.monotonic() - self._url_since > _URL_LASTS_S:
            self.locate(await self._workspace.facts(self._name))
        while self._url:
            try:
                piece = await self._workspace.read(self._url, self.position)
            except Missing:  # nothing is there yet, or nothing new
                return
            except AccessRefused:
                self._url = ""  # The URL has expired; the next call gets another.
                raise
            if not piece:
                return
            self.add(piece)


def _choose_first_log(logs: Mapping[str, str]) -> str:
    names = sorted(name for name in logs if _FIRST.fullmatch(name) and _PARAMETER_SERVER not in name)
    return logs[names[0]] if names else ""
