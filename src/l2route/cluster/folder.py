"""Folders that hold sharded indexes: on this machine, or on any file system that fsspec opens.

A path without `://` is a directory that is used in place. It is made absolute at once, as other
processes have working directories of their own; all nodes have to see it under that name. Anything
else is a URL of fsspec (`s3://…`, `gs://…`, `file:///…`): shards are copied from it to a temporary
directory, and changes are copied back, the file that names the others last.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from l2route.cluster.errors import LateError
from l2route.extras import install
from l2route.files.atomic import is_partial, make_directory, replacing, sync
from l2route.files.journal import NAME as JOURNAL
from l2route.files.meta import META, file_names, read_bytes

MAX_TEXT_BYTES = 1 << 26
"""Largest manifest that is read."""
_NAME = r"[\w][\w.-]*"
_HASHED = rf"\w+\.[0-9a-f]{{16}}\.npy|{JOURNAL}"


class Folder:
    """A directory of this machine, or of a file system that fsspec opens.

    Args:
        url: a path, or a URL of fsspec.
    """

    def __init__(self, url: str | Path) -> None:
        self.url = str(url).rstrip("/") or "/"
        self._files: Any = None
        self._disk: Path | None = None
        if "://" not in self.url:
            self._disk = Path(self.url).absolute()
            self.url = self._root = str(self._disk)
            return
        try:
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]
            from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError(f"{url} needs: {install('ray')}") from error
        self._files, self._root = url_to_fs(self.url)
        if isinstance(self._files, LocalFileSystem):  # which writes files in place
            self._disk = Path(self._root)

    def __reduce__(self) -> tuple[type[Folder], tuple[str]]:
        return Folder, (self.url,)

    def __str__(self) -> str:
        return self.url

    @property
    def is_local(self) -> bool:
        """Whether files are used in place."""
        return self._files is None

    @property
    def path(self) -> Path:
        """The directory, if files are used in place."""
        if not self.is_local:
            raise ValueError(f"expected a directory of this machine, got {self.url}")
        return Path(self._root)

    def make(self) -> None:
        """Make the directory if there is none."""
        if self.is_local:
            make_directory(self.path)
        else:
            self._files.makedirs(self._root, exist_ok=True)

    def sub(self, name: str) -> Folder:
        """A folder in this one."""
        return Folder(f"{self.url}/{checked_name(name)}")

    def names(self) -> list[str]:
        """Names of what is in the folder, in order; none if there is no such folder.

        What a writer that was killed has left of a file is not among them.
        """
        return sorted(each for each in self._listed() if not is_partial(each, ".+"))

    def _listed(self) -> list[str]:
        if self.is_local:
            return [each.name for each in self.path.iterdir()] if self.path.is_dir() else []
        self._files.invalidate_cache()
        if not self._files.isdir(self._root):
            return []
        found = self._files.ls(self._root, detail=False)
        return [str(each).rstrip("/").rsplit("/", 1)[-1] for each in found]

    def read(self, name: str) -> bytes:
        """The content of a file; refuses what is not a regular file, or too large for a text."""
        checked_name(name)
        if self.is_local:
            content = read_bytes(self.path / name)
        else:
            with self._files.open(f"{self._root}/{name}", "rb") as file:
                content = file.read(MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise ValueError(
                f"{self.url}/{name}: expected at most {MAX_TEXT_BYTES} bytes, got more"
            )
        return bytes(content)

    def read_all(self, name: str) -> bytes:
        """The content of a file of any size."""
        checked_name(name)
        if self.is_local:
            return read_bytes(self.path / name)
        return bytes(self._files.cat_file(f"{self._root}/{name}"))

    def remove_tree(self) -> None:
        """Remove the folder with all that is in it."""
        if self.is_local:
            shutil.rmtree(self.path, ignore_errors=True)
        elif self._files.exists(self._root):
            self._files.rm(self._root, recursive=True)

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file whole: on this machine by a rename, elsewhere by one upload."""
        checked_name(name)
        if not self.is_local:
            self._files.makedirs(self._root, exist_ok=True)
        if self._disk is None:
            self._files.pipe_file(f"{self._root}/{name}", content)
            return
        with replacing(self._disk / name) as temporary:
            temporary.write_bytes(content)

    def rename(self, other: Folder) -> bool:
        """Give a directory of this machine the name of another one, if that is not there.

        Returns:
            Whether it was not there, or had nothing in it.
        """
        try:
            self.path.rename(other.path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        sync(other.path.parent)
        return True

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""
        checked_name(name)
        if self.is_local:
            (self.path / name).unlink(missing_ok=True)
        elif self._files.exists(f"{self._root}/{name}"):
            self._files.rm_file(f"{self._root}/{name}")

    def has(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        if self.is_local:
            return (self.path / checked_name(name)).exists()
        self._files.invalidate_cache()
        return bool(self._files.exists(f"{self._root}/{checked_name(name)}"))

    def download(self, name: str, target: Path) -> None:
        """Copy a file of another file system to this machine."""
        with replacing(target) as temporary:
            self._files.get_file(f"{self._root}/{checked_name(name)}", str(temporary))

    def upload(self, source: Path) -> None:
        """Copy a file of this machine whole to another file system, under its own name."""
        name = checked_name(source.name)
        self._files.makedirs(self._root, exist_ok=True)
        if self._disk is None:
            self._files.put_file(str(source), f"{self._root}/{name}")
            return
        with replacing(self._disk / name) as temporary:
            shutil.copyfile(source, temporary)


class Copy:
    """The index of a folder as a directory of this machine.

    Of a folder of this machine it is the directory itself. Otherwise it is a temporary copy, which
    goes with the object.

    Args:
        folder: the folder of an index.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._seen: bytes | None = None  # what meta.json of the folder was, if it was read
        if folder.is_local:
            self.path = folder.path
        else:
            self.path = Path(tempfile.mkdtemp(prefix="l2route-shard-"))
            weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def pull(self) -> None:
        """Bring what the folder has; meta.json last, so that the copy is always an index.

        Then remove what it names not: arrays that are mapped stay readable.
        """
        if self.folder.is_local:
            return
        self._seen = text = self.folder.read(META)
        own = self.path / META
        if own.exists() and own.read_bytes() == text:
            return
        needed = _named(self.folder, text)
        for name in sorted(needed):
            if not (self.path / name).exists():  # the name has the hash of the content
                self.folder.download(name, self.path / name)
        with replacing(own) as temporary:
            temporary.write_bytes(text)
        for each in self.path.iterdir():
            if re.fullmatch(_HASHED, each.name) and each.name not in needed:
                each.unlink()

    def push(self, check: Callable[[], None] = lambda: None) -> None:
        """Take what was saved here to the folder, meta.json last; then remove what it names not.

        If another writer has saved meanwhile, nothing is replaced. Stores without locks leave a
        moment between this check and the save.

        Args:
            check: called right before meta.json is replaced; its error leaves the folder as it is.
        """
        if self.folder.is_local:
            return
        text = (self.path / META).read_bytes()
        needed, there = _named(self.folder, text), set(self.folder.names())
        for name in sorted(needed - there):
            self.folder.upload(self.path / name)
        if self._seen is not None and self.folder.read(META) != self._seen:
            raise LateError(f"{self.folder}: expected the save that was changed, got a newer one")
        check()
        self.folder.replace(META, text)
        self._seen = text
        for name in sorted(there - needed):
            if re.fullmatch(_HASHED, name):
                self.folder.remove(name)


def checked_name(name: str) -> str:
    """Refuse a name that could lead out of a folder."""
    if not re.fullmatch(_NAME, name) or ".." in name:
        raise ValueError(f"expected a plain file name, got {name!r}")
    return name


def _named(folder: Folder, text: bytes) -> set[str]:
    """Files that the meta.json of an index names; it is checked in full when it is loaded."""
    try:
        meta = json.loads(text)
        names = file_names(meta["arrays"], meta.get("patches", ()))
        if (journal := meta.get("journal")) is not None and folder.has(journal):
            names.add(journal)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder}/{META}: expected the files of an index, got {error}") from None
    return {checked_name(name) for name in names}
