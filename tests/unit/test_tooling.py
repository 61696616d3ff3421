"""What contributors run: the Makefile, and the installation of what it needs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
APT = """#!/bin/sh
echo "$@" >>"$LOG"
case "$*" in *update*) [ -e "$LOG.free" ] || { touch "$LOG.free"; echo "E: Could not get lock /x"; exit 100; } ;; esac
"""

ALL = """#!/bin/sh
case "$1" in policy) echo "  Candidate: 1.0" ;; esac
"""
UBUNTU = """#!/bin/sh
case "$*" in
policy*core | policy*chromium) echo "  Candidate: (none)" ;;
policy*) echo "  Candidate: 1.0" ;;
pkgnames*mariadb*) echo "${2}10.6"; echo "${2}dbgsym" ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of programs: nothing is installed here, and the package lists are locked at the first try."""
    folder = tmp_path / "programs of 'this' machine"
    folder.mkdir()
    no, sudo = "#!/bin/sh\nexit 1\n", '#!/bin/sh\nexec "$@"\n'
    for name, text in {"apt-get": APT, "apt-cache": ALL, "which": no, "sudo": sudo}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def test_what_another_process_installs_is_waited_for(programs: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    subprocess.run(["scripts/system-packages", "test"], cwd=ROOT, env=environment, check=True, timeout=60)
    first, second, installed, browser = (tmp_path / "log").read_text().splitlines()
    assert first == second == "-o DPkg::Lock::Timeout=600 -qq update"
    assert installed.startswith("-o DPkg::Lock::Timeout=600 -qq install -y --no-install-recommends gcc ")
    assert browser.endswith("install -y --no-install-recommends chromium-headless-shell")


def test_where_the_smaller_browser_is_not_to_be_had_the_tests_use_chromium(programs: Path, tmp_path: Path) -> None:
    (programs / "which").write_text('#!/bin/sh\ntest "$1" != chromium-headless-shell\n')
    (programs / "apt-get").write_text('#!/bin/sh\ncase "$*" in *chromium*) exit 100 ;; esac\n')
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["scripts/system-packages", "test"], cwd=ROOT, env=environment, check=True, timeout=60)


def test_a_package_has_the_name_of_the_system_or_is_left_out(programs: Path, tmp_path: Path) -> None:
    (programs / "apt-cache").write_text(UBUNTU)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    command = ["scripts/system-packages", "test"]
    run = subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=60, stderr=subprocess.PIPE)
    installed = (tmp_path / "log").read_text().splitlines()[2].split()
    assert "mariadb-client-core-10.6" in installed
    assert "chromium" not in installed
    assert run.stderr == b"this system has no package chromium: tests that need it skip\n"


@pytest.mark.parametrize("brings", [True, False])
def test_a_package_whose_set_up_fails_is_enough_if_its_programs_are_there(programs: Path, brings: bool) -> None:
    found = f"printf '#!/bin/sh\\n' > {shlex.quote(str(programs / 'which'))}" if brings else ""
    (programs / "apt-get").write_text(f'#!/bin/sh\ncase "$*" in *install*) {found}; exit 100 ;; esac\n')
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    run = subprocess.run(["scripts/system-packages", "test"], cwd=ROOT, env=environment, timeout=60)
    assert (run.returncode == 0) == brings


def test_who_is_not_root_and_has_no_sudo_is_asked_to_install(programs: Path) -> None:
    (programs / "sudo").unlink()
    (programs / "id").write_text("#!/bin/sh\necho 1000\n")
    (programs / "id").chmod(0o755)
    command, environment = ["scripts/system-packages", "test"], {"PATH": str(programs), "LOG": os.devnull}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert run.stderr.startswith("please install as root, since there is no sudo here: gcc ")
    assert (run.returncode, run.stdout) == (0, "")


def test_lint_needs_no_debian_package_but_that_of_venv() -> None:
    told = subprocess.run(
        ["make", "--dry-run", "--always-make", "lint"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    calls = [line for line in told.stdout.splitlines() if "system-packages" in line]
    assert calls == ["scripts/system-packages venv"]
    assert "biome check" in told.stdout


def test_an_environment_whose_installation_broke_off_is_completed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch()  # what `python3 -m venv` leaves; without a network pip brought nothing
    command = ["make", "--dry-run", "demo", f"PYTHON={sys.executable}"]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60).stdout
    assert "-m pip install" in said.partition(".venv/bin/uv pip install")[0]


def test_lint_says_what_it_cannot_check(tmp_path: Path) -> None:
    for name in ("git", "sh"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    run = subprocess.run(
        ["scripts/lint-scripts"], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert run.returncode == 0
    for checker, file in {
        "luac5.1": "nnilite_redis/_lua/take.lua",
        "shellcheck": "nnilite_slurm/_sh/submit.sh",
    }.items():
        [line] = [line for line in run.stderr.splitlines() if checker in line]
        assert f"training_services/{file}" in line.split()


def test_lint_of_a_copy_without_git_says_what_it_cannot_check(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to(shutil.which("sh") or "")
    run = subprocess.run(
        ["scripts/lint-scripts"], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert (run.returncode, run.stderr) == (0, "not checked, as git does not list the files here: Lua and shell\n")


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A folder of packages in which `nnilite-nni` is installed."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT / "distributions/nnilite-nni", check=True, timeout=60, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "packages of 'this' $HOME")
    return tmp_path / "packages of 'this' $HOME"


def _imported_nni(packages: Path) -> str:
    program = f"import site; site.addsitedir({str(packages)!r}); import nni; print(nni.__version__)"
    run = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    return run.stdout.strip()


def test_the_second_distribution_lets_any_program_import_nni(named: Path) -> None:
    assert _imported_nni(named).endswith("+nnilite")


def test_microsofts_package_stays_what_is_imported(named: Path) -> None:
    (named / "nni").mkdir()
    (named / "nni" / "__init__.py").write_text("__version__ = '3.0'")
    assert _imported_nni(named) == "3.0"


def test_the_wheel_has_the_page_and_no_tool(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"nnilite/_web/vendor/preact.js", "nnilite/_keeper/bootstrap.sh", "nnilite_redis/_lua/take.lua"} <= set(
        names
    )
    assert not [name for name in names if name.endswith((".d.ts", ".json", ".jsonc")) and "manifest" not in name]
    assert {name.split("/")[0].split("-")[0] for name in names} >= {"nnilite", "nnilite_local", "nnilite_basic"}
    assert not [name for name in names if "node_modules" in name or name.startswith(("tests", "scripts"))]
