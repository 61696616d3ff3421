"""The processes of trackers and webhooks, which only read an experiment's database: each feeds one of them.

supervision   the manager's side: starts these processes, and starts those that fail again
side_process  what they share: config, log, lock and end
quick_end     how they end, as managers and `nnictl` do
"""
