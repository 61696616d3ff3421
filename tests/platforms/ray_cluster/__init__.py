"""Ray for tests.

cluster     a real one, of two nodes on this machine
head        a stand-in for its head node, for what a real one cannot be told to do
jobs        the jobs of the stand-in, which really run
bench       a manager's side of the service
shapes      what the stand-in's answers have in common with those of the real one
"""
