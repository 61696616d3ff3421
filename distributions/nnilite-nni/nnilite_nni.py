"""Lets `import nni` find what nnilite offers under that name, in every program of this Python.

`nnilite_nni.pth` imports this module whenever Python starts. It puts one folder at the end of the path and imports
nothing else. So Microsoft's package, where it is installed, stays what `import nni` finds: no file of it is touched.
"""

import os.path
import sys
from importlib.machinery import PathFinder


def _offer() -> None:
    spec = PathFinder.find_spec("nnilite")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        shim = os.path.join(folder, "_nni_shim")
        if shim not in sys.path:
            sys.path.append(shim)


_offer()
