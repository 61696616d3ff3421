"""Experiments and programs of Microsoft NNI.

nni_import         copies the results of an experiment of NNI into an nnilite database
nni_copy           makes that database
nni_rows           makes records from rows of NNI's database
nni_view           shows such an experiment
former_calls       says what is there for calls of earlier versions of NNI's Python API
nni_records        what NNI's Python API returns, made from the REST interface's answers
annotations        makes calls and a search space of NNI's annotations
annotation_calls   reads single annotations, and says what is wrong with one
program_text       replaces parts of a program's text
annotated_configs  makes a config for the program with calls

Elsewhere are the folders that NNI has left (`nnilite._experiments.nni_folders`, which the registry reads), NNI's
routes (`nnilite._rest.nni_routes`), its form of a config (`nnilite.config`), and what `import nni` finds
(`nnilite._nni_shim`).
"""
