"""The experiments' files on this machine. Reading a folder needs no import of the manager.

registry            the experiments of this machine
manager_state       what an experiment's manager wrote last: its address, its state
experiment_token    the token that opens an experiment's REST interface
documents           small files that nnilite wrote for itself, read back like files from a stranger
locking             the right to be an experiment's only manager
address             the address of a manager
manager_options     how a manager is to be reached, as words of its command line
experiment_remarks  what people have written about an experiment: another name, tags, a note
page_preferences         what a user wants the pages to remember: columns of tables, and views that have a name
provenance_reading  what ran at each start of an experiment's manager
search_folder       the folder of a search that a Python program makes, as other programs see it
own_folders         the experiments in a folder of experiments that are not in the registry
new_folders         folders that no other user may write to
home_folder         why files in the home folder cannot be used
nni_folders         the experiments that Microsoft NNI has left on this machine
file_guard          restores the manager's own files if they are deleted or damaged
"""
