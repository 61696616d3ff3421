"""The baseline: one plain script after the other, without a search."""

import pathlib
import subprocess
import sys

trial = pathlib.Path(__file__).with_name("trial.py")
numbers = "\n".join(str(n / 7) for n in range(int(sys.argv[1])))
words = ["xargs", "-P", "2", "-I", "{}", sys.executable, str(trial), "{}", sys.argv[2] + "/results"]
subprocess.run(words, input=numbers, text=True, check=True)
