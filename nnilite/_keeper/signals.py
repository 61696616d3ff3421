"""What the keeper uses of `signal`, without the enumerations, whose import takes longer than a start of Python."""

from __future__ import annotations

from nnilite._cpython import signal as _found

ITIMER_REAL = _found.ITIMER_REAL
SIG_BLOCK = int(_found.SIG_BLOCK)
SIG_DFL = _found.SIG_DFL
SIG_SETMASK = int(_found.SIG_SETMASK)
SIGALRM = int(_found.SIGALRM)
SIGCHLD = int(_found.SIGCHLD)
SIGHUP = int(_found.SIGHUP)
SIGINT = int(_found.SIGINT)
SIGKILL = int(_found.SIGKILL)
SIGPIPE = int(_found.SIGPIPE)
SIGTERM = int(_found.SIGTERM)
SIGUSR1 = int(_found.SIGUSR1)
SIGUSR2 = int(_found.SIGUSR2)
SIGXFSZ = int(_found.SIGXFSZ)

pthread_sigmask = _found.pthread_sigmask
set_wakeup_fd = _found.set_wakeup_fd
setitimer = _found.setitimer
signal = _found.signal
