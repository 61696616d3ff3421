"""What services share whose trials are jobs of a scheduler with a login node and a shared file system.

A service of such a scheduler inherits `QueueService` and gives it a `SchedulerApi`, its scheduler's name, and the
script of a job. `nnilite_slurm` and `nnilite_batch` do.

queue_config     the fields of the section of a scheduler
queue_service    the service: all verbs of a training service
scheduler_api    what it asks of a scheduler, by the scheduler's commands
queued_job       what a scheduler says of one job
watched_jobs     the jobs of one experiment, as they were last seen
queue_watch      what becomes of a job, according to the scheduler and its keeper
end_watch        notices the ends of trials between two looks
attempt_spec     the specification of an attempt
job_script       the parts of the script that a job runs
login            where commands are run: this machine, or a login node by SSH
shared_folder    the folder of all files there: the cache, and the folders of attempts
attempt_folders  these folders: listed, and copied here
hanging_folders  folders that do not answer, and are left out of the looks
attempt_reader   what a trial has reported in its folder
shell_scripts    the shell scripts that all of this runs there
"""
