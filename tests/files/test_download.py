"""Laws of downloads, checked against local servers."""

from __future__ import annotations

import hashlib
import itertools
import os
import socketserver
from collections.abc import Callable
from pathlib import Path

import pytest

from l2route.files import download as downloading
from l2route.files.download import RemoteFile, download
from local_servers import BODY, FtpHandler, running, serving


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait before retries."""
    monkeypatch.setattr(downloading, "_RETRY_SECONDS", 0.001)


def test_file_is_downloaded_and_kept(tmp_path: Path) -> None:
    """A download equals the served file, reports its progress, and is not fetched again."""
    seen: list[tuple[int, int | None]] = []
    with serving({"a.bin": BODY}) as server:
        file = server.remote("a.bin", size=len(BODY))
        path = download(file, tmp_path, progress=lambda done, total: seen.append((done, total)))
        assert path == tmp_path / "a.bin"
        assert path.read_bytes() == BODY
        assert seen[-1] == (len(BODY), len(BODY))
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        download(file, tmp_path)
        assert len(server.requests) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_file_is_downloaded_by_ftp(tmp_path: Path) -> None:
    """By FTP, which has no ranges, a file is read from the start and an old part is replaced."""
    (tmp_path / "a.bin.part").write_bytes(b"x" * 1000)
    with running(socketserver.ThreadingTCPServer(("127.0.0.1", 0), FtpHandler)) as port:
        checksum = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
        file = RemoteFile(f"ftp://127.0.0.1:{port}/a.bin", checksum, len(BODY))
        path = download(file, tmp_path, timeout=5)
    assert path.read_bytes() == BODY


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_checksums_of_either_kind(tmp_path: Path, algorithm: str) -> None:
    """A checksum may be md5 or sha256."""
    with serving({"a.bin": BODY}) as server:
        digest = hashlib.new(algorithm, BODY).hexdigest()
        path = download(server.remote("a.bin", f"{algorithm}:{digest}"), tmp_path)
    assert path.read_bytes() == BODY


def test_download_resumes_from_a_part(tmp_path: Path) -> None:
    """The bytes of an earlier attempt are not fetched again."""
    (tmp_path / "a.bin.part").write_bytes(BODY[:1000])
    with serving({"a.bin": BODY}) as server:
        assert download(server.remote("a.bin"), tmp_path).read_bytes() == BODY
        assert server.requests == [("/a.bin", "bytes=1000-")]


def test_server_without_ranges_starts_anew(tmp_path: Path) -> None:
    """If the server ignores the range, the file is read from the start."""
    (tmp_path / "a.bin.part").write_bytes(b"x" * 1000)
    with serving({"a.bin": BODY}, with_ranges=False) as server:
        assert download(server.remote("a.bin"), tmp_path).read_bytes() == BODY


def test_cut_connections_are_resumed(tmp_path: Path) -> None:
    """Broken connections are resumed as long as each brings enough bytes."""
    n_cut = len(BODY) // 10 + 1
    with serving({"a.bin": BODY}, cut_after=n_cut) as server:
        assert download(server.remote("a.bin"), tmp_path).read_bytes() == BODY
        assert [span for _, span in server.requests][:2] == [None, f"bytes={n_cut}-"]
        assert len(server.requests) == 10


def test_hopeless_connections_are_given_up(tmp_path: Path) -> None:
    """A server that never delivers the whole file is an OSError; the bytes so far are kept."""
    with serving({"a.bin": BODY}, cut_after=100, with_ranges=False) as server:
        with pytest.raises(OSError, match="got 100 before the connection closed"):
            download(server.remote("a.bin"), tmp_path)
        assert len(server.requests) < 10
    assert (tmp_path / "a.bin.part").read_bytes() == BODY[:100]
    with pytest.raises(OSError, match=r"expected the file, got .*refused"):
        download(server.remote("a.bin"), tmp_path, timeout=1)


@pytest.mark.parametrize(("n_cut", "size"), [(1, None), (1, 10**6), (5000, 10**6), (60_000, None)])
def test_a_trickle_is_given_up(tmp_path: Path, n_cut: int, size: int | None) -> None:
    """Connections that each bring only a few bytes are given up."""
    body = BODY[: 10**6]
    with serving({"a.bin": body}, cut_after=n_cut) as server:
        with pytest.raises(OSError, match=f"got {4 * n_cut} before the connection closed"):
            download(server.remote("a.bin", size=size), tmp_path)
        assert len(server.requests) == 4


def test_starting_over_is_no_progress(tmp_path: Path) -> None:
    """If the server always starts over, only bytes beyond the longest attempt count as progress."""
    lengths = itertools.cycle([1_000_000, 500_000])
    with serving({"a.bin": BODY}, with_ranges=False) as server:

        class Cutting(list[tuple[str, str | None]]):
            def append(self, request: tuple[str, str | None]) -> None:
                super().append(request)
                server.cut_after = next(lengths)

        server.requests = Cutting()
        with pytest.raises(OSError, match="before the connection closed"):
            download(server.remote("a.bin"), tmp_path)
        assert len(server.requests) == 4


@pytest.mark.parametrize("length", [None, "right"])
@pytest.mark.parametrize("options", [{"size": 100_000}, {"head": 100_000}])
def test_no_more_is_written_than_is_known(
    tmp_path: Path, length: str | None, options: dict[str, int]
) -> None:
    """No more bytes than the known size are written, whatever length the server claims."""
    seen = 0

    def watch(done: int, total: int | None) -> None:
        nonlocal seen
        seen = max(seen, *(path.stat().st_size for path in tmp_path.iterdir()))

    checksum = f"sha256:{hashlib.sha256(BODY[:100_000]).hexdigest()}"
    with serving({"a.bin": BODY}, length=length, with_ranges=False) as server:
        file = server.remote("a.bin", checksum, **options)
        if "head" in options:
            assert download(file, tmp_path, progress=watch).stat().st_size == 100_000
        else:
            with pytest.raises(ValueError, match=r"expected 100000 bytes, got \d+ or more"):
                download(file, tmp_path, progress=watch)
            assert list(tmp_path.iterdir()) == []
    assert seen <= 100_000


@pytest.mark.parametrize("length", ["abc", "-5", "", "1e3", "9" * 5000])
def test_a_length_that_is_none_is_an_error(tmp_path: Path, length: str) -> None:
    """A Content-Length that is not a number is an OSError that says so."""
    message = r"a\.bin: expected the file, got expected a length"
    with (
        serving({"a.bin": BODY}, length=length) as server,
        pytest.raises(OSError, match=message),
    ):
        download(server.remote("a.bin", size=len(BODY)), tmp_path)


@pytest.mark.parametrize("head", [None, 100])
def test_a_range_refused_from_the_start_is_an_error(tmp_path: Path, head: int | None) -> None:
    """A server that refuses every range is an OSError that names the address."""
    with serving({"a.bin": b""}, statuses=[416] * 9) as server:
        server.ranges = "bytes */0"
        with pytest.raises(OSError, match=r"a\.bin: expected the file, got HTTP Error 416"):
            download(server.remote("a.bin", head=head), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.bin", "a.bin.part", "a.bin.sha256"])
@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str, put: Callable[[Path], None]) -> None:
    """A pipe or a directory in place of a download is refused without blocking."""
    put(tmp_path / name)
    with (
        serving({"a.bin": BODY}) as server,
        pytest.raises(ValueError, match=f"{name}: expected a regular file, got a"),
    ):
        download(server.remote("a.bin", None), tmp_path)


def test_passing_errors_are_retried(tmp_path: Path) -> None:
    """A request to an overloaded server is retried."""
    with serving({"a.bin": BODY}, statuses=[503, 429]) as server:
        assert download(server.remote("a.bin"), tmp_path).read_bytes() == BODY


def test_missing_file_is_an_error_at_once(tmp_path: Path) -> None:
    """A 404 is an OSError that names the address, without retries."""
    with serving({}) as server:
        with pytest.raises(OSError, match=r"/a\.bin: expected the file, got HTTP Error 404"):
            download(RemoteFile(f"{server.url}/a.bin", None), tmp_path)
        assert len(server.requests) == 1
    assert list(tmp_path.iterdir()) == []


def test_wrong_checksum_removes_the_file(tmp_path: Path) -> None:
    """A wrong checksum is an error that names both checksums, and the file is removed."""
    wrong = f"sha256:{'0' * 64}"
    with serving({"a.bin": BODY}) as server:
        with pytest.raises(ValueError, match=f"expected {wrong} .*, got sha256:") as caught:
            download(server.remote("a.bin", wrong), tmp_path)
        assert hashlib.sha256(BODY).hexdigest() in str(caught.value)
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "a.bin").write_bytes(b"tampered")
        with pytest.raises(ValueError, match="expected sha256:"):
            download(server.remote("a.bin"), tmp_path)
        assert list(tmp_path.iterdir()) == []


def test_wrong_size_removes_the_file(tmp_path: Path) -> None:
    """A wrong size is an error that names both sizes, and the file is removed."""
    with serving({"a.bin": BODY}) as server:
        file = server.remote("a.bin", size=7)
        with pytest.raises(ValueError, match=f"expected 7 bytes, got {len(BODY)}"):
            download(file, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n_left", [len(BODY), len(BODY) + 5])
@pytest.mark.parametrize("size", [None, len(BODY)])
def test_a_part_as_long_as_the_file(tmp_path: Path, n_left: int, size: int | None) -> None:
    """A part as long as the file is used as it is; a longer one is fetched again."""
    (tmp_path / "a.bin.part").write_bytes((BODY + b"extra")[:n_left])
    with serving({"a.bin": BODY}) as server:
        assert download(server.remote("a.bin", size=size), tmp_path).read_bytes() == BODY


def test_unknown_checksum_is_recorded_and_then_held_to(tmp_path: Path) -> None:
    """If the checksum is unknown, the first one is reported, recorded and verified later."""
    with serving({"a.bin": BODY}) as server:
        file = server.remote("a.bin", None)
        with pytest.warns(UserWarning, match="its checksum is unknown; trusting sha256:"):
            path = download(file, tmp_path)
        digest = hashlib.sha256(BODY).hexdigest()
        assert (tmp_path / "a.bin.sha256").read_text() == f"{digest}  a.bin\n"
        assert download(file, tmp_path) == path
        path.unlink()
        server.files["a.bin"] = BODY + b"x"
        with pytest.raises(ValueError, match=r"expected sha256:.* \(recorded in .*\), got"):
            download(file, tmp_path)
        assert not path.exists()


@pytest.mark.parametrize("with_ranges", [True, False])
def test_only_the_head_is_fetched(tmp_path: Path, with_ranges: bool) -> None:
    """If only the head of a file is needed, only the head is fetched and resumed."""
    head = BODY[:5000]
    checksum = f"sha256:{hashlib.sha256(head).hexdigest()}"
    with serving({"a.bin": BODY}, with_ranges=with_ranges) as server:
        file = server.remote("a.bin", checksum, head=5000)
        assert file.name == "head-5000-a.bin"
        assert download(file, tmp_path).read_bytes() == head
        (tmp_path / file.name).rename(tmp_path / f"{file.name}.part")
        (tmp_path / f"{file.name}.part").write_bytes(head[:999])
        assert download(file, tmp_path).read_bytes() == head
        assert [span for _, span in server.requests] == ["bytes=0-4999", "bytes=999-4999"]


def test_other_schemes_are_refused(tmp_path: Path) -> None:
    """Addresses other than http, https and ftp are refused."""
    with pytest.raises(ValueError, match="expected an address in http, https or ftp"):
        download(RemoteFile(f"file://{tmp_path}/a.bin", None), tmp_path)
