"""Disks that fail in the middle of a save: an error, a power cut, a power loss."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, n_steps: int, error: BaseException
) -> Iterator[list[str]]:
    """Make one step of a save fail: the one after `n_steps` steps. All other steps work."""
    done: list[str] = []

    def counted(owner: object, name: str, step: Callable[..., Any]) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            is_read = owner is os and name == "open" and not args[1] & os.O_CREAT
            if not is_read:
                done.append(name)
                if len(done) == n_steps + 1:
                    raise error
            return step(*args, **kwargs)

        return called

    with monkeypatch.context() as patch:
        for owner, name in (
            *((os, "replace"), (os, "fsync"), (os, "open"), (Path, "unlink"), (Path, "mkdir")),
            *((Path, "open"), (np.lib.format, "write_array")),
        ):
            patch.setattr(owner, name, counted(owner, name, getattr(owner, name)))
        yield done


class PowerCut(BaseException):
    """Raised by every step after the simulated power cut."""


@contextmanager
def power_cut(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> Iterator[list[str]]:
    """Simulate a power cut after `n_steps` steps of a save.

    Steps are the calls that change the disk. The write at the cut leaves half of its bytes.
    """
    done: list[str] = []

    def cut_off(name: str, step: Callable[..., Any], half: Callable[..., Any]) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            if len(done) >= n_steps:
                if len(done) == n_steps:
                    done.append(f"half of {name}")
                    half(*args, **kwargs)
                raise PowerCut
            done.append(name)
            return step(*args, **kwargs)

        return called

    def nothing(*args: Any, **kwargs: Any) -> None:
        pass

    write_array = np.lib.format.write_array

    def half_array(stream: Any, array: NDArray[Any], **options: Any) -> None:
        whole = io.BytesIO()
        write_array(whole, array, **options)
        stream.write(whole.getvalue()[: len(whole.getvalue()) // 2])
        stream.flush()

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", cut_off("replace", os.replace, nothing))
        patch.setattr(os, "fsync", cut_off("fsync", os.fsync, nothing))
        patch.setattr(Path, "unlink", cut_off("unlink", Path.unlink, nothing))
        patch.setattr(Path, "mkdir", cut_off("mkdir", Path.mkdir, nothing))
        patch.setattr(Path, "open", cut_off("open", Path.open, nothing))
        cut = cut_off("write", write_array, half_array)
        patch.setattr(np.lib.format, "write_array", cut)
        yield done


class VolatileDisk:
    """What the loss of power may leave of a directory.

    Contents of files that were not flushed are gone. Of the renames and removals since the
    directory was flushed, any may have reached the disk.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = [os.open(file, os.O_RDONLY) for file in path.iterdir()]  # inodes stay in use
        self._names = {file.name: file.stat().st_ino for file in path.iterdir()}
        self._contents = {file.stat().st_ino: file.read_bytes() for file in path.iterdir()}
        self._pending: list[tuple[str, int | None]] = []

    def flush(self, descriptor: int) -> None:
        """Flush a file or the directory."""
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            self._kept.append(os.dup(descriptor))
            self._contents[status.st_ino] = os.pread(descriptor, status.st_size, 0)
        elif os.path.samestat(status, self.path.stat()):
            self._names = self._after(self._pending)
            self._pending = []

    def rename(self, inode: int, name: str) -> None:
        """Give a file another name."""
        self._pending.append((name, inode))

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._pending.append((name, None))

    def possible(self) -> Iterator[dict[str, bytes]]:
        """Files by name, for everything that may be on the disk now."""
        for chosen in product([False, True], repeat=len(self._pending)):
            steps = [step for step, is_done in zip(self._pending, chosen, strict=True) if is_done]
            names = self._after(steps)
            yield {name: self._contents.get(inode, b"") for name, inode in names.items()}

    def _after(self, steps: list[tuple[str, int | None]]) -> dict[str, int]:
        names: dict[str, int | None] = {**self._names, **dict(steps)}
        return {name: inode for name, inode in names.items() if inode is not None}

    def close(self) -> None:
        """Let go of the files."""
        for descriptor in self._kept:
            os.close(descriptor)


@contextmanager
def volatile(
    monkeypatch: pytest.MonkeyPatch, path: Path, after_step: Callable[[VolatileDisk], None]
) -> Iterator[VolatileDisk]:
    """Follow what is flushed of a directory; call a function after each step."""
    disk = VolatileDisk(path)
    replace, fsync, unlink = os.replace, os.fsync, os.unlink

    def replaced(source: Any, target: Any) -> None:
        inode = os.stat(source).st_ino
        replace(source, target)
        disk.rename(inode, Path(target).name)
        after_step(disk)

    def flushed(descriptor: int) -> None:
        fsync(descriptor)
        disk.flush(descriptor)
        after_step(disk)

    def removed(file: Any) -> None:
        unlink(file)
        disk.remove(Path(file).name)
        after_step(disk)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replaced)
        patch.setattr(os, "fsync", flushed)
        patch.setattr(os, "unlink", removed)
        yield disk
    disk.close()
