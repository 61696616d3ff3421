"""What all listeners on the network need.

host_names        what can be told of a host by its name or address alone
unproven_callers  limits the callers who have not proven who they are
"""
