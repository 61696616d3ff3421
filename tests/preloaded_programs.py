"""Programs whose start, run and end show whether a process is as if Python had just started it."""

from __future__ import annotations

from typing import NamedTuple

MODULES = ["numpy", "multiprocessing", "concurrent.futures", "logging"]
"""What is preloaded for them."""


class Program(NamedTuple):
    """`start` starts Python, `words` the program; `whole`: nothing may be put before its text."""

    text: bytes
    start: str = "{python}"
    words: str = "{script}"
    folder: str = "."
    whole: bool = False
    lines: int = 1  # that it prints at least
    noted: str = ""  # why it is started afresh all the same


def _program(text: str, **more: object) -> Program:
    return Program(text.lstrip("\n").encode(), **more)  # type: ignore[arg-type]


PROGRAMS = {
    "names of main": _program("""
import sys
print(sorted(globals()), __name__, __file__, __spec__, __package__, __cached__, __doc__, type(__loader__), __builtins__)
print(sys.modules["__main__"].__dict__ is globals(), __loader__.name, __loader__.path)
"""),
    "words": _program(
        """
import sys
print(sys.argv, getattr(sys, "orig_argv", ""), sys.executable, sys.path, sys.flags, sys.warnoptions, sys._xoptions)
print(open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0)))
""",
        words="./{script} --rate 0.1 -x last",
    ),
    "in a folder": _program(
        """
import os, sys
import beside
print(sys.path[0], os.getcwd(), sys.argv, beside.__file__)
""",
        folder="inner",
    ),
    "environment": _program("""
import os, subprocess
first = dict(os.environ)
print(sorted(first.items()))
print(*sorted(subprocess.check_output(["env"]).decode().splitlines()), sep="\\n")
print(os.environ["LEVEL"], os.getenv("OMP_NUM_THREADS"), os.environ["PWD"])
"""),
    "variables before the command": _program(
        """
import os, subprocess
print(os.environ["OMP_NUM_THREADS"], subprocess.check_output("echo $OMP_NUM_THREADS", shell=True))
""",
        start="OMP_NUM_THREADS=1 {python}",
    ),
    "marks of the keeper": _program("""
for entry in sorted(open("/proc/self/environ", "rb").read().split(bytes(1))):
    if entry.split(b"=")[0] in (b"NNI_SYS_DIR", b"NNILITE_JOB", b"NNI_EXP_ID"):
        print(entry.decode())
"""),
    "streams": _program("""
import os, stat, sys
for stream in (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__):
    print(stream, stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.seekable())
    print(stream.name, stream.isatty(), stream.fileno(), os.get_inheritable(stream.fileno()), stream.buffer)
print(sys.stdin.read() == "", os.readlink("/proc/self/fd/0"), os.open(os.devnull, os.O_RDONLY))
"""),
    "session": _program("""
import os, resource
print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), oct(os.umask(0)), os.nice(0))
print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))
"""),
    "signals": _program(
        """
import signal
for number in sorted(signal.valid_signals()):
    print(number, signal.getsignal(number))
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.set_wakeup_fd(-1))
""",
        lines=30,
    ),
    "threads": _program("""
import threading, time
def work(name):
    time.sleep(0.05)
    print(name, threading.current_thread().name, flush=True)
print(threading.main_thread() is threading.current_thread(), threading.active_count(), threading.current_thread())
threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
[thread.start() or thread.join() for thread in threads]
threading.Thread(target=work, args=("after the end of main",)).start()
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
"""),
    "exception in a thread": _program("""
import threading
thread = threading.Thread(target=lambda: 1 / 0, name="mine")
thread.start()
thread.join()
print("goes on")
"""),
    "processes by spawn": _program("""
import multiprocessing, os
class Point:
    def __init__(self, x): self.x = x
def double(point): return Point(2 * point.x)
print("imported as", __name__, flush=True)
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print([point.x for point in pool.map(double, [Point(1), Point(2)])], multiprocessing.current_process())
"""),
    "processes by fork": _program("""
import multiprocessing, os
def double(x): return 2 * x, multiprocessing.current_process().name, os.getppid() == parent
parent = os.getpid()
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(double, range(3), chunksize=3))
child = multiprocessing.get_context("fork").Process(target=os._exit, args=(7,))
child.start(); child.join()
print(child.name, child.exitcode)
"""),
    "a pool of futures": _program("""
import concurrent.futures
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        print(list(pool.map(abs, [-1, -2])))
"""),
    "a fork of its own": _program("""
import atexit, os, sys
atexit.register(print, "end of", "one", flush=True)
pid = os.fork()
if pid == 0:
    sys.exit(9)
print(os.waitpid(pid, 0)[1] >> 8, flush=True)
sys.exit(4)
"""),
    "numpy with threads": _program("""
import numpy, os, threading
ones = numpy.ones((400, 400))
print(float((ones @ ones).sum()))
pid = os.fork()
if pid == 0:
    os._exit(int((ones @ ones).sum() != 400 ** 3))
print(os.waitpid(pid, 0)[1], len(os.listdir("/proc/self/task")) >= 1, numpy.__file__)
"""),
    "exit 3": _program("import sys; print(1); sys.exit(3)"),
    "exit 300": _program("print(1); raise SystemExit(300)"),
    "exit with a text": _program("import sys; sys.exit('a text: \\u00fc')"),
    "exit with None": _program("import sys; print(1); sys.exit(None)"),
    "exit with an object": _program("import sys; print(1); sys.exit([1, 2])"),
    "exit at once": _program("import os; print('lost'); print('kept', flush=True); os._exit(5)"),
    "exit in atexit": _program("import atexit, os; atexit.register(os._exit, 6); print(1, flush=True)"),
    "an exception": _program(
        """
def inner(): raise ValueError("a text")
def outer():
    try:
        inner()
    except ValueError as error:
        raise RuntimeError("another") from error
print("before")
outer()
""",
        lines=10,
    ),
    "an exception of a module": _program("import json; json.loads('{')"),
    "an exception without an end": _program("def f(): f()\nf()"),
    "its own hook": _program("""
import sys
def hook(kind, error, trace):
    print(kind, error, [trace.tb_lineno, trace.tb_frame.f_code.co_filename], error.__traceback__ is trace)
sys.excepthook = hook
{}["missing"]
"""),
    "a keyboard interrupt": _program("import atexit; atexit.register(print, 'end'); raise KeyboardInterrupt"),
    "a real interrupt": _program("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(100)"),
    "killed": _program("import os, signal; print(1, flush=True); os.kill(os.getpid(), signal.SIGKILL)"),
    "a segmentation fault": _program("import os, signal; print(1, flush=True); os.kill(os.getpid(), signal.SIGSEGV)"),
    "a broken pipe": _program("""
import os, sys
reader, writer = os.pipe()
os.close(reader)
os.write(writer, b"x")
"""),
    "atexit": _program("""
import atexit, weakref
class Thing:
    def __del__(self): print("deleted", flush=True)
atexit.register(print, "registered first", flush=True)
@atexit.register
def fail(): raise OSError("in atexit")
thing, other = Thing(), Thing()
weakref.finalize(other, print, "finalized", flush=True)
print("__file__" in globals())
atexit.register(lambda: print("__file__" in globals(), flush=True))
"""),
    "objects at the end": _program("""
import os
class Thing:
    def __init__(self, name): self.name = name
    def __del__(self): os.write(1, self.name.encode() + b" deleted\\n")
def function(): return thing
thing = Thing("thing")
"""),
    "objects in a cycle": _program("""
import os
class Thing:
    def __del__(self): os.write(1, b"deleted\\n")
thing = Thing()
thing.itself = thing
"""),
    "objects of a handler": _program("""
import os, signal
class Thing:
    def __del__(self): os.write(1, b"deleted\\n")
thing = Thing()
signal.signal(signal.SIGUSR1, lambda *_: thing)
"""),
    "objects of a module that is not the last one": _program("""
import os, sys, types
class Thing:
    def __del__(self): os.write(1, b"deleted\\n")
sys.modules["mine"] = types.ModuleType("mine")
sys.modules["mine"].thing = Thing()
for name in [name for name in sys.modules if name != "mine"]:
    sys.modules[name] = sys.modules.pop(name)
"""),
    "a file that is not closed": _program("""
file = open(1, "w", closefd=False)
file.write("not flushed by the program\\n")
"""),
    "a file that a module keeps": _program("""
import json
json.file = open(1, "wb", closefd=False)
json.file.write(b"not flushed by the program\\n")
"""),
    "streams of C": _program("""
import atexit, ctypes
ctypes.CDLL(None).printf(b"not flushed by the program\\n")
atexit.register(print, "at the end")
"""),
    "a thread that never ends": _program("""
import threading
def work():
    while True: pass
threading.Thread(target=work, daemon=True).start()
print("main has ended")
raise SystemExit(5)
"""),
    "a thread at a pipe that nobody reads": _program("""
import os, threading, time
full = os.fdopen(os.pipe()[1], "wb")
threading.Thread(target=full.write, args=(bytes(1000000),), daemon=True).start()
time.sleep(0.2)
print("main has ended")
raise SystemExit(6)
"""),
    "output that replaces the stream": _program("""
import io, sys
class Twice(io.TextIOBase):
    def __init__(self, stream): self.stream = stream
    def write(self, text): return self.stream.write(text + text)
    def flush(self): self.stream.flush()
sys.stdout = Twice(sys.stdout)
print("twice")
"""),
    "exit in a function of a module": _program("import json; print(1); json.loads('7', parse_int=exit)"),
    "unflushed output": _program("import sys; sys.stdout.write('no end of line'); sys.stderr.write('nor here\\n')"),
    "a closed stream": _program("import os, sys; sys.stderr.write('1\\n'); print('lost'); os.close(1)"),
    "closed files": _program("import os; print(1, flush=True); os.closerange(3, 300); raise SystemExit(4)"),
    "unbuffered": _program(
        """
import os, sys
print("kept", sys.stdout.buffer, sys.flags.unbuffered)
os._exit(0)
""",
        start="{python} -u",
    ),
    "optimized": _program(
        """
assert False
print(__debug__, __doc__, (lambda: 1).__doc__)
""",
        start="{python} -OO",
    ),
    "isolated": _program(
        "import sys; print(sys.path[0][-3:], sys.flags, 'nnilite' in sys.path[0])", start="{python} -I"
    ),
    "warnings as errors": _program("import warnings; warnings.warn('a text')", start="{python} -W error -X utf8"),
    "a module": _program(
        """
import sys
print(__name__, __spec__.name, __package__, sys.argv, sys.path[0], getattr(sys, "orig_argv", ""))
from . import beside
raise ValueError(beside.__name__)
""",
        folder="inner",
        words="-m inner.{module} --fast",
    ),
    "no such module": _program("", words="-m no_such_module", whole=True),
    "no such script": _program("", words="no_such_script.py", whole=True, noted="No such file or directory"),
    "wrong syntax": _program("print(1)\nprint(2\n", whole=True),
    "another encoding": Program(b"# -*- coding: latin-1 -*-\nprint(ascii('\xfc'))\n", whole=True),
    "a docstring and the future": _program(
        '"""A text."""\nfrom __future__ import annotations\nprint(__doc__, annotations)', whole=True
    ),
    "pickled classes": _program("""
import pickle
class Point: x = 1
data = pickle.dumps(Point())
print(b"__main__" in data, pickle.loads(data).x, Point.__module__)
"""),
    "its own source": _program("""
import inspect, __main__
def function(): return 1
print(inspect.getsource(function), __main__.function is function)
"""),
    "logging and warnings": _program("""
import logging, warnings
logging.warning("a text")
warnings.warn("another")
print(logging.getLogger().handlers)
"""),
    "an event loop": _program("""
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("sh", "-c", "exit 3")
    print(await process.wait())
asyncio.run(main())
"""),
    "the SDK": _program("""
import nnilite
print(nnilite.get_next_parameter(), nnilite.get_trial_id() != "STANDALONE")
nnilite.report_final_result(1)
print(open(__import__("os").environ["NNILITE_METRICS"]).read().count("FINAL"))
"""),
}
