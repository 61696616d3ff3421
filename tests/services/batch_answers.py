"""What schedulers print. Grid Engine's was recorded; the others are written after their published manuals."""

from __future__ import annotations

# Recorded from Grid Engine 8.1.9 of Debian 12: qstat -xml, qselect -qs u, qstat -j, qacct -j.
GRID_ENGINE = """<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <job_list state="running">
      <JB_job_number>13</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>nni-abc-def-2</JB_name>
      <JB_owner>root</JB_owner>
      <state>r</state>
      <JAT_start_time>2026-11-25T17:05:45</JAT_start_time>
      <queue_name>all.q@n1</queue_name>
      <slots>1</slots>
    </job_list>
    <job_list state="running">
      <JB_job_number>15</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>nni-abc-def-7</JB_name>
      <JB_owner>root</JB_owner>
      <state>dr</state>
      <JAT_start_time>2026-11-25T17:05:45</JAT_start_time>
      <queue_name>all.q@n2</queue_name>
      <slots>1</slots>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>14</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>nni-abc-def-3</JB_name>
      <JB_owner>root</JB_owner>
      <state>qw</state>
      <JB_submission_time>2026-11-25T17:05:37</JB_submission_time>
      <queue_name></queue_name>
      <slots>1</slots>
    </job_list>
    <job_list state="pending">
      <JB_job_number>21</JB_job_number>
      <JAT_prio>0.25000</JAT_prio>
      <JB_name>nni-abc-def-6</JB_name>
      <JB_owner>root</JB_owner>
      <state>Eqw</state>
      <JB_submission_time>2026-11-25T17:05:40</JB_submission_time>
      <queue_name></queue_name>
      <slots>1</slots>
    </job_list>
    <job_list state="pending">
      <JB_job_number>20</JB_job_number>
      <JAT_prio>0.00000</JAT_prio>
      <JB_name>nni-abc-def-5</JB_name>
      <JB_owner>root</JB_owner>
      <state>hqw</state>
      <JB_submission_time>2026-11-25T17:05:40</JB_submission_time>
      <queue_name></queue_name>
      <slots>2</slots>
    </job_list>
  </job_info>
</job_info>
all.q@n2
"""
GRID_ENGINE_REASONS = """==============================================================
job_number:                 14
exec_file:                  job_scripts/14
job_name:                   nni-abc-def-3
scheduling info:            (-l gpu=9) cannot run at host "n1" because it offers only hc:gpu=2.000000
                            cannot run in queue "all.q"
==============================================================
job_number:                 20
exec_file:                  job_scripts/20
scheduling info:            Job is in hold state
==============================================================
job_number:                 21
exec_file:                  job_scripts/21
error reason          1:      11/25/2026 17:05:41 [0:884]: error: can't chdir to /no/such: No such file or directory
scheduling info:            Job is in error state
"""
GRID_ENGINE_HISTORY = """==============================================================
qname        all.q               
hostname     n1                  
group        root                
owner        root                
project      NONE                
department   defaultdepartment   
jobname      nni-abc-def-1       
jobnumber    12                  
taskid       undefined
account      sge                 
priority     0                   
qsub_time    Wed Nov 25 17:05:36 2026
start_time   Wed Nov 25 17:05:37 2026
end_time     Wed Nov 25 17:05:44 2026
granted_pe   NONE                
slots        1                   
failed       0    
exit_status  5                   
ru_wallclock 7s
category     -l gpu=2
==============================================================
qname        all.q               
hostname     n1                  
owner        root                
jobname      nni-abc-def-8       
jobnumber    25                  
failed       100 : assumedly after job
exit_status  137                 
==============================================================
qname        all.q               
hostname     n1                  
jobname      nni-abc-def-9       
jobnumber    26                  
failed       37  : qmaster enforced h_rt, h_cpu, or h_vmem limit
exit_status  137                 
"""  # noqa: W291

# After "PBS Professional 2021.1 Reference Guide", qstat, "Long job status display", and section 8.1, "Job States".
PBS = """Job Id: 101.pbs01
    Job_Name = nni-abc-def-0
    Job_Owner = me@login01
    job_state = R
    queue = workq
    server = pbs01
    exec_host = n1/0*4
    exec_vnode = (n1:ncpus=4:mem=2097152kb)
    Resource_List.select = 1:ncpus=4:mem=2048mb
    comment = Job run at Wed Nov 25 at 17:05 on (n1:ncpus=4:mem=2097152kb)

Job Id: 102.pbs01
    Job_Name = nni-abc-def-1
    Job_Owner = me@login01
    job_state = Q
    queue = workq
    Variable_List = PBS_O_HOME=/home/me,PBS_O_LANG=en_US.UTF-8,
\tPBS_O_WORKDIR=/home/me
    comment = Not Running: Insufficient amount of resource: ngpus (R: 9 A: 2 T:
\t 2)

Job Id: 103.pbs01
    Job_Name = nni-abc-def-2
    job_state = F
    exec_host = n2/0*4
    comment = Job run at Wed Nov 25 at 17:05 on (n2:ncpus=4) and failed
    Exit_status = 3

Job Id: 104.pbs01
    Job_Name = nni-abc-def-3
    job_state = F
    exec_host = n2/0*4
    comment = Job run at Wed Nov 25 at 17:05 on (n2:ncpus=4) and exceeded resource walltime
    Exit_status = -29

Job Id: 105.pbs01
    Job_Name = nni-abc-def-4
    job_state = H
    Hold_Types = u

Job Id: 106.pbs01
    Job_Name = nni-abc-def-5
    job_state = F
    comment = Job run at Wed Nov 25 at 17:05 on (n2:ncpus=4) and terminated
    Exit_status = 271
"""

# After the qstat(1B) page of "TORQUE Resource Manager 6.1.2 Administrator Guide", and its appendix on exit codes.
TORQUE = """Job Id: 201.torque
    Job_Name = nni-abc-def-0
    Job_Owner = me@login
    job_state = C
    exec_host = n1/0-3
    exit_status = 0

Job Id: 202.torque
    Job_Name = nni-abc-def-1
    job_state = C
    exec_host = n1/0-3
    exit_status = -11
"""

# After "IBM Spectrum LSF 10.1 Command Reference", bjobs -o, and "Termination reasons displayed by bacct, bhist, and
# bjobs" of the administration guide.
LSF = """301|nni-abc-def-0|4*n1:n2|-|RUN|-|-
302|nni-abc-def-1|-|-|PEND|-|Job's requirements for resource reservation not satisfied: 3 hosts;
303|nni-abc-def-2|n1|-|DONE|-|-
304|nni-abc-def-3|n1|3|EXIT|-|-
305|nni-abc-def-4|n1|140|EXIT|TERM_RUNLIMIT: job killed after reaching LSF run time limit|-
306|nni-abc-def-5|n1|137|EXIT|TERM_MEMLIMIT: job killed after reaching LSF memory usage limit|-
307|nni-abc-def-6|n1|130|EXIT|TERM_OWNER: job killed by owner|-
308|nni-abc-def-7|n1|137|EXIT|TERM_PREEMPT: job killed after preemption|-
309|nni-abc-def-8|n1|-|UNKWN|-|-
"""
LSF_COMPLAINT = "Job <999> is not found\n"

# After the condor_q and condor_history pages of the HTCondor 23.0 manual (-autoformat), and the tables of JobStatus and
# HoldReasonCode in "Job ClassAd Attributes".
HTCONDOR = (
    "401.0\tnni-abc-def-0\tslot1_1@n1\tundefined\t2\tundefined\tundefined\n"
    "402.0\tnni-abc-def-1\tundefined\tundefined\t1\tundefined\tundefined\n"
    "403.0\tnni-abc-def-2\tundefined\tundefined\t5\t34\tmemory usage exceeded request_memory\n"
    "404.0\tnni-abc-def-3\tundefined\tundefined\t5\t46\tThe job's allowed duration was exceeded\n"
    "405.0\tnni-abc-def-4\tundefined\tundefined\t5\t1\tvia condor_hold (by user me)\n"
    "406.0\tnni-abc-def-5\tundefined\tundefined\t5\t13\tTransfer input files failure\n"
    "407.0\tnni-abc-def-6\tundefined\t3\t4\tundefined\tundefined\n"
    "408.0\tnni-abc-def-7\tundefined\tundefined\t3\tundefined\tundefined\n"
)

SUBMITTED = {
    "gridengine": ("13\n", "13"),
    "pbs": ("101.pbs01\n", "101.pbs01"),
    "torque": ("201.torque.example.com\n", "201.torque.example.com"),
    "lsf": ("Job <301> is submitted to default queue <normal>.\n", "301"),
    "htcondor": ("401.0 - 401.0\n", "401.0"),
}
REFUSED = {
    "gridengine": 'Unable to run job: Job was rejected because job requests unknown queue "nope.q"\nExiting.',
    "pbs": "qsub: Unknown queue",
    "torque": "qsub: submit error (Unknown queue MSG=cannot locate queue)",
    "lsf": "nope: No such queue. Job not submitted.",
    "htcondor": "ERROR: on Line 9 of submit file: request_cpus=many is invalid",
}
FULL = {
    "gridengine": "Unable to run job: job rejected: only 2 jobs are allowed per user (current job count: 2)",
    "pbs": "qsub: would exceed queue generic's per-user limit of jobs in 'Q' state",
    "torque": "qsub: submit error (Maximum number of jobs already in queue for user MSG=total number of jobs)",
    "lsf": "User <me>: Pending job threshold reached. Retrying in 60 seconds...",
    "htcondor": "ERROR: Number of submitted jobs would exceed MAX_JOBS_PER_OWNER",
}
UNKNOWN = {
    "gridengine": 'denied: job "999" does not exist',
    "pbs": "qstat: Unknown Job Id 999.pbs01",
    "torque": "qstat: Unknown Job Id Error 999.torque",
    "lsf": LSF_COMPLAINT,
    "htcondor": "Couldn't find/remove all jobs in cluster 999",
}
