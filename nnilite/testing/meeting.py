"""How a trial and its test meet: words that the trial tells, and signs that one gives and the other waits for.

By files of this machine, which most trials see. Where they do not, a bench overrides these methods.
"""

from __future__ import annotations

from pathlib import Path

from nnilite.testing.probes import python, quoted, runs


class Meeting:
    """`scratch` is a folder that trials may write to."""

    scratch: Path

    @property
    def calls_back(self) -> bool:
        """Whether keepers reach the receiver."""
        return True

    def tell(self, word: str) -> str:
        """A shell command by which a trial tells its test a word, which may be a shell's expression."""
        return f"echo {word} >> {quoted(self.mark())}"

    def lines(self, name: str = "mark") -> list[str]:
        """What trials have told; or the lines of another file in the scratch folder."""
        place = self.mark(name)
        return place.read_text().splitlines() if place.exists() else []

    def mark(self, name: str = "mark") -> Path:
        """A file in the scratch folder."""
        return self.scratch / name

    def until(self, sign: str) -> str:
        """A shell command by which a trial waits until `give` is called."""
        return f"while ! test -e {quoted(self.sign(sign))}; do sleep 0.02; done"

    def sign(self, name: str) -> Path:
        """The file, on the trials' side, by which one waits for the other."""
        return self.mark(name)

    def give(self, sign: str) -> None:
        """Let trials go on that wait for this sign."""
        self.sign(sign).touch()

    def given(self, sign: str) -> bool:
        """Whether the sign was given, by this side or by a trial."""
        return self.sign(sign).exists()

    def runs(self, pid: int) -> bool:
        """Whether a process of a trial runs."""
        return runs(pid)

    def interpreter(self, program: str) -> str:
        """A shell command that runs a Python program where trials run; arguments may follow."""
        return python(program)
