"""Serves the user interface from nnilite/_web.

By its security policy a page runs nothing but these files. They hold nothing of the experiment, so they need no
sign-in, and the page signs in by itself, with the key of a link or what it has kept of an earlier sign-in.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from tornado.web import HTTPError, StaticFileHandler

from nnilite._rest.handler import BaseHandler, ServerContext, drop_old_cookies
from nnilite._rest.refusal import HttpRefusal, status_of
from nnilite._rest.route_definition import Route

# The script in the pages: a browser whose network changes while it loads a page abandons single files, and the one
# that starts the page must not be among them.
_START = "'sha256-BfY3Lx5Ze6/1FpA43000gbI8xCwLXWhdIlmxtBaz8Ro='"
WEB_POLICY = (
    f"default-src 'self'; script-src 'self' {_START}; img-src 'self' blob:; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'"
)
_WORTH_PACKING = (".js", ".css")
_CHUNK_BYTES = 8 * 1024  # memory that a reader occupies if it accepts nothing


class WebHandler(BaseHandler, StaticFileHandler):
    """Serves the user interface."""

    policy = WEB_POLICY

    def initialize(self, context: ServerContext) -> None:  # type: ignore[override]
        self.context = context
        StaticFileHandler.initialize(self, str(context.options.web_folder), context.options.page)

    def checks_sender(self) -> bool:
        return False

    def set_default_headers(self) -> None:
        super().set_default_headers()
        # A page that opens this one, such as that of another port, keeps no hold of it.
        self.set_header("Cross-Origin-Opener-Policy", "same-origin")

    async def check(self) -> None:
        self.context.gate.check_source(self.request)
        if self.request.method not in ("GET", "HEAD"):
            raise HTTPError(405)
        if "\0" in (self.path_kwargs.get("path") or ""):
            raise HTTPError(404)  # calls of the system would raise ValueError
        drop_old_cookies(self)
        if self.request.path == self.context.options.prefix:
            self._go_home()  # without its last slash, the page's relative addresses would be wrong

    def _go_home(self) -> None:
        self.set_status(303)
        self.set_header("Location", f"{self.context.options.prefix}/")
        self.finish()

    async def get(self, path: str = "", include_body: bool = True) -> None:
        """Send a file, compressed for browsers far away that take that."""
        if Path(path).suffix not in _WORTH_PACKING or not self._may_pack():
            return await super().get(path, include_body)
        self.path = self.parse_url_path(path)
        found = self.validate_absolute_path(self.root, self.get_absolute_path(self.root, self.path))
        if found is None:
            return None
        self.absolute_path = found
        self.modified = self.get_modified_time()
        self.set_headers()
        if self.should_return_304():
            self.set_status(304)
            return None
        content = _pack(found, Path(found).stat().st_mtime_ns)
        self.set_header("Content-Encoding", "gzip")
        self.set_header("Content-Length", len(content))
        for begin in range(0, len(content) if include_body else 0, _CHUNK_BYTES):
            self.write(content[begin : begin + _CHUNK_BYTES])
            await self.flush()
        return None

    def _may_pack(self) -> bool:
        headers = self.request.headers
        return "gzip" in headers.get("Accept-Encoding", "") and "Range" not in headers

    @classmethod
    def get_content(
        cls, abspath: str, start: int | None = None, end: int | None = None
    ) -> Generator[bytes, None, None]:
        """Yield the bytes of a file from `start` to before `end`, in small pieces."""
        with Path(abspath).open("rb") as file:
            left = (file.seek(0, 2) if end is None else end) - (start or 0)
            file.seek(start or 0)
            while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
                left -= len(chunk)
                yield chunk

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Vary", "Accept-Encoding")
        self.set_header("Cache-Control", "no-cache")  # the browser asks each time, with the ETag

    def compute_etag(self) -> str | None:
        return StaticFileHandler.compute_etag(self)

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        """Check a path as tornado does, and refuse links that lead out of the folder."""
        found = super().validate_absolute_path(root, absolute_path)
        if found is not None and not Path(found).resolve().is_relative_to(Path(root).resolve()):
            raise HTTPError(404)
        return found

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Show an error as a page."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        status = status_of(error) if error is not None else status_code
        self.set_status(status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        if status == 405:
            self.set_header("Allow", ", ".join(self.allowed()))
        message = str(error) if isinstance(error, HttpRefusal) else "There is no such page."
        home = escape(f"{self.context.options.prefix}/")
        way_home = f'<p><a href="{home}">Go to the start page</a></p>' if status == 404 else ""
        self.finish(page("nnilite", f"<p>{escape(message)}</p>{way_home}"))

    def allowed(self) -> list[str]:
        return ["GET", "HEAD"]


# Callers who are not signed in get no thread, so it happens on the event loop: once for each file, at a level that
# takes 16 ms for the largest.
@lru_cache(maxsize=256)
def _pack(path: str, changed_ns: int) -> bytes:
    """Return a file as gzip. `changed_ns`: a file that has changed is read again."""
    packer = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
    return packer.compress(Path(path).read_bytes()) + packer.flush()


class PlainPage(WebHandler):
    """Replaces the user interface if its files are not installed, by a list of the API's routes."""

    def initialize(self, context: ServerContext, routes: tuple[Route, ...]) -> None:  # type: ignore[override]
        super().initialize(context)
        self._routes = routes

    def compute_etag(self) -> str | None:
        return None

    async def get(self, path: str = "", include_body: bool = True) -> None:
        if path:
            raise HTTPError(404)
        rows = "".join(_row(route) for route in self._routes)
        self.finish(page("nnilite", f"<p>The API of this experiment:</p><table>{rows}</table>"))


def page(title: str, body: str) -> str:
    """Return a whole page. `body` is HTML, so any text in it must be escaped already."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{escape(title)}</h1>{body}</body></html>'


def _row(route: Route) -> str:
    return "".join(
        f"<tr><td>{method}</td><td>/api/v1{escape(route.path)}</td><td>{escape(operation.text)}</td></tr>"
        for method, operation in route.operations.items()
    )
