"""The search space: NNI's JSON, checked, and the two forms that parameters take.

*Nested* is what a trial gets: `{"lr": 0.1, "layer": {"_name": "Conv", "size": 3}}`. *Flat* is what a
tuner works with: `{("lr",): 0.1, ("layer",): 1, ("layer", 1, "size"): 0}`, paths to raw values. A path
has the number of the chosen option between two names; a parameter is active if its parent chose that
option. The raw value of a choice is the option's number, of everything else the value itself (not its
logarithm). `build` and `flatten` go from one to the other.

    space = SearchSpace.parse({"lr": {"_type": "loguniform", "_value": [1e-5, 0.1]}})
    parameters = space.sample(random.Random(0))
    assert space.build(space.flatten(parameters)) == parameters

search_space  the search space
python_space  search spaces from Python: `loguniform(1e-5, 0.1)`
_parameter    one parameter of it
expressions   what may be written over names, parsed and computed safely
constraints   expressions that sets of parameters must satisfy
space_checks  what is wrong with a search space
space_cures   how to write what other programs write otherwise
distribution_synonyms    their distributions, as objects and as calls
space_hints   what is allowed in a search space but is hardly meant
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from nnilite.errors import SpaceError, no_attribute
from nnilite.space import distribution_synonyms
from nnilite.space._parameter import Flat, Key, Parameter, ParameterKind
from nnilite.space.constraints import Constraints
from nnilite.space.python_space import (
    ParameterJson,
    choice,
    lognormal,
    lograndint,
    loguniform,
    normal,
    option,
    qlognormal,
    qlograndint,
    qloguniform,
    qnormal,
    qrandint,
    quniform,
    randint,
    uniform,
)
from nnilite.space.search_space import SearchSpace

__all__ = [
    "Constraints",
    "Flat",
    "Key",
    "Parameter",
    "ParameterJson",
    "ParameterKind",
    "SearchSpace",
    "SpaceError",
    "choice",
    "lognormal",
    "lograndint",
    "loguniform",
    "normal",
    "option",
    "qlognormal",
    "qlograndint",
    "qloguniform",
    "qnormal",
    "qrandint",
    "quniform",
    "randint",
    "uniform",
]


def __dir__() -> list[str]:
    """List what is for users: notebooks and shells offer it after a dot."""
    return __all__


_ELSEWHERE = {
    "hp": "the functions of this module, such as uniform(low, high)",
    "finrange": "quniform(low, high, step)",
    "logfinrange": "choice([0.001, 0.01, 0.1])",
    "logordinal": "choice(options)",
    "sample_from": "choice([option(name, size=uniform(low, high))]) for what depends on another parameter",
    "pchoice": "choice(options)",
}
"""What to write for functions of hyperopt, Ray Tune and Syne Tune that name no type."""

if not TYPE_CHECKING:  # to type checkers, a module with this function has every name

    def __getattr__(name: str) -> Any:
        meant = _ELSEWHERE.get(name) or distribution_synonyms.translate_type(name)
        raise no_attribute("module 'nnilite.space'", sys.modules[__name__], name, {name: meant} if meant else {})
