"""Machines that are reached by SSH, for plugins: connected as `ssh` would, with its configuration and known hosts.

settings           the fields of a config that say how to reach a machine
route              the way to a machine, as in OpenSSH's configuration
connect            gets connected, hop by hop
bounded_transport  a connection that holds the machine to the limits of SSH
commands           runs a command over a connection
known_hosts        which key a machine must have
answer_sink        what a command prints, up to a limit
download           receives the files that a machine sends
errors             why a machine cannot be used

`route`, `connect`, `bounded_transport` and `commands` need paramiko, the extra `remote`. Two packages are based on
this: nnilite_remote, whose agent serves on the connection, and `nnilite.services.cluster`, which runs the commands of a
scheduler on a login node.
"""
