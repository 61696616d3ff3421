"""The engine: one task owns all trials of an experiment and decides what happens to them.

The pure core decides; it has no I/O, no clock and no randomness, and imports records, service and tuner only:

    messages        what goes into the rules and what comes out of them
    rules           the state machine: one message in, records to commit and actions to take out
    state           what the rules know of an experiment
    recorder        the small steps that change it, each with its records and actions
    live_trial      a trial that has not ended
    ends            how attempts and trials end: retries, and what is freed then
    submissions     how trials come, and how their attempts get to a service
    reports         handles what trials and their platforms report
    tuner_requests  how the tuner is asked for parameters, and its answers
    known_workers   which hosts have said what trials run with there
    limits          time, money, silence, and the stop
    dedupe          numbered events of keepers: new ones pass, known ones are dropped, gaps are noticed

Around it:

    gate             the way in for all events of keepers: checked, numbered, acknowledged when they are committed
    engine           takes messages, commits what the rules say, then acts
    service_caller   the one task that calls the training service
    service_polling  polls it, and hands on what it says of its jobs
    service_answers  checks what it says
    slow_calls       calls that take long, which the others do not wait for
    guarded_calls    gives each call of a plugin an end, and raises only errors of nnilite
    report_reader    takes the events that the service reads itself, so that a slow reading holds up no other trial
    call_queue       the calls that wait for it, in their order
    jobs             from an attempt to the job that a service runs
    service_choice   what the engine asks wherever several services may take a job
    placement        which of several services is asked to take a job
    hybrid_members   which members of a hybrid service are closed, set aside or busy
    member_refusals  what members of a hybrid service have finally refused
    placement_notes  what a hybrid service asks of the rules, and notes there
    spending         what the experiment has cost
    tuner_slowness   why no trial begins while the tuner has not answered
    usage_reports    what running trials use now, in memory
    hybrid           several training services in one experiment, itself a training service
"""
