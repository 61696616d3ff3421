"""What failed programs wrote last, and which line of it says why. The page has a rule of its own: both must agree."""

from __future__ import annotations

_FRAME = '  File "train.py", line 3, in <module>\n    fit(x)\n    ~~~^^^\n'
_TRACEBACK = f"Traceback (most recent call last):\n{_FRAME}"
_CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
_LAUNCHED = f"""{_TRACEBACK}{_CHILD}
============================================================
train.py FAILED
------------------------------------------------------------
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def _marked(mark: str, text: str) -> str:
    return "".join(f"{mark}{line}" for line in text.splitlines(keepends=True))


_AFTER_EXIT_CODE = [
    ("no data\n", "no data"),
    (f"{_TRACEBACK}KeyError: 'lr'", "KeyError: 'lr'"),
    # Advice of PyTorch and scikit-learn, and what programs print after a traceback.
    (f"{_TRACEBACK}RuntimeError: CUDA error\nCompile with `TORCH_USE_CUDA_DSA`\n", "RuntimeError: CUDA error"),
    (f"{_FRAME}ValueError: Input X has NaN.\nSee\n  https://x.org\n\n1 leaked\n", "ValueError: Input X has NaN."),
    # The last one of a chain has ended the program.
    (f"{_TRACEBACK}KeyError: 'a'\n\nDuring handling of it:\n\n{_TRACEBACK}OSError: gone\n", "OSError: gone"),
    # The beginning of a long traceback is cut off, or its end.
    (f"{_FRAME}  [Previous line repeated 99 more times]\nRecursionError: too deep", "RecursionError: too deep"),
    (_FRAME, "~~~^^^"),
    ('  File "train.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid', "SyntaxError: invalid"),
    (_marked("    | ", f"{_TRACEBACK}OSError: full\nfor ever\n") + "    +------------\n", "OSError: full"),
    # A launcher fails only because the program has failed.
    (_marked("[rank1]: ", f"{_TRACEBACK}ValueError: NaN\nsee below\n") + _LAUNCHED, "ValueError: NaN"),
    (_marked("[rank0]: ", "ValueError: NaN\nsee below\n") + _LAUNCHED, "ValueError: NaN"),
    (_LAUNCHED, _CHILD),
    (
        f"{_TRACEBACK}OSError: gone\n{_TRACEBACK}subprocess.CalledProcessError: 'python' failed.",
        "OSError: gone",
    ),
    # With `faulthandler`.
    (
        'Fatal Python error: Aborted\n\n  File "a.py", line 1 in f\n\nExtension modules: a',
        "Fatal Python error: Aborted",
    ),
]
FAILURES = {"killed by signal 9": "killed by signal 9"}
FAILURES.update((f"exit code 1\n{text}", line) for text, line in _AFTER_EXIT_CODE)
