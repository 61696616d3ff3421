"""A trial that needs nothing but Python: a parabola, in steps."""

import nnilite


def main() -> None:
    x = nnilite.get_next_parameter()["x"]
    for step in range(5):
        nnilite.report_intermediate_result((x - 1) ** 2 + 1 / (step + 1))
    print("x was", x)
    nnilite.report_final_result((x - 1) ** 2)


if __name__ == "__main__":
    main()
