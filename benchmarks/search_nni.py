"""NNI 3.0's own tuners, in a Python that has NNI.

Imports nothing of nnilite. JSON lines on stdin and stdout: {"tuner": name, "seed": ..., "space": ...} begins a run,
{"ask": id} gives parameters, {"tell": id, "parameters": ..., "value": ...} ends a trial.
"""

import json
import random
import sys


def tuner(name, seed):
    import numpy

    random.seed(seed)
    numpy.random.seed(seed)
    if name == "TPE":
        from nni.algorithms.hpo.tpe_tuner import TpeTuner

        return TpeTuner(optimize_mode="minimize", seed=seed)
    if name == "Random":
        from nni.algorithms.hpo.random_tuner import RandomTuner

        return RandomTuner(seed=seed)
    if name == "Evolution":
        from nni.algorithms.hpo.evolution_tuner import EvolutionTuner

        return EvolutionTuner(optimize_mode="minimize", population_size=32)
    if name == "GP":
        from nni.algorithms.hpo.gp_tuner import GPTuner

        return GPTuner(optimize_mode="minimize")
    raise SystemExit("no such tuner: " + name)


def main():
    out = sys.stdout
    sys.stdout = sys.stderr  # NNI prints
    made = None
    for line in sys.stdin:
        request = json.loads(line)
        answer = True
        if "space" in request:
            made = tuner(request["tuner"], request["seed"])
            made.update_search_space(request["space"])
        elif "ask" in request:
            answer = made.generate_parameters(request["ask"])
        else:
            made.receive_trial_result(request["tell"], request["parameters"], request["value"])
            made.trial_end(request["tell"], True)
        out.write(json.dumps(answer, default=float) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
