"""A stand-in for DLTS: a dashboard that checks each request and each answer against its contract, and runs jobs here.

contract    the documents, and the checks by them
cluster     the jobs: their states, their quota, and the processes that they are here
dashboard   the HTTP interface, and what can go wrong with it
bench       a manager's side of the service under test
"""
