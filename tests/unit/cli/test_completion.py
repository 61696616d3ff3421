"""Shells complete nnictl's commands, options, files and ids of experiments, by scripts of `nnictl completion`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nnilite._cli.nnictl import run

# What bash does at a Tab after these words, of which the last one may be empty.
_TAB = """
set -u
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p nnictl | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" nnictl "${COMP_WORDS[$COMP_CWORD]}" "${COMP_WORDS[$((COMP_CWORD - 1))]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(["completion", shell]) == 0
    made = folder / f"nnictl.{shell}"
    made.write_text(capsys.readouterr().out)
    return made


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["tri"], ["trial"]),
        (["trial", "l"], ["list", "ls"]),
        (["create", "--dr"], ["--dry-run"]),
        (["create", "--config", "conf"], ["config file.yaml"]),
        (["resume", "hX"], ["hXoPgm4w"]),
        (["experiment", "show", ""], ["a1b2c3d4", "hXoPgm4w"]),
        (["trial", "scale", "-e", "a"], ["a1b2c3d4"]),
        (["completion", "b"], ["bash"]),
    ],
)
def test_bash_completes(
    words: list[str],
    wanted: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "my home"
    (home / ".nnilite").mkdir(parents=True)
    for name in ("hXoPgm4w.json", "a1b2c3d4.json", "lock"):
        (home / ".nnilite" / name).write_text("{}")
    monkeypatch.setenv("NNILITE_HOME", str(home))
    (tmp_path / "config file.yaml").write_text("")
    command = ["bash", "-c", _TAB, "bash", str(script("bash", tmp_path, capsys)), "nnictl", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.splitlines()) == wanted, done.stderr


_ZSH = """
autoload -U compinit; compinit -u -D
eval "$(cat "$1")"
print $_comps[nnictl]
compadd() { print ${(P)2} }  # in place of zsh's own, which works only at a Tab
__nnictl_ids
"""
# Each takes the script's path, and prints what the shell then knows.
_OTHERS = {
    "zsh": ["-f", "-c", _ZSH, "zsh"],
    "fish": ["--no-config", "-c", "source $argv[1]; complete -C 'nnictl resume h'; complete -C 'nnictl tensorb'"],
}


@pytest.mark.parametrize(
    ("shell", "wanted"), [("zsh", ["_shtab_nnictl", "hXoPgm4w"]), ("fish", ["hXoPgm4w", "tensorboard"])]
)
def test_other_shells_take_their_script(
    shell: str, wanted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = script(shell, tmp_path, capsys)
    assert "tensorboard" in made.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed; its script is made, and not tried")
    (tmp_path / ".nnilite").mkdir()
    (tmp_path / ".nnilite" / "hXoPgm4w.json").write_text("{}")
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path))
    done = subprocess.run([shell, *_OTHERS[shell], str(made)], capture_output=True, text=True, timeout=60)
    assert [line.split()[0] for line in done.stdout.splitlines()] == wanted, done.stderr
