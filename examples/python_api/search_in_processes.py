"""Search with the objective in processes of its own: for functions that keep Python busy, or may end their process.

python3 examples/python_api/search_in_processes.py
"""

from nnilite import Search

SPACE = {"depth": {"_type": "randint", "_value": [10, 40]}, "rate": {"_type": "uniform", "_value": [0, 1]}}


def train(parameters, report):
    """Stands for work that holds Python's lock, so that threads would do it one after the other."""
    loss = 1.0
    for step in range(5):
        for _ in range(parameters["depth"] * 1000):
            loss += (parameters["rate"] - 0.3) ** 2 * 1e-4
        report(loss + 1 / (step + 1))
    return loss


def main():
    search = Search(SPACE, tuner="Random", optimize="minimize", seed=1, assessor="Medianstop")
    result = search.run(train, trials=20, concurrency=2, processes=True)
    states = [trial.state.value for trial in result.trials]
    print("states", {state: states.count(state) for state in sorted(set(states))})
    print("best", result.best.value, result.best.parameters)


if __name__ == "__main__":  # each worker process imports this file
    main()
