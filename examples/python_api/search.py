"""Search inside this program: no manager, no files, no further processes.

python3 examples/python_api/search.py
"""

from nnilite import Search

SPACE = {
    "x": {"_type": "uniform", "_value": [-2, 2]},
    "y": {"_type": "uniform", "_value": [-1, 3]},
}


def rosenbrock(parameters):
    x, y = parameters["x"], parameters["y"]
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


def descend(parameters, report):
    """With a second argument an objective can report on its way, and be stopped by the assessor."""
    x, y = parameters["x"], parameters["y"]
    for _ in range(30):
        slope_x = -2 * (1 - x) - 400 * x * (y - x**2)
        slope_y = 200 * (y - x**2)
        x, y = x - 0.0005 * slope_x, y - 0.0005 * slope_y
        report(rosenbrock({"x": x, "y": y}))
    return rosenbrock({"x": x, "y": y})


def main():
    result = Search(SPACE, tuner="TPE", optimize="minimize", seed=1).run(rosenbrock, trials=60)
    print("best", result.best.value, result.best.parameters)

    stopped = Search(SPACE, tuner="Random", optimize="minimize", seed=1, assessor="Medianstop").run(descend, trials=30)
    states = [trial.state.value for trial in stopped.trials]
    print("with an assessor", {state: states.count(state) for state in sorted(set(states))})

    search = Search(SPACE, optimize="minimize", seed=1)  # or with a loop of one's own
    for _ in range(10):
        trial = search.ask()
        search.tell(trial, rosenbrock(trial.parameters))
    print("by hand", search.result().best.value)


if __name__ == "__main__":
    main()
