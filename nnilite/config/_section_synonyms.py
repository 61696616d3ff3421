"""What people write in the section of a training service for what has another name there, or another place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_PYTHONS = ("venv", "conda", "condaenv", "virtualenv", "interpreter", "python", "pythonenv")
_FIELDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cpuspertask", "ncpus", "numcpus", "cpu", "cpus", "cores"), ("cpus", "cpuNumber", "cpuNum")),
    **dict.fromkeys(("mem", "memorymb", "ram"), ("memory", "memorySize", "memoryMb")),
    **dict.fromkeys(("walltime", "timelimit", "maxtime"), ("timeLimit",)),
    **dict.fromkeys(("queue", "partitions", "queuename"), ("partition", "queue")),
    **dict.fromkeys(("extraargs", "additionaloptions", "sbatchoptions", "sbatchargs"), ("sbatchLines",)),
    **dict.fromkeys(("hosts", "machines", "hostlist", "servers", "hostnames"), ("machineList",)),
    **dict.fromkeys(("hostname", "server", "host"), ("host", "machineList", "address")),
    **dict.fromkeys(_PYTHONS, ("pythonPath",)),
    **dict.fromkeys(("image", "dockerimage", "containerimage", "sif"), ("dockerImage", "image", "container")),
}
"""Fields with that meaning, some platforms' own; the first one that a section has is the answer."""
_PYTHON = "write the path of its Python in trialCommand, as in trialCommand: /path/to/venv/bin/python3 trial.py"
_OF_OTHER_SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "trackers": {
        "name": ("type", "kind", "tracker", "backend", "platform", "service"),
        "uri": ("url", "trackinguri", "trackingserver", "server", "host", "address"),
        "directory": ("dir", "logdir", "savedir", "path", "folder"),
        "project": ("experiment", "experimentname", "projectname"),
    },
    "webhooks": {"url": ("uri", "address", "endpoint"), "events": ("on", "event", "when")},
    "sharedStorage": {"storageType": ("type", "kind", "platform", "name")},
}
"""Fields of sections that are not of a training service, each with what people call it."""
_SENTENCES = {
    **dict.fromkeys(("concurrency", "maxconcurrent", "parallelism"), "write trialConcurrency at the top level"),
    **dict.fromkeys(("maxtrials", "trials", "ntrials"), "write maxTrialNumber at the top level"),
    **dict.fromkeys(
        ("workingdirectory", "workdir", "workingdir", "chdir", "cwd"), "write trialCodeDirectory at the top level"
    ),
    **dict.fromkeys(_PYTHONS, _PYTHON),
    **dict.fromkeys(("jobname", "name"), "jobs are named by nnilite; write experimentName at the top level"),
    **dict.fromkeys(
        ("output", "error", "logfile"), "output is kept for each trial: `nnictl trial show ID` has its files"
    ),
}
_TOP_LEVEL = frozenset(
    """
    advisor assessor callback checkpoint codeLimits constraints debug distributed experimentName experimentType
    experimentWorkingDirectory firstTrials gracePeriod idleTimeout logLevel maxCost maxExperimentDuration
    maxFailedTrials maxOutputSize maxTrialDuration maxTrialNumber maxTrialRetries moveAfter nniManagerIp placement
    recordProvenance requireToken resultConstraints retryFailed retryOn searchFrom searchSpace searchSpaceFile
    sharedStorage stopAtValue stopOnSameError trackers trainingService trialCodeDirectory trialCommand
    trialConcurrency trialGpuNumber tuner tunerGpuIndices tunerTimeout useAnnotation webhooks workerSilence
    """.lower().split()
)
"""The fields of an experiment's config itself. A test holds them against its class, which is made of these modules."""
_GPUS = ("gpus", "numgpus", "ngpus", "gpucount")
_WHICH_GPUS = ("gpus", "gpuids", "cudavisibledevices", "devices")


def answer_in_section(path: Sequence[str | int], word: str, names: Iterable[str]) -> str:
    """Return what to write in place of a field that a section does not have; "" if unknown.

    `word` is its name in lower case without underscores, `names` are the fields of the section at `path`.

    >>> answer_in_section(("trainingService",), "cpuspertask", ["partition", "cpus"])
    'did you mean cpus?'
    """
    if path[:1] != ("trainingService",):
        synonyms = _OF_OTHER_SECTIONS.get(str(path[0]), {}) if path else {}
        meant = next((name for name, others in synonyms.items() if word in others), "")
        return f"did you mean {meant}?" if meant else ""
    known = set(names)
    gpus = ["trialGpuNumber for their number"] if word in _GPUS else []
    gpus += ["gpuIndices for those that trials may use"] if word in _WHICH_GPUS and "gpuIndices" in known else []
    if gpus:
        return f"write {' or '.join(gpus)}"
    found = next((name for name in _FIELDS.get(word, ()) if name in known), "")
    if not found and word in _PYTHONS and "machineList" in known:
        return "write pythonPath in machineList, at each machine"
    return f"did you mean {found}?" if found else _SENTENCES.get(word, "")


def is_top_level(word: str) -> bool:
    """Return whether a name, in lower case without underscores, is a field of an experiment's config itself.

    >>> is_top_level("graceperiod"), is_top_level("machinelist")
    (True, False)
    """
    return word in _TOP_LEVEL
