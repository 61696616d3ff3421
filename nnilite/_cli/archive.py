"""An experiment as one zip file, to be kept or taken to another machine.

    nnilite.json    what it is: format, id, name, platform, when it started
    experiment/     its folder: database, logs, trials, code packages, configuration
    code/           its code directory, as far as `.nniignore` lets it, if that was asked for

What belongs to one running manager (address, token, lock) stays behind. The configuration may hold passwords, so
only its owner may read the file. Links are left out: they would point to nothing elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from nnilite import _registry
from nnilite._cli.program import warn
from nnilite._registry import Entry
from nnilite.errors import ConfigError, Conflict, NotFound

FORMAT = 1
ABOUT = "nnilite.json"
_OF_A_MANAGER = {"lock", "manager.json", "token"}
_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")


def save(entry: Entry, target: Path, *, with_code: bool) -> Path:
    """Write the zip file to `target`, or into it if it is a folder. Raises: Conflict if it is there, OSError."""
    path = target / f"nni_experiment_{entry.id}.zip" if target.is_dir() else target
    if not path.parent.is_dir():
        raise ConfigError(f"--path {target}: its folder does not exist")
    if path.exists():
        raise Conflict(f"{path} is there already; it is not overwritten.")
    draft = path.with_name(f".{path.name}.new")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            _write(entry, file, with_code=with_code)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _write(entry: Entry, file: Any, *, with_code: bool) -> None:
    about = {"format": FORMAT, "id": entry.id, "name": entry.name, "platform": entry.platform, "started": entry.started}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        archive.writestr(ABOUT, json.dumps(about))
        own = os.fstat(file.fileno())
        for path, name in _content(entry, with_code=with_code):
            if not os.path.samestat(path.stat(), own):  # written into what it packs, it would grow without end
                archive.write(path, name)


def _content(entry: Entry, *, with_code: bool) -> Iterator[tuple[Path, str]]:
    """Each file with its name in the zip file."""
    for path in _files(entry.directory):
        yield path, f"experiment/{path.relative_to(entry.directory).as_posix()}"
    if with_code:
        yield from _code(entry)


def _files(directory: Path) -> Iterator[Path]:
    links = 0
    for folder, names, files in os.walk(directory):
        top = Path(folder) == directory
        for name in sorted(files + [name for name in names if _childless(Path(folder, name))]):
            path = Path(folder, name)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                links += 1
            elif not (top and name in _OF_A_MANAGER):
                yield path
    if links:
        warn(f"{links} links and special files in {directory} are left out.")


def _childless(folder: Path) -> bool:
    """Links to folders count: they are not walked into. An empty folder is kept as such."""
    return folder.is_symlink() or next(folder.iterdir(), None) is None


def _code(entry: Entry) -> Iterator[tuple[Path, str]]:
    from nnilite.codedir import list_files

    listed = list_files(_config(entry.directory)["trialCodeDirectory"])
    for file in listed.files:
        if file.target is None:
            yield listed.root / file.path, f"code/{file.path}"
    for note in listed.notes:
        warn(note)


def load(path: Path, folder: Path | None, code: Path | None) -> Entry:
    """Unpack a saved experiment into the folder of experiments, and make it known on this machine.

    Raises: ConfigError if this is no such file, Conflict if the experiment or its code is there already.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            about = _about(archive, path)
            directory = ((folder or _registry.root()) / about["id"]).absolute()
            code = (code or directory / "saved_code").absolute()
            _check_free(about["id"], directory, code)
            _unpack(archive, directory, code)
    except zipfile.BadZipFile as error:
        raise ConfigError(f"{path} is not a whole zip file: {error}") from error
    _adapt(directory, code if code.is_dir() else None)
    _registry.add(about["id"], about["name"], directory, about["platform"], about["started"])
    return _registry.find(about["id"])


def _about(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    try:
        about = json.loads(archive.read(ABOUT))
        known = about["format"] == FORMAT and bool(_ID.fullmatch(about["id"]))
    except (KeyError, ValueError, TypeError):
        known = False
    if not known:
        raise ConfigError(f"{path} was not written by `nnictl experiment save` of this nnilite.")
    return {"name": "", "platform": "", "started": None, **about}


def _check_free(experiment: str, directory: Path, code: Path) -> None:
    if any(entry.id == experiment for entry in _registry.entries()):
        raise Conflict(
            f"Experiment {experiment} is on this machine already; `nnictl experiment delete {experiment}` makes room."
        )
    for path in (directory, code):
        if path.exists() and any(path.iterdir()):
            raise Conflict(f"{path} is there already; it is not overwritten.")


def _unpack(archive: zipfile.ZipFile, directory: Path, code: Path) -> None:
    """All or nothing. Every name is checked first: a zip file from elsewhere may name any path."""
    targets = [(info, target) for info in archive.infolist() if (target := _target(info, directory, code))]
    made = [path for path in (directory, code) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for info, target in targets:
            _unpack_one(archive, info, target)
    except BaseException:
        for path in made:
            shutil.rmtree(path, ignore_errors=True)
        raise


def _target(info: zipfile.ZipInfo, directory: Path, code: Path) -> Path | None:
    parts = PurePosixPath(info.filename).parts
    if info.filename == ABOUT:
        return None
    if len(parts) < 2 or parts[0] not in ("experiment", "code") or ".." in parts:
        raise ConfigError(f"The zip file names a path that no experiment has: {info.filename!r}.")
    return (directory if parts[0] == "experiment" else code).joinpath(*parts[1:])


def _unpack_one(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    if info.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(info) as source, target.open("xb") as file:
        shutil.copyfileobj(source, file)
    target.chmod(stat.S_IMODE(info.external_attr >> 16) & 0o777 | 0o600)


def _config(directory: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise NotFound(f"The configuration of the experiment cannot be read: {error}") from error
    return config


def _adapt(directory: Path, code: Path | None) -> None:
    """The configuration names folders, which are elsewhere now."""
    config = _config(directory)
    config["experimentWorkingDirectory"] = str(directory.parent)
    if code is not None:
        services = config.get("trainingService", [])
        for section in (config, *(services if isinstance(services, list) else [services])):
            if section is config or "trialCodeDirectory" in section:
                section["trialCodeDirectory"] = str(code)
    _registry.write_json(directory / "config.json", config)
