"""Processes beside a manager: those of trackers and webhooks, which only read an experiment's database, and copies.

supervision     the manager's side of trackers and webhooks: starts their processes, and starts those that fail again
side_process    what these share: config, log, lock and end
quick_end       how they end, as managers and `nnictl` do
forked_process  a process that is a copy of this one, and runs another program
"""
