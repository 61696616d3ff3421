"""What a scripter would write: the parameter is an argument, the result a line of a file."""

import sys

with open(sys.argv[2], "a") as file:  # noqa: PTH123 (pathlib takes longer than the rest)
    file.write(sys.argv[1] + "\n")
