"""Shows an experiment from its folder and its database, without an engine.

experiment_facts  what is known of an experiment: the facts that stay, and its progress
profile_maker    makes the profile of these
viewer           an experiment that is only viewed, as the REST interface sees it
view_control     refuses what a viewer cannot do
folder_files     the files in an experiment's folder
search_view      shows a search that a Python program makes, while it runs
experiment_view  makes any of these from a folder
file_listing     the files of a trial, as they are listed
latest_notices   the notices for the profile, which does not wait for the disk
"""
