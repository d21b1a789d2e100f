"""Files and folders appear whole or not at all, by one helper that everything uses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from metricgrad.atomic_files import TEMPORARY, make_temporary_path, replacing, write_file, write_folder

pytestmark = pytest.mark.quick

SOURCE = Path(__file__).parents[1] / "src" / "metricgrad"


def full(*_: Any, **__: Any) -> None:
    raise OSError("disk full")


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize(("owner", "failing"), [(os, "fsync"), (Path, "replace"), (Path, "open")])
def test_a_file_that_cannot_be_written_leaves_the_old_one(
    owner: Any, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a"
    write_file(place, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(owner, failing, full)
        with pytest.raises(OSError, match="disk full"):
            write_file(place, b"new")
    assert (place.read_bytes(), names(tmp_path)) == (b"old", ["a"])
    write_file(place, b"new")
    assert (place.read_bytes(), names(tmp_path)) == (b"new", ["a"])


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    place = tmp_path / "a"
    place.write_bytes(b"old")

    def write_half() -> None:
        with replacing(place) as fresh:
            fresh.write_bytes(b"ne")
            raise RuntimeError("half")

    with pytest.raises(RuntimeError, match="half"):
        write_half()
    assert (place.read_bytes(), names(tmp_path)) == (b"old", ["a"])


@pytest.mark.parametrize(("owner", "failing"), [(os, "fsync"), (Path, "write_bytes"), (Path, "rename")])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_cannot_be_written_leaves_the_old_one(
    owner: Any, failing: str, replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "model"
    old = ["model", "model/a", "model/inner", "model/inner/b"] if replaced else []
    if replaced:
        write_folder(place, {"a": b"1", "inner/b": b"2"}, replaced=False)
    with monkeypatch.context() as patch:
        patch.setattr(owner, failing, full)
        with pytest.raises(OSError, match="disk full"):
            write_folder(place, {"c": b"3"}, replaced)
    assert names(tmp_path) == old
    write_folder(place, {"c": b"3"}, replaced)
    assert names(tmp_path) == ["model", "model/c"]


def test_an_old_folder_is_put_back_if_the_new_one_cannot_be_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, rename = tmp_path / "model", Path.rename
    write_folder(place, {"a": b"1"}, replaced=False)

    def only_the_old(self: Path, target: Any) -> Path:
        if TEMPORARY.fullmatch(self.name) and not self.name.endswith(".old"):
            full()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", only_the_old)
    with pytest.raises(OSError, match="disk full"):
        write_folder(place, {"c": b"3"}, replaced=True)
    assert names(tmp_path) == ["model", "model/a"]


def test_temporary_names_are_new_and_known() -> None:
    one, two = (make_temporary_path(Path("folder/a.txt")) for _ in range(2))
    assert one != two
    assert one.parent == Path("folder")
    assert all(TEMPORARY.fullmatch(path.name) for path in (one, two))
    assert not TEMPORARY.fullmatch("a.txt")


def test_nothing_else_writes_beside_and_renames() -> None:
    others = [path for path in SOURCE.rglob("*.py") if path.name != "atomic_files.py"]
    assert [path for path in others if "token_hex" in path.read_text() or "fsync" in path.read_text()] == []
