"""Schedulers that are known by name. docs/how-to/batch.md says what was tried against which."""

from __future__ import annotations

from dataclasses import replace

from nnilite_batch._scheduler import BatchCommands, BatchPatterns, Scheduler


def _up_to(line: str) -> str:
    """Return a pattern for all lines before one that begins so, and before another record of Grid Engine.

    It fits in one way only, so that no text, whatever a job or a login node has put into it, takes long to search.
    """
    return rf"(?s:(?:(?!^{line} |^hostname ).)*)"


_GRID_ENGINE = Scheduler(
    title="Grid Engine",
    commands=BatchCommands(
        options="[[-q {queue}]][[ -P {account}]][[ -pe {parallelEnvironment} {cpus}]]"
        "[[ -l {memoryResource}={memoryPerCpu}M]][[ -l {gpuResource}={gpus}]][[ -l h_rt={seconds}]]",
        submit="qsub -terse -N {name} -j y -o /dev/null -r n -S /bin/bash {options} script",
        try_out="qsub -w v -N {name} -S /bin/bash {options}",
        # The number comes before the owner. Any user may have a job of this name.
        find="qstat -j {name} 2>/dev/null | sed -n -e '/^job_number: */{s///' -e h -e '}' "
        """-e "/^owner: *$(id -un)\\$/{g" -e p -e '}' | tail -n 1""",
        status='qstat -xml -u "$(id -un)" && { qselect -qs u 2>/dev/null || :; }',
        reasons="qstat -j $(echo {ids} | tr ' ' ,)",
        history='for id in {ids}; do qacct -j "$id" 2>/dev/null; done; :',
        cancel="qdel {id}",
        check='qstat -help | head -n 1; qstat -u "$(id -un)" >/dev/null',
    ),
    patterns=BatchPatterns(
        job_id=r"^(\d+)|^Your job (\d+)",
        job=r"<job_list\b(?s:(?:(?!<job_list\b).)*?)</job_list>",
        id=r"<JB_job_number>(\d+)<",
        name=r"<JB_name>([^<]*)<",
        state=r"<state>([^<]*)<",
        host=r"<queue_name>[^<@]*@([^<]+)<",
        reasons=r"^job_number:\s+(?P<id>\d+)(?s:(?:(?!^job_number:).)*?)"
        r"^(?:error reason\s+\d+:\s+(?:[\d/]+ [\d:]+ \[[\d:]+\]: )?|scheduling info:\s+)(?P<reason>.+)$",
        past_job=rf"^hostname +(?P<host>\S+){_up_to('jobname')}^jobname +(?P<name>\S+){_up_to('jobnumber')}"
        rf"^jobnumber +(?P<id>\d+){_up_to('failed')}^failed +(?P<state>\d+)(?: *: *(?P<reason>.*?))? *$"
        rf"{_up_to('exit_status')}^exit_status +(?P<exit_code>\d+)",
        dead_node=r"^[^\s@<]+@(\S+)$",
        missing=r"do not exist|does not exist|not found",
        full=r"jobs are allowed|job rejected: [Oo]nly|max_u_jobs|resource quota",
        refused=r"unknown resource|unknown queue|does not exist|no suitable queues|invalid option|Unknown option"
        r"|not a valid|denied|cannot run",
    ),
    states={
        "ended": r"0 .*",
        "timedOut": r"37 .*",
        "canceled": r"100 .*",
        "lost": r".*E.*|\d+ .*",
        "waiting": r".*[wq].*",
        "running": r".*[rtsST].*|d.*",
    },
    values={"parallelEnvironment": "smp", "memoryResource": "h_vmem", "gpuResource": "gpu"},
    job_variable="JOB_ID",
)

_PBS_PRO = Scheduler(
    title="PBS",
    commands=BatchCommands(
        options="[[-q {queue}]][[ -A {account}]] -l select=1[[:ncpus={cpus}]][[:mem={memory}mb]][[:ngpus={gpus}]]"
        "[[ -l walltime={seconds}]]",
        submit="qsub -N {name} -j oe -o /dev/null -r n -S /bin/bash {options} script",
        find='qselect -x -u "$(id -un)" -N {name} | tail -n 1',
        status="qstat -x -f {ids}",
        cancel="qdel {id}",
        check="qstat --version && qstat -B >/dev/null",
    ),
    patterns=BatchPatterns(
        job_id=r"^(\d\S*)$",
        join=r"\n\t",
        job=r"^Job Id: (?s:.*?)(?=^Job Id: |\Z)",
        id=r"^Job Id: (\S+)",
        name=r"^ +Job_Name = (.+)$",
        state=r"^ +job_state = (\S+)",
        exit_code=r"^ +(?:Exit|exit)_status = (-?\d+)",
        host=r"^ +exec_host = ([^/:+\s]+)",
        reason=r"^ +comment = (.+)$",
        missing=r"Unknown Job Id|Job has finished|Request invalid for state of job",
        full=r"would exceed|exceeds? .*limit|Maximum number of jobs",
        refused=r"Unknown queue|Unauthorized|Illegal attribute|Unknown resource|Invalid account|invalid option|usage:"
        r"|Job exceeds queue|Undefined",
    ),
    states={
        "timedOut": r"[FX] -29",
        "killed": r"[FX] -2[4-8]",
        "canceled": r"[FX] (265|271)",
        "lost": r"[FX] -\d+",
        "ended": r"[FX].*",
        "waiting": r"[QHWTM]",
        "running": r"[RESUB].*",
    },
    job_variable="PBS_JOBID",
)
_TORQUE = replace(
    _PBS_PRO,
    title="Torque",
    commands=replace(
        _PBS_PRO.commands,
        options="[[-q {queue}]][[ -A {account}]] -l nodes=1[[:ppn={cpus}]][[:gpus={gpus}]][[ -l mem={memory}mb]]"
        "[[ -l walltime={seconds}]]",
        find='qselect -u "$(id -un)" -N {name} | tail -n 1',
        status="qstat -f {ids}",
        check="qstat --version 2>&1 && qstat -B >/dev/null",
    ),
    states={
        "timedOut": r"C -11",
        "killed": r"C -10",
        "canceled": r"C (265|271)",
        "lost": r"C -\d+",
        "ended": r"C.*",
        "waiting": r"[QHWT]",
        "running": r"[RES].*",
    },
)
_LSF_FIELDS = "jobid job_name exec_host exit_code stat exit_reason pend_reason"
_LSF = Scheduler(
    title="LSF",
    commands=BatchCommands(
        options=r"[[-q {queue}]][[ -P {account}]][[ -n {cpus} -R span\[hosts=1\]]]"
        r"[[ -M {memory}MB -R rusage\[mem={memory}MB\]]][[ -gpu num={gpus}]][[ -W {minutes}]]",
        # At MAX_PEND_JOBS, bsub would try for ever, and trials would not say why they wait.
        submit="LSB_NTRIES=1 bsub -J {name} -o /dev/null -rn {options} <script",
        find="bjobs -a -noheader -o jobid -J {name} 2>/dev/null | tail -n 1",
        status=f"bjobs -a -noheader -o \"{_LSF_FIELDS} delimiter='|'\" {{ids}}",
        cancel="bkill {id}",
        check="lsid",
    ),
    patterns=BatchPatterns(
        job_id=r"^Job <(\d+)>",
        job=r"^(?P<id>\d+)\|(?P<name>[^|]*)\|(?:\d+\*)?(?P<host>[^|:]*)[^|]*\|(?P<exit_code>\d*)-?"
        r"\|(?P<state>[A-Z]+\|[^|:]*)[^|]*\|(?P<reason>.*)$",
        missing=r"is not found|No matching job|already finished|No unfinished job|No job found",
        full=r"[Pp]ending job threshold|job limit|too many jobs",
        refused=r"No such queue|Bad resource requirement|Illegal option|no such project|User cannot use the queue"
        r"|Bad argument|Bad .*specification|Cannot exceed",
    ),
    states={
        "timedOut": r"EXIT\|TERM_(RUNLIMIT|DEADLINE|CPULIMIT|PROCESSLIMIT).*",
        "killed": r"EXIT\|TERM_(MEMLIMIT|SWAP|THREADLIMIT).*",
        "canceled": r"EXIT\|TERM_(OWNER|FORCE_OWNER|ADMIN|FORCE_ADMIN|BUCKET_KILL).*",
        "lost": r"EXIT\|TERM_(PREEMPT|LOAD|WINDOW|ZOMBIE|REMOVE_HUNG_JOB|UNKNOWN|CWD_NOTEXIST|REQUEUE\w*).*|ZOMBI.*",
        "ended": r"(DONE|EXIT).*",
        "waiting": r"(PEND|PSUSP|WAIT|PROV).*",
        "running": r"(RUN|USUSP|SSUSP|UNKWN).*",
    },
    job_variable="LSB_JOBID",
)
_CONDOR_STATES = ("idle", "running", "removed", "completed", "held", "transferring output", "suspended")
_CONDOR_FIELDS = "-af:jt JobBatchName RemoteHost ExitCode JobStatus HoldReasonCode HoldReason"
_HTCONDOR = Scheduler(
    title="HTCondor",
    commands=BatchCommands(
        options="[[accounting_group={account}]][[ request_cpus={cpus}]][[ request_memory={memory}]]"
        "[[ request_gpus={gpus}]][[ allowed_job_duration={seconds}]]",
        submit=r"printf '%s\n' universe=vanilla executable=/bin/bash transfer_executable=false arguments=script"
        " should_transfer_files=NO log=condor.log"
        " 'environment=\"NNILITE_BATCH_JOB=$(ClusterId).$(ProcId)\"' {options} queue"
        " | condor_submit -terse -batch-name {name}",
        find="condor_q -constraint JobBatchName==\\\"{name}\\\" -af:j JobStatus | cut -d ' ' -f 1 | tail -n 1",
        status=f"condor_q {{ids}} {_CONDOR_FIELDS}",
        history=f'for id in {{ids}}; do condor_history "$id" -limit 1 {_CONDOR_FIELDS}; done',
        cancel="condor_rm {id}",
        check="condor_version && condor_q -totals >/dev/null",
    ),
    patterns=BatchPatterns(
        job_id=r"^(\d+\.\d+)",
        job=r"^(?P<id>\d+\.\d+)\t(?P<name>[^\t]*)\t(?:[^\t@]*@)?(?P<host>[^\t]*)\t(?P<exit_code>[^\t]*)"
        r"\t(?P<state>\d+\t[^\t]*)\t(?P<reason>.*)$",
        missing=r"not found|Couldn't find",
        full=r"MAX_JOBS|exceed",
        refused=r"ERROR: .*(on Line|invalid|Invalid|Parse|not a valid)|Failed to parse|No such file",
    ),
    states={
        "killed": r"5\t34.*",
        "timedOut": r"5\t(46|47).*",
        "waiting": r"1\t.*|5\t(1|15|16)( .*)?",
        "lost": r"5\t.*",
        "running": r"[267]\t.*",
        "canceled": r"3\t.*",
        "ended": r"4\t.*",
    },
    job_variable="NNILITE_BATCH_JOB",
    numbers={str(number): state for number, state in enumerate(_CONDOR_STATES, 1)},
)

PRESETS = {"gridengine": _GRID_ENGINE, "pbs": _PBS_PRO, "torque": _TORQUE, "lsf": _LSF, "htcondor": _HTCONDOR}
