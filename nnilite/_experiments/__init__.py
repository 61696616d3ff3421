"""What lies on this machine's disk of experiments. Nobody imports the manager to read a folder.

registry            the experiments of this machine
documents           small files that nnilite wrote for itself, read back as if a stranger had sent them
locking             the right to be an experiment's only manager
address             the address of a manager
experiment_remarks  what people have written about an experiment: another name, tags, a note
search_folder       the folder of a search that a Python program makes, as others see it
nni_folders         the experiments that Microsoft NNI has left on this machine
file_guard          makes the manager's own files again when somebody deletes or damages them
"""
