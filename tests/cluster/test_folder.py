"""Laws of folders: named once and for all, and files that are whole at every moment."""

import pickle
from pathlib import Path

import pytest

from l2route.cluster.folder import Folder

SCHEMES = pytest.mark.parametrize("scheme", ["", "file://"])


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder stays where it was named, in other directories and in other processes."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    folder = Folder("rel/")
    sent = pickle.dumps(folder)
    monkeypatch.chdir("elsewhere")
    for each in (folder, pickle.loads(sent)):
        assert each.url == str(each) == str(tmp_path / "rel")
        assert each.path == tmp_path / "rel"
        assert each.sub("x").path == tmp_path / "rel" / "x"
        each.make()
        each.replace("a.json", b"1")
    assert (tmp_path / "rel" / "a.json").read_bytes() == b"1"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@SCHEMES
def test_a_file_is_replaced_whole(tmp_path: Path, scheme: str) -> None:
    """Whoever reads a file while it is replaced reads the old one to its end."""
    folder = Folder(f"{scheme}{tmp_path}/x")
    folder.make()
    folder.replace("meta.json", b"the old one")
    with (tmp_path / "x" / "meta.json").open("rb", buffering=0) as reader:
        folder.replace("meta.json", b"new")
        assert reader.read() == b"the old one"
    assert folder.read("meta.json") == b"new"
    assert folder.names() == ["meta.json"]


def test_a_file_is_uploaded_whole(tmp_path: Path) -> None:
    """A file that is uploaded has its name when it is complete."""
    folder = Folder(f"file://{tmp_path}/x")
    (tmp_path / "a.npy").write_bytes(b"old")
    folder.upload(tmp_path / "a.npy")
    (tmp_path / "a.npy").write_bytes(b"newer")
    with (tmp_path / "x" / "a.npy").open("rb", buffering=0) as reader:
        folder.upload(tmp_path / "a.npy")
        assert reader.read() == b"old"
    assert folder.read("a.npy") == b"newer"


@SCHEMES
def test_what_a_killed_writer_leaves_is_no_file(tmp_path: Path, scheme: str) -> None:
    """Part of a file, left by a writer that was killed, is not among the names."""
    folder = Folder(f"{scheme}{tmp_path}")
    folder.replace("plan.json", b"{}")
    (tmp_path / ".plan.json.0123456789abcdef.partial").write_bytes(b"{")
    assert folder.names() == ["plan.json"]
