"""The dashboard: a small web server that only reads runs, and one page that follows them.

The page asks for updates every two seconds and needs nothing from other hosts.  It draws its curves with uPlot (MIT, in
page/), because a page of Dash loads some 4 MB before it shows any.
"""

import gzip
import hashlib
import hmac
import ipaddress
import json
import os
import re
import secrets
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from mpies.core.errors import ConfigError, RunError
from mpies.core.text import one_line
from mpies.report.web.run_index import AXES, RunIndex, explaining
from mpies.report.web.run_update import DOWNLOADS, MAX_SENT, PICTURES
from mpies.report.web.sweep_table import find_sweeps, read_sweep_table

_PAGE = {  # path of a URL to (file in page/, type)
    "/": ("page.html", "text/html"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in ("page", "charts", "run", "compare", "sweep")},
    "/page.css": ("page.css", "text/css"),
    "/uPlot.js": ("uPlot.iife.min.js", "text/javascript"),
    "/uPlot.css": ("uPlot.min.css", "text/css"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
SECONDS = 10.0  # that a request may look for runs, and then read them
_CLIENT_HAS_LEFT = (ConnectionError, TimeoutError)


def serve(folder: str | Path, host: str, port: int) -> "Server":
    """A server of the runs below `folder`, bound to its port but not yet serving.  Raises ConfigError."""
    if not Path(folder).is_dir():
        raise ConfigError(f"{folder}: is not a folder; give the one that contains your runs")
    try:
        return Server((host, port), RunIndex(Path(folder).resolve(), SECONDS))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{host}:{port} cannot be listened on ({reason}); take another --host or --port") from None


class Server(ThreadingHTTPServer):
    """Serves the page and the JSON that it asks for, to those who know the token.

    token: a secret, since all users of a machine can reach its ports.  is_local: whether only this machine can.
    """

    daemon_threads = True
    request_queue_size = 1024  # connections that wait to be accepted; at the default of 5, bursts of clients are lost

    def __init__(self, address: tuple[str, int], runs: RunIndex) -> None:
        self.token = secrets.token_urlsafe(24)
        # Browsers keep one set of cookies for all ports of a host; of its name nobody learns the token.
        self.cookie = f"mpies-{hashlib.sha256(self.token.encode()).hexdigest()[:16]}"
        self.runs, self.lock = runs, threading.Lock()  # a request holds the lock while it reads runs
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)
        self.is_local = ipaddress.ip_address(str(self.server_address[0])).is_loopback

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's would look up this machine's name in the network

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what went wrong in an answer.  A client that leaves, or does not read, is no error."""
        if not isinstance(sys.exc_info()[1], _CLIENT_HAS_LEFT):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={self.token}"

    def is_known(self, token: str, cookies: str) -> bool:
        """Whether a request comes from someone who knows the token, by its address or its cookies."""
        given = [token, *re.findall(rf"(?:^|;) *{self.cookie}=([^; ]+)", cookies)]
        return any(hmac.compare_digest(one.encode(errors="replace"), self.token.encode()) for one in given)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # at the default of 0.9, a request without a version gets no status line
    error_message_format, error_content_type = "%(code)d %(message)s\n", "text/plain; charset=utf-8"
    timeout = 60  # seconds that a silent connection is kept

    def do_GET(self) -> None:
        try:
            url, host = urlsplit(self.path), urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        except ValueError as error:  # such as an unpaired [
            self._refuse(HTTPStatus.BAD_REQUEST, f"malformed address or Host: {error}")
            return
        try:
            self._answer(url, host)
        except _CLIENT_HAS_LEFT:
            raise
        except Exception:
            self._refuse(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the dashboard failed; the terminal where it was started shows why"
            )
            raise

    def do_HEAD(self) -> None:
        self.do_GET()  # `_send` leaves the content out

    def _answer(self, url: SplitResult, host: str) -> None:
        """Answer a request.  host: the name that the client has asked for, without the port."""
        queries = parse_qs(url.query)
        query = {key: values[0] for key, values in queries.items()}
        if self.server.is_local and not _is_local(host):
            # Another site may resolve its own name to this address, and must not read the runs.
            self._refuse(HTTPStatus.FORBIDDEN, "open it as localhost, or start it with --host 0.0.0.0")
        elif not self.server.is_known(query.get("token", ""), self.headers.get("Cookie", "")):
            self._refuse(HTTPStatus.FORBIDDEN, "open the address with ?token= that mpies dashboard has printed")
        elif url.path not in _PAGE and not self._is_ours():
            self._refuse(HTTPStatus.FORBIDDEN, "another site has asked; only the page itself may")
        elif url.path in _PAGE:
            file, kind = _PAGE[url.path]
            known = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
            content = resources.files("mpies.report.web").joinpath("page", file).read_bytes()
            self._send(content, f"{kind}; charset=utf-8", headers={"Set-Cookie": known} if query else {})
        elif url.path.startswith("/api/"):
            try:
                with self.server.lock:
                    found = self._find(url.path.removeprefix("/api/"), query, queries.get("run", []))
            except RunError as error:
                self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, one_line(error))
                return
            self._refuse(HTTPStatus.NOT_FOUND, "not found") if found is None else self._send_json(found)
        elif url.path == "/file":
            self._send_file(query.get("run", ""), query.get("file", ""))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "no such page")

    def _is_ours(self) -> bool:
        """Whether the page or the user has made this request, as far as the browser tells."""
        origin = self.headers.get("Origin", "").rpartition("/")[2]
        site = self.headers.get("Sec-Fetch-Site", "none")
        return origin in ("", self.headers.get("Host")) and site in ("none", "same-origin")

    def _find(self, what: str, query: Mapping[str, str], names: list[str]) -> Any:
        """The values that the page asks for, of `names` to compare; None where there is nothing of this name."""
        runs, name = self.server.runs, query.get("name", "")
        if what == "runs":
            return runs.summaries()
        if what == "sweeps":
            return find_sweeps(runs.folder, time.monotonic() + runs.seconds)
        if what == "sweep":
            with explaining(f"{name}: "):
                return read_sweep_table(runs.folder, name)
        if what == "compare":  # what is unknown is taken for the default
            axis = query.get("axis", "")
            axis, drawn = axis if axis in AXES else AXES[0], query.get("drawn", "")
            return runs.read_overlay(names, axis, drawn)
        return runs.read_update(name) if what == "run" else None

    def _send_file(self, name: str, file: str) -> None:
        """Send a file of a run: a download, or a picture or video, or the part of it that Safari asks for."""
        kind = PICTURES.get(Path(file).suffix)
        content = self._read(name, file) if file in DOWNLOADS or (kind and "/" not in file) else None
        if content is None:
            self._refuse(HTTPStatus.NOT_FOUND, "no such file, or one that is too large for the page")
            return
        if kind is None:
            label = f"{self.server.runs.folder.name if name == '.' else name.replace('/', '-')}-{file}"
            attachment = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(label, errors='replace')}"}
            self._send(content, "application/octet-stream", headers=attachment)
            return
        part = re.fullmatch(r"bytes=(\d{1,15})-(\d{0,15})", self.headers.get("Range", ""))
        start, end = (int(part[1]), int(part[2] or len(content) - 1)) if part else (0, len(content) - 1)
        end = min(end, len(content) - 1)
        if not part or start > end:
            self._send(content, kind, headers={"Accept-Ranges": "bytes"})
            return
        where = {"Content-Range": f"bytes {start}-{end}/{len(content)}"}
        self._send(content[start : end + 1], kind, HTTPStatus.PARTIAL_CONTENT, where)

    def _read(self, name: str, file: str) -> bytes | None:
        """The content of a file of a run; None where there is none, or it is too large."""
        with self.server.lock:
            view = self.server.runs.find(name)
        try:
            if view is None:
                return None
            with view.open(file) as opened:
                return opened.read() if os.fstat(opened.fileno()).st_size <= MAX_SENT else None
        except (OSError, ValueError):  # ValueError: the name has a NUL
            return None

    def _send_json(self, values: Any) -> None:
        """Send values, or nothing where the client has them already."""
        text = json.dumps(_as_json(values), separators=(",", ":"), default=str, ensure_ascii=False, allow_nan=False)
        content = text.encode(errors="replace")  # a name may not be UTF-8
        tag = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        if self.headers.get("If-None-Match") == tag["ETag"]:
            self._send(b"", "application/json", HTTPStatus.NOT_MODIFIED, tag)
        else:
            self._send(content, "application/json", headers=tag)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._send(f"{status} {text}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(
        self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
    ) -> None:
        headers = {**_HEADERS, **(headers or {}), "Content-Type": kind}
        is_packed = kind.startswith(("image/", "video/"))
        if not is_packed and len(content) > 1000 and "gzip" in self.headers.get("Accept-Encoding", ""):
            content = gzip.compress(content, 5, mtime=0)
            headers["Content-Encoding"] = "gzip"
        self.send_response(status)
        if status != HTTPStatus.NOT_MODIFIED:
            headers["Content-Length"] = str(len(content))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the page asks every two seconds."""


def _as_json(value: Any) -> Any:
    """The value with None for the numbers that JSON or a browser lacks, and texts for the keys of mappings."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(inner) for inner in value]
    return None if isinstance(value, (int, float)) and not abs(value) < 1e300 else value


def _is_local(name: str) -> bool:
    """Whether the name in a Host header, without its port, is one that this machine alone has."""
    try:
        return name == "localhost" or name.endswith(".localhost") or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
