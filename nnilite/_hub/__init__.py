"""One page for all experiments of a user on a machine: what `nnictl ui` serves.

    page -> REST routes of its own -> Hub -> the registry, the managers, and the experiments' folders

The server is that of a manager with other routes, so the same rules hold for signing in. It has no state that matters:
what it knows it reads anew, and experiments go on without it.

hub         lists the experiments, and opens, resumes, stops, deletes and renames them
digests     what the list tells of each experiment's trials, read in the background
comparison  the best results of several experiments over their trials and their time
starts      checks a configuration that was typed or pasted, and starts an experiment from it
handlers    the handlers of the REST routes
hub_routes  the table of these routes
hub_server  serves the page until it is interrupted, at most once for each user
"""
