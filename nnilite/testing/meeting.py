"""How a trial and its test meet: words of the trial, and signs that one gives and the other waits for.

They meet through files of this machine, which most trials see. For others, a bench overrides these methods.
"""

from __future__ import annotations

from pathlib import Path

from nnilite.testing.probes import python, quoted, runs


class Meeting:
    """`scratch` is a folder that trials may write to."""

    scratch: Path

    @property
    def calls_back(self) -> bool:
        """Whether keepers can reach the receiver."""
        return True

    def tell(self, word: str) -> str:
        """Return a shell command with which a trial sends its test a word, which may be a shell's expression."""
        return f"echo {word} >> {quoted(self.mark())}"

    def lines(self, name: str = "mark") -> list[str]:
        """Return what trials have written; or the lines of another file in the scratch folder."""
        place = self.mark(name)
        return place.read_text().splitlines() if place.exists() else []

    def mark(self, name: str = "mark") -> Path:
        """Return a file in the scratch folder."""
        return self.scratch / name

    def until(self, sign: str) -> str:
        """Return a shell command with which a trial waits until `give` is called."""
        return f"while ! test -e {quoted(self.sign(sign))}; do sleep 0.02; done"

    def sign(self, name: str) -> Path:
        """Return the file, on the trials' side, for which the other side waits."""
        return self.mark(name)

    def give(self, sign: str) -> None:
        """Let trials continue that wait for this sign."""
        self.sign(sign).touch()

    def given(self, sign: str) -> bool:
        """Return whether the sign was given, by this side or by a trial."""
        return self.sign(sign).exists()

    def runs(self, pid: int) -> bool:
        """Return whether a process of a trial runs."""
        return runs(pid)

    def interpreter(self, program: str) -> str:
        """Return a shell command that runs a Python program where trials run; arguments may follow."""
        return python(program)
