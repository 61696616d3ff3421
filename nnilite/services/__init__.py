"""The toolbox of those who write training services. All of it is public but `_host_use`.

A service of a platform that takes jobs, lists them and keeps their logs is a `BatchService`:

batch_service     the base of such services: listing, connection, logs, cancel, remove
storage_service   the same where jobs may write to a storage that both sides mount
job_watch         what becomes of one job, and how long each wait lasts
first_seen        since when something holds, for conclusions that need patience
job_log           the log of a job, fed in as the platform gives it
delivery          how jobs get keeper and code: with the job, from a storage, from the manager
section_fields    fields that several sections have
node_places       how the nodes of a distributed trial find their places
preloading        modules that are imported once for all trials, and the field for them
trial_command     which programs a trial command starts, for checks before it does

All services use these:

keeper_folder     what services learn of an attempt from its folder, or from the log of its job
keeper_events     what a keeper reports, read from JSON
bootstrap         the command that becomes the keeper, for platforms that run a command in an image
callback_address  where the machines of a platform reach the manager
job_turns         calls about single jobs, so that a slow one holds up no other
gpu               handing out the GPUs of one machine
task_ends         cancels tasks until they have ended
module_command    runs a module in a Python of its own, whatever lies in the current folder
slots             slots that experiments share: which job is next, and what the others wait for
worker_side       what the programs of plugins on workers share with the keeper
cluster           trials as jobs of a scheduler with a login node and a shared file system: a package
_host_use         how much of a machine is in use

The keeper's side of a plugin imports `slots`, `worker_side` and `_host_use` on workers: Python 3.8, and no import here.
"""
