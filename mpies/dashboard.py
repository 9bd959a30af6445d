"""The live page: a small server that only reads, and one page with the curves.

The page asks again every two seconds and is sent what is new.  It needs nothing from any other host.
Its curves are drawn by uPlot (MIT, in page/), since a page of Dash loads some 4 MB before it shows any.
"""

import csv
import functools
import gzip
import ipaddress
import json
import math
import socket
import socketserver
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np

from mpies.config import ConfigError
from mpies.run_view import RunView, find_runs, intervals

POINTS = 400  # of a curve at first; later ones are added as they come
TAIL = 16_000  # bytes of a log or a table that are looked at from its end
_DOWNLOADS = ("best.h5", "policy.h5", "metrics.csv", "log.txt", "config.yaml", "report.html")
_PAGE = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
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


def serve(folder, host, port):
    """A server of the runs below `folder`, bound but not yet serving.  Raises ConfigError."""
    if not Path(folder).is_dir():
        raise ConfigError(f"{folder}: is no folder; give one with run directories in it, such as runs")
    try:
        return Server((host, port), Runs(Path(folder).resolve()))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{host}:{port} cannot be listened on ({reason}); take another --host or --port") from None


class Runs:
    """The runs below a folder, as the page is told of them."""

    def __init__(self, folder):
        self.folder = folder
        self._views: dict = {}  # name to RunView
        self._summaries: dict = {}  # name to (stamps, what the list says)
        self._lock = threading.Lock()

    def list(self):
        """A dict for each run: name, state, what it trains, and its newest numbers."""
        with self._lock:
            names = find_runs(self.folder)
            self._views = {name: self._views.get(name) or RunView(self.folder, name) for name in names}
            self._summaries = {name: self._summary(name) for name in names}
            return [{**said, "state": self._views[name].state()} for name, (_, said) in self._summaries.items()]

    def _summary(self, name):
        view = self._views[name]
        stamps = tuple(view.stamp(file) for file in ("config.yaml", "metrics.csv"))
        known, said = self._summaries.get(name, (None, None))
        if known == stamps:
            return known, said
        if known and known[0] == stamps[0]:
            about = {key: said[key] for key in ("name", "environment", "solver", "target")}
        else:
            config = view.config()
            about = {"name": name, "environment": _at(config, "environment", "id")}
            about |= {"solver": _at(config, "solver", "kind"), "target": _at(config, "stop", "target")}
        return stamps, about | newest_numbers(view)

    def find(self, name):
        """The RunView of a name, or None."""
        with self._lock:
            known = name in self._views
        if not known:
            self.list()
        with self._lock:
            return self._views.get(name)

    def show(self, name, version, after, log):
        """All of a run, or what is new since `version` and `after` rows, and since byte `log` of its log; or None."""
        view = self.find(name)
        if view is None:
            return None
        with self._lock:
            metrics = view.metrics.refresh()
            columns, rows, now = dict(metrics.columns), len(metrics), metrics.version
        again = version != now or not 0 <= after <= rows or rows - after > POINTS
        config = view.config()
        if columns.keys() >= {"eval_std"}:
            columns["eval_interval"] = intervals(columns, _at(config, "evaluation", "episodes") or math.nan)
        newest = {key: _plain(value[np.isfinite(value)][-1:]) for key, value in columns.items()}
        per_point = max(1, -(-rows // POINTS)) if again else 1
        columns = thin(columns, per_point) if again else {key: value[after:] for key, value in columns.items()}
        said = {"name": name, "version": now, "rows": rows, "again": again, "per_point": per_point}
        said["newest"] = {key: value[0] for key, value in newest.items() if value}
        said |= {"columns": {key: _plain(value) for key, value in columns.items()}, "log": tail(view, "log.txt", log)}
        said |= {"state": view.state(), "silence": view.silence(), "finished": view.finished(), "ranks": view.ranks()}
        if again:
            said |= {"target": _at(config, "stop", "target"), "config": view.text("config.yaml")}
        said["files"] = [file for file in _DOWNLOADS if view.stamp(file)]
        return said


def _at(values, section, key):
    inner = values.get(section)
    return inner.get(key) if isinstance(inner, dict) else None


def newest_numbers(view):
    """The newest generation, return and evaluation of a run, from the end of its metrics alone."""
    try:
        with view.open("metrics.csv") as file:
            header = file.readline().decode(errors="replace").strip().split(",")
            begin = file.tell()
            end = file.seek(0, 2)
            start = file.seek(max(begin, end - TAIL))
            lines = file.read().decode(errors="replace").split("\n")[start > begin : -1]
    except OSError:
        return {}
    rows = [dict(zip(header, row, strict=True)) for row in csv.reader(lines) if len(row) == len(header)]
    found = {}
    for name in ("generation", "return_mean", "eval_mean", "seconds"):
        cell = next((row[name] for row in reversed(rows) if row.get(name)), None)
        if cell is not None:
            found[name] = cell
    return {name: _rounded(cell) for name, cell in found.items()}


def _rounded(cell):
    try:
        value = float(f"{float(cell):.5g}")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def thin(columns, per_point):
    """Columns with one value for each so-many rows: lowest, highest, newest or mean, as fits what they mean."""
    if per_point == 1 or not columns:
        return columns
    return {name: _thin(name, values, per_point) for name, values in columns.items()}


def _thin(name, values, per_point):
    starts = np.arange(0, len(values), per_point)
    if name in ("generation", "seconds", "episodes", "steps"):
        return values[np.minimum(starts + per_point, len(values)) - 1]
    if name in ("return_min", "ranks"):
        return np.fmin.reduceat(values, starts)
    if name in ("return_max", "idle_max", "failures"):
        return np.fmax.reduceat(values, starts)
    known = np.isfinite(values)
    with np.errstate(all="ignore"):
        return np.add.reduceat(np.where(known, values, 0), starts) / np.add.reduceat(known.astype(float), starts)


def _plain(values):
    """Numbers for JSON, six digits each; None for what is not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]


def tail(view, name, start):
    """The text of a file from byte `start`, or from near its end; and the byte to go on from."""
    try:
        with view.open(name) as file:
            end = file.seek(0, 2)
            near = max(0, end - TAIL)
            begin = start if near <= start <= end else near
            file.seek(begin)
            content = file.read(TAIL)
    except OSError:
        return {"text": "", "start": 0, "end": 0}
    if begin and begin != start:
        content = content[content.find(b"\n") + 1 :]
    return {"text": content.decode(errors="replace"), "start": begin, "end": begin + len(content)}


class Server(ThreadingHTTPServer):
    """Serves the page and what it asks for."""

    daemon_threads = True

    def __init__(self, address, runs):
        self.runs = runs
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)
        self.is_local = ipaddress.ip_address(self.server_address[0]).is_loopback

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)  # HTTPServer's asks the name service for this machine's name

    @property
    def url(self):
        host, port = self.server_address[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


@functools.cache
def _page(file):
    return resources.files("mpies").joinpath("page", file).read_bytes()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds that a silent connection is kept

    def do_GET(self):
        url = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(url.query).items()}
        if self.server.is_local and not _is_local(self.headers.get("Host", "")):
            # Another site's name that was made to lead here must not read the runs.
            self._refuse(HTTPStatus.FORBIDDEN, "ask for localhost, or start with --host")
        elif url.path in _PAGE:
            file, kind = _PAGE[url.path]
            self._send(_page(file), f"{kind}; charset=utf-8")
        elif url.path == "/api/runs":
            self._send_json(self.server.runs.list())
        elif url.path == "/api/run":
            numbers = (_whole(asked.get(name)) for name in ("version", "after", "log"))
            said = self.server.runs.show(asked.get("name", ""), *numbers)
            self._refuse(HTTPStatus.NOT_FOUND, "no such run") if said is None else self._send_json(said)
        elif url.path == "/download":
            self._download(asked.get("run", ""), asked.get("file", ""))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "no such page")

    def _download(self, name, file):
        view = self.server.runs.find(name)
        try:
            if view is None or file not in _DOWNLOADS:
                raise FileNotFoundError
            with view.open(file) as opened:
                content = opened.read()
        except OSError:
            self._refuse(HTTPStatus.NOT_FOUND, "no such file")
            return
        label = f"{self.server.runs.folder.name if name == '.' else name.replace('/', '-')}-{file}"
        attachment = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(label)}"}
        self._send(content, "application/octet-stream", headers=attachment)

    def _send_json(self, values):
        self._send(json.dumps(values, separators=(",", ":"), default=str).encode(), "application/json")

    def _refuse(self, status, text):
        self._send(f"{status} {text}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(self, content, kind, status=HTTPStatus.OK, headers=None):
        headers = {**_HEADERS, **(headers or {}), "Content-Type": kind}
        if len(content) > 1000 and "gzip" in self.headers.get("Accept-Encoding", ""):
            content = gzip.compress(content, 5, mtime=0)
            headers["Content-Encoding"] = "gzip"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(content)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format, *args):
        """Say nothing: the page asks every two seconds."""


def _is_local(host):
    """Whether a Host header names this machine from inside."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or name.endswith(".localhost") or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _whole(text):
    """A whole number from a query; -1 for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else -1
