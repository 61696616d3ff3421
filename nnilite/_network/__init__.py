"""What all listeners on the network need.

host_names        what a host's name or address alone reveals
unproven_callers  limits the callers who have not proven who they are
"""
