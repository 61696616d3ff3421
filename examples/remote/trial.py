"""A trial that needs nothing but Python: a parabola."""

import os
import socket

import nnilite


def main() -> None:
    x = nnilite.get_next_parameter()["x"]
    with open(os.path.join(os.environ["NNI_OUTPUT_DIR"], "where.txt"), "w") as file:  # noqa: PTH118, PTH123
        file.write(f"{x} on {socket.gethostname()}\n")
    nnilite.report_final_result((x - 1) ** 2)


if __name__ == "__main__":
    main()
