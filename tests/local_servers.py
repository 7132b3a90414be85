"""Local servers to download from."""

from __future__ import annotations

import hashlib
import re
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from l2route.files.download import RemoteFile

BODY = bytes(range(256)) * 8192  # 2 MiB: more than one chunk


@dataclass
class Server:
    """A small web server with configurable faults."""

    files: dict[str, bytes]
    url: str = ""
    with_ranges: bool = True
    cut_after: int | None = None
    """Bytes after which every connection is closed."""
    length: str | None = "right"
    """Content-Length header; "right" for the true one, None for no header."""
    ranges: str | None = None
    """Content-Range header of errors."""
    statuses: list[int] = field(default_factory=list)
    """Status codes of errors for the first requests."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Paths and Range headers of the requests."""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Serve one request."""
        span = handler.headers["Range"]
        self.requests.append((handler.path, span))
        body = self.files.get(handler.path.removeprefix("/"))
        if self.statuses or body is None:
            return self.refuse(handler, self.statuses.pop(0) if self.statuses else 404)
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", span or "")
        if not match or not self.with_ranges:
            return self.send(handler, 200, body, {})
        first, last = int(match[1]), min(int(match[2] or len(body)), len(body) - 1)
        if first >= len(body):
            return self.refuse(handler, 416, {"Content-Range": f"bytes */{len(body)}"})
        headers = {"Content-Range": f"bytes {first}-{last}/{len(body)}"}
        return self.send(handler, 206, body[first : last + 1], headers)

    def send(
        self, handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: Mapping[str, str]
    ) -> None:
        """Send a body, up to `cut_after` bytes."""
        handler.send_response(status)
        if self.length is not None:
            length = str(len(body)) if self.length == "right" else self.length
            headers = {**headers, "Content-Length": length}
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body[: self.cut_after])

    def refuse(
        self, handler: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with an error."""
        headers = headers or ({} if self.ranges is None else {"Content-Range": self.ranges})
        self.send(handler, status, b"no", headers)

    def remote(self, name: str, checksum: str | None = "right", **options: Any) -> RemoteFile:
        """Describe a file of the server, by default with its checksum."""
        if checksum == "right":
            checksum = f"sha256:{hashlib.sha256(self.files[name]).hexdigest()}"
        return RemoteFile(f"{self.url}/{name}", checksum, **options)


@contextmanager
def serving(files: Mapping[str, bytes], **faults: Any) -> Iterator[Server]:
    """Run a web server within a block."""
    server = Server(dict(files), **faults)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                server.answer(self)
            except ConnectionError:
                self.close_connection = True  # the client has disconnected

        def log_message(self, *args: object) -> None:
            pass

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server


@contextmanager
def running(server: socketserver.TCPServer) -> Iterator[int]:
    """Run a server in a thread within a block, and yield its port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    with server:
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class FtpHandler(socketserver.StreamRequestHandler):
    """An FTP server for one file."""

    def handle(self) -> None:
        """Answer commands until the client disconnects."""
        self.wfile.write(b"220 hello\r\n")
        with socket.create_server(("127.0.0.1", 0)) as passive:
            replies = {
                "PASV": b"227 passive (127,0,0,1,%d,%d)" % divmod(passive.getsockname()[1], 256),
                "RETR": b"150 here are %d bytes (%d bytes)" % (len(BODY), len(BODY)),
                "QUIT": b"221 bye",
            }
            for line in self.rfile:
                command = line.decode().split()[0]
                self.wfile.write(replies.get(command, b"200 fine") + b"\r\n")
                if command == "RETR":
                    with passive.accept()[0] as connection:
                        connection.sendall(BODY)
                    self.wfile.write(b"226 done\r\n")
