"""A trial that needs nothing but Python: a parabola, reached in some steps."""

import time

import nnilite


def main() -> None:
    x = nnilite.get_next_parameter()["x"]
    for step in range(1, 6):
        nnilite.report_intermediate_result((x - 1) ** 2 + 1 / step)
        time.sleep(0.1)
    nnilite.report_final_result((x - 1) ** 2)


if __name__ == "__main__":
    main()
