"""A stand-in for a Determined cluster: its master's REST interface, its scheduler, and agents that run trials for real.

contract   every request and every answer is held against the published REST interface
expconf    the published schemas of experiment configurations, with Determined's own keywords
answers    what the master tells, as its interface spells it
cluster    pools, experiments and trials: what the master keeps, and what it refuses
container  one container of a trial: a process with the environment that Determined gives
master     the HTTP server, which can be told to misbehave
trouble    what goes wrong there, for the contract of batch platforms
bench      a manager's side, and the service on this cluster
"""
