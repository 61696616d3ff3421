"""`nni.common.serializer`: JSON as Python's own, and `trace`, which changes nothing here.

NNI records the arguments of traced objects for architecture search and compression, which are not here.
"""

import json

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`


def trace(cls_or_func=None, *, kw_only=True, inheritable=False):  # type: ignore[no-untyped-def]
    """Return the class or function as it is."""
    return (lambda found: found) if cls_or_func is None else cls_or_func


def dump(  # type: ignore[no-untyped-def]
    obj, fp=None, *, use_trace=True, pickle_size_limit=4096, allow_nan=True, **options
):
    """Return the JSON text of plain values, and write it to the file `fp` if there is one.

    Raises: TypeError for other values.
    """
    text = json.dumps(obj, allow_nan=allow_nan, **options)
    if fp is not None:
        fp.write(text)
    return text


def load(string=None, *, fp=None, preserve_order=False, ignore_comments=True, **options):  # type: ignore[no-untyped-def]
    """Return the value of a JSON text, or of that in the file `fp`."""
    return json.loads(fp.read() if string is None else string, **options)
