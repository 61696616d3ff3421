"""`nni.runtime.log`: calls that change where NNI logs. Here logging is Python's own, and they have no effect."""

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`


def enable_global_logging(enable: bool = True) -> None:
    """Do nothing: configure Python's `logging` as you like it."""


def silence_stdout() -> None:
    """Do nothing: nothing is printed that you did not print."""


start_stdout_logging = silence_stdout


def start_experiment_logging(*arguments: object) -> None:
    """Do nothing: the manager of an experiment keeps its log in the experiment's folder."""


stop_experiment_logging = start_experiment_logging
