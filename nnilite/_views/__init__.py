"""Shows an experiment from its folder and its database, without an engine.

about            what is known of an experiment: the facts that stay, and its progress
viewer           the reading half of a manager, which is all that `nnictl view` needs
read_only        refuses what a viewer cannot do
search_view      shows a search that a Python program makes, while it runs
experiment_view  makes any of these from a folder
file_listing     the files of a trial, as they are listed
latest_notices   the notices for the profile, which does not wait for the disk
"""
