"""A small server that speaks the part of the Hugging Face hub's API that huggingface_hub uses to read models.

It serves model info and file trees by revision, and files with HEAD, GET and ranges. No writing, no tokens, no Xet.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

Files = Mapping[str, bytes]
INFO = re.compile(r"/api/models/(.+?)/revision/([^/]+)")
TREE = re.compile(r"/api/models/(.+?)/tree/([^/]+)")
FILE = re.compile(r"/(.+?)/resolve/([^/]+)/(.+)")


@dataclass
class HubServer:
    """Repositories by name, each with its commits (40 hexadecimal digits -> files) and branches (name -> commit).

    `cut_after` lets the next answer with a file's bytes end after so many of them, as a lost connection does; then it
    is None again. `requests` lists what was asked, as `GET /path bytes=…`.
    """

    url: str = ""
    commits: dict[str, dict[str, Files]] = field(default_factory=dict)
    branches: dict[str, dict[str, str]] = field(default_factory=dict)
    cut_after: int | None = None
    requests: list[str] = field(default_factory=list)

    def push(self, repo: str, files: Files, branch: str = "main") -> str:
        """Add a commit to a branch; returns its name."""
        known = self.commits.setdefault(repo, {})
        commit = hashlib.sha1(f"{repo} {len(known)}".encode()).hexdigest()
        known[commit] = dict(files)
        self.branches.setdefault(repo, {})[branch] = commit
        return commit

    def find(self, repo: str, revision: str) -> tuple[str, Files] | None:
        commit = self.branches.get(repo, {}).get(revision, revision)
        files = self.commits.get(repo, {}).get(commit)
        return None if files is None else (commit, files)


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """A server on a free port of this machine, for the length of a `with` block."""
    hub = HubServer()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the console; `hub.requests` has it."""

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path} {self.headers.get('Range', '')}".rstrip())
        for pattern, answer in ((INFO, self._info), (TREE, self._tree), (FILE, self._file)):
            if match := pattern.fullmatch(path):
                answer(*match.groups())
                return
        self._missing("EntryNotFound")

    def _info(self, repo: str, revision: str) -> None:
        if found := self._found(repo, revision):
            names = [{"rfilename": name} for name in sorted(found[1])]
            self._json({"id": repo, "modelId": repo, "sha": found[0], "siblings": names})

    def _tree(self, repo: str, revision: str) -> None:
        if found := self._found(repo, revision):
            self._json(
                [
                    {"type": "file", "path": name, "size": len(content), "oid": _etag(content)}
                    for name, content in sorted(found[1].items())
                ]
            )

    def _file(self, repo: str, revision: str, name: str) -> None:
        found = self._found(repo, revision)
        if not found:
            return
        commit, files = found
        if name not in files:
            self._missing("EntryNotFound")
            return
        content, status = files[name], 200
        headers = {"ETag": f'"{_etag(content)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(match[1]), int(match[2] or len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            content, status = content[start : end + 1], 206
        self._send(status, headers, content)

    def _found(self, repo: str, revision: str) -> tuple[str, Files] | None:
        found = self.hub.find(repo, revision)
        if found is None:
            self._missing("RevisionNotFound" if repo in self.hub.commits else "RepoNotFound")
        return found

    def _missing(self, code: str) -> None:
        self._send(404, {"X-Error-Code": code, "X-Error-Message": code}, b"")

    def _json(self, content: object) -> None:
        self._send(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def _send(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.hub.cut_after is not None and "ETag" in headers:
            content, self.hub.cut_after = content[: self.hub.cut_after], None
            self.close_connection = True
        self.wfile.write(content)


def _etag(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
