"""One page for all experiments of a user on a machine: what `nnictl ui` serves.

    page -> REST routes of its own -> Hub -> the registry, the managers, and the experiments' folders

The server is that of a manager with other routes, so the same rules hold for signing in. It has no state that matters:
it reads all it knows from the experiments, and they run on without it.

hub         lists the experiments, and opens, resumes, stops, deletes and renames them
digests     a summary of each experiment's trials for the list, read in the background
comparison  the best results of several experiments over their trials and their time
starts      checks a configuration that was typed or pasted, and starts an experiment from it
handlers    the handlers of the REST routes
hub_routes  the table of these routes
hub_server  serves the page until it is interrupted, at most once for each user
"""
