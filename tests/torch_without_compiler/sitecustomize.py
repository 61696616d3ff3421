"""Spares programs of the tests torch's compiler, which an optimizer loads to say that it is not to be compiled.

Loading it takes as long as all else of a short training. Python imports this module at its start, from PYTHONPATH.
"""

import sys
import types


class _NoCompiler(types.ModuleType):
    """What torch 2.13 asks its compiler where nothing is compiled."""

    def __init__(self) -> None:
        super().__init__("torch._dynamo")
        self.utils = types.SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")
        self.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)

    @staticmethod
    def disable(function, *_, **__):  # type: ignore[no-untyped-def]
        return function

    @staticmethod
    def graph_break() -> None:
        """A compiler would stop here."""


sys.modules["torch._dynamo"] = _NoCompiler()
