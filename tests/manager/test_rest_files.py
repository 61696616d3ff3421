"""Files of trials: whole ones, safe ones, and none from outside."""

from __future__ import annotations

import errno
import http.client
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._keeper.folder_looks import FolderLooks
from nnilite._rest.files import open_inside
from nnilite._views.file_listing import list_folder
from nnilite._views.folder_files import read_piece
from nnilite.errors import NotFound
from nnilite.foreign_files import open_below
from nnilite.testing import eventually
from nnilite.testing.bench import LIMIT_S

FILES = "/trials/End02/files"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path)) as client:
        yield client


@pytest.fixture
def home(client: Client) -> Path:
    return client.backend.folder / "trials" / "End02"


def test_files_are_listed_with_their_sizes(client: Client) -> None:
    found = {file["path"]: file["size"] for file in client.get(FILES).json["files"]}
    assert found == {"trial.stdout": 6, "plots/a b'\"$\n.txt": 8, "page.html": 25}


def test_a_file_with_any_name_is_sent(client: Client) -> None:
    reply = client.get(f"{FILES}/plots/{quote(chr(97) + ' b' + chr(39) + chr(34) + '$' + chr(10) + '.txt')}")
    assert (reply.status, reply.body) == (200, b"odd name")
    assert reply.headers["Content-Disposition"] == "inline; filename*=UTF-8''a%20b%27%22%24%0A.txt"


def test_a_large_file_is_sent_whole(client: Client, home: Path) -> None:
    content = os.urandom(3_000_001)
    (home / "model.bin").write_bytes(content)
    assert client.get(f"{FILES}/model.bin").body == content
    (home / "empty.bin").write_bytes(b"")
    assert client.get(f"{FILES}/empty.bin").body == b""


def test_who_reads_a_file_that_is_cut_short_meanwhile_learns_that_it_is_incomplete(
    client: Client, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (home / "model.bin").open("wb") as file:
        file.truncate(64 << 20)  # more than is on its way at once
    with closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=LIMIT_S)) as connection:
        connection.request(
            "GET", f"/api/v1{FILES}/model.bin", headers={"Authorization": f"Bearer {client.backend.token}"}
        )
        answer = connection.getresponse()
        os.truncate(home / "model.bin", 1)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
    assert client.get(FILES).status == 200  # the server is done with the first request
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("path", "fetches"), [("", ["listed", "listed", "here"]), ("/trial.stdout", ["trial.stdout", "trial.stdout"])]
)
def test_files_elsewhere_are_listed_or_brought_one_by_one_unless_that_is_refused(
    client: Client, path: str, fetches: list[str]
) -> None:
    for query in ("", "?fetch=true", "?fetch=false"):
        assert client.get(f"{FILES}{path}{query}").status == 200
    assert client.backend.fetches == fetches
    assert client.get(f"{FILES}{path}?fetch=perhaps").status == 400


def test_all_files_are_brought_when_that_is_asked_for(client: Client) -> None:
    reply = client.ask("POST", f"/api/v1{FILES}", {})
    assert (reply.status, client.backend.fetches) == (200, ["all", "here"])
    assert "trial.stdout" in [file["path"] for file in reply.json["files"]]


@pytest.mark.parametrize("name", ["page.html", "x.svg", "x.xml", "x.js", "x.pdf", "x", "x.HTML"])
def test_what_a_browser_might_run_is_only_offered_for_download(client: Client, home: Path, name: str) -> None:
    (home / name).write_text("<script>alert(1)</script>")
    reply = client.get(f"{FILES}/{name}")
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert reply.headers["Content-Disposition"].startswith("attachment")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")


@pytest.mark.parametrize(("name", "kind"), [("a.PNG", "image/png"), ("a.json", "text/plain; charset=utf-8")])
def test_text_and_images_are_shown(client: Client, home: Path, name: str, kind: str) -> None:
    (home / name).write_bytes(b"\x89PNG\r\n\x1a\n" if name == "a.PNG" else b"{}")
    reply = client.get(f"{FILES}/{name}")
    assert (reply.headers["Content-Type"], reply.headers["Content-Disposition"][:6]) == (kind, "inline")


UP = ["..", "%2e%2e", "%2E.", ".%2e", "..%5c..", "%2e%2e%5c", "..%00", "%c0%ae%c0%ae", "%252e%252e", "....", "."]
OUT = [f"{up}{slash}{up}{slash}outside.txt" for up in UP for slash in ("/", "%2f", "%2F", "//")]
ABSOLUTE = [
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "//etc/passwd",
    "%2f%2fetc/passwd",
    "file:///etc/passwd",
    "C:%5cx",
    "~/.bashrc",
]
INSIDE_OUT = [
    "plots/../../../outside.txt",
    "plots%2f..%2f..%2f..%2foutside.txt",
    "plots/../trial.stdout",
    "./trial.stdout",
]


BASES = [
    "/api/v1" + FILES,
    "/api/v1/trials/..%2f..%2f",
    "/api/v1/trials/End02/output",
    "/api/v1/logs",
    "/api/v1/code",
    "",
]
NNI_BASES = ["/api/v1/nni/trial-file/End02", "/api/v1/nni/trial-file/..%2f..", "/api/v1/nni/logs"]


@pytest.mark.parametrize("base", [*BASES, *NNI_BASES])
def test_no_file_address_leads_outside(client: Client, base: str) -> None:
    for path in [*OUT, *ABSOLUTE, *INSIDE_OUT, "plots", "plots/", "%0a", "x" * 5000]:
        reply = client.ask("GET", f"{base}/{path}")
        assert reply.status in (400, 403, 404), path
        assert b"outside-secret" not in reply.body, path
        assert b"root:" not in reply.body, path


@pytest.mark.parametrize("target", ["../../outside.txt", "/etc/passwd", "trial.stdout", ".nni/spec.json"])
def test_no_link_is_followed(client: Client, home: Path, target: str) -> None:
    (home / "link.txt").symlink_to(target)
    assert client.get(f"{FILES}/link.txt").status == 404
    assert "link.txt" not in [file["path"] for file in client.get(FILES).json["files"]]


def test_no_linked_folder_is_entered(client: Client, home: Path) -> None:
    (home / "up").symlink_to(client.backend.folder)
    assert client.get(f"{FILES}/up/outside.txt").status == 404
    assert not [file for file in client.get(FILES).json["files"] if file["path"].startswith("up")]


def test_a_pipe_or_folder_is_no_file_and_blocks_nobody(client: Client, home: Path) -> None:
    os.mkfifo(home / "pipe.txt")
    assert client.get(f"{FILES}/pipe.txt").status == 404


def test_the_keepers_own_files_with_their_token_are_not_shown(client: Client) -> None:
    for path in (
        ".nni/spec.json",
        ".nni%2fspec.json",
        "./.nni/spec.json",
        "plots/../.nni/spec.json",
        "0/spec.json",
        "0/.nni/exit",
    ):
        reply = client.get(f"{FILES}/{path}")
        assert (reply.status, b"trial-secret" in reply.body) == (404, False)


def test_a_file_that_cannot_be_read_is_not_found(home: Path) -> None:
    for name in ("nothing", "trial.stdout/x", "\ud800", "a\0b", "x" * 300):
        with pytest.raises(NotFound):
            open_inside(home, name)


def test_a_folder_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list_folder(tmp_path / "nothing")
    with pytest.raises(NotFound):
        open_inside(tmp_path / "nothing", "x")


def test_a_file_swapped_for_a_link_while_it_is_asked_for_is_never_followed(client: Client, home: Path) -> None:
    secret = client.backend.folder / "outside.txt"
    for turn in range(200):
        (home / "swap.txt").unlink(missing_ok=True)
        if turn % 2:
            (home / "swap.txt").symlink_to(secret)
        else:
            (home / "swap.txt").write_text("mine")
        reply = client.get(f"{FILES}/swap.txt")
        assert (reply.status, reply.body if reply.status == 200 else b"mine") == (404 if turn % 2 else 200, b"mine")


def test_a_piece_of_a_log_is_read_from_either_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"0123456789")
    pieces = [read_piece(path.parent, path.name, offset, 4) for offset in (0, 8, 99, -3, -99)]
    assert [(one.data, one.offset) for one in pieces] == [
        (b"0123", 0),
        (b"89", 8),
        (b"", 10),
        (b"789", 7),
        (b"0123", 0),
    ]


def test_a_folder_that_hangs_is_told_in_time_and_few_threads_wait_for_it(
    client: Client, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hanging(root: Path, relative: str) -> Any:
        if answers.is_set():
            return open_below(root, relative)
        answers.wait(60)
        raise OSError(errno.EIO, "the server has come back")

    monkeypatch.setattr("nnilite._rest.files._LOOKS", FolderLooks(limit_s=0.3))
    monkeypatch.setattr("nnilite._rest.files.open_below", hanging)
    before = threading.active_count()
    for _ in range(20):
        reply = client.get(f"{FILES}/trial.stdout")
        assert (reply.status, b"no answer within" in reply.body) == (503, True)
    assert threading.active_count() - before < 5
    answers.set()
    eventually(lambda: client.get(f"{FILES}/trial.stdout").status == 200)


@pytest.mark.parametrize(
    ("content", "media", "disposition"),
    [
        (b"\x89PNG\r\n\x1a\n and the rest", "image/png", "inline"),
        (b"\xff\xd8\xff\xe0", "image/jpeg", "inline"),
        (b"<svg onload='alert(1)'></svg>", "application/octet-stream", "attachment"),
        (b"<script>alert(1)</script>", "application/octet-stream", "attachment"),
        (b"", "application/octet-stream", "attachment"),
    ],
)
def test_an_image_has_the_type_of_its_first_bytes_whatever_its_name_says(
    client: Client, home: Path, content: bytes, media: str, disposition: str
) -> None:
    (home / "plot.png").write_bytes(content)
    reply = client.get(f"{FILES}/plot.png")
    assert reply.body == content
    assert reply.headers["Content-Type"] == media
    assert reply.headers["Content-Disposition"].startswith(disposition)
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
