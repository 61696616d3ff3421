"""nnictl: experiments from the command line.

`program` picks the module of the one command that was asked for and imports nothing else; each such module has
`add(parser)`, which declares its options and what runs. Commands print through `screen`, speak to managers through
`nnilite._client`, and tell of trouble by raising: `program` turns an error into one sentence and an exit code.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The program `nnictl`."""
    from nnilite._cli.program import run

    sys.exit(run(sys.argv[1:]))
