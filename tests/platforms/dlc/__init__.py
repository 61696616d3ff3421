"""A stand-in for PAI-DLC: it checks the signature and each field of each request, and runs jobs here.

signature   ACS3-HMAC-SHA256, computed from the request as it has arrived, without Alibaba's library
shapes      the bodies and queries of requests, held against the models of Alibaba's library
jobs        the jobs: their states, and the processes that they are here
server      the HTTP interface, and what can go wrong with it
bench       a manager's side of the service under test
"""
