"""The worker's side: what `nnictl worker` runs on a machine that joins a pool.

    pool_worker       the rounds: tell Redis of its jobs, hear what became of them, take new ones
    held_attempts     the attempts that a worker has, with their leases
    attempt           one attempt: its folder, its keeper, and what is reported of it
    intake            takes jobs from the queue, and prepares them until their keepers run
    file_cache        the code and the keepers, which its attempts share
    task              what a manager says of a job, checked
    proxy             where keepers find their manager: a port of this machine, from which requests go by messages
    request_handlers  what keepers and managers ask a worker
    gpus              the GPUs of this worker, and which of them the next trial would get
    checkpoints       what trials save is brought to where other workers find it
    confirmations     which reports a manager has, before a checkpoint after them is stored
    leases            until when a trial may run without word from Redis
    guard             a process of its own that stops trials whose lease is over, also if the worker is dead or stopped

All that is known is in the worker's folder, so that a worker that was killed continues when it is started again:

    lock, name                             who works here; one worker at a time
    callback                               the proxy's address, which keepers read before each try
    leases.json, guard.lock                the guard's
    cache/                                 code packages and keepers by their hash
    <experiment>/trials/<trial>/<attempt>/ see the keeper; and `task.json`, `job.json`, `spec.json`
    <experiment>/checkpoints/<trial>/      and `<trial>.by`: the attempt that wrote them
"""
