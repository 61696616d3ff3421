"""What all listeners on the network need, and all who call others.

host_names        what a host's name or address alone reveals
socket_lists      which users have the sockets of this machine
unauthenticated_callers  limits the callers who have not proven who they are
interactive_calls  limits the time of calls while a person waits for the answer
"""
