"""Folders of files with a manifest: written whole or not at all, and read only as they were written."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 2
"""Grows when an older version of this library could not read what is written."""

_MANIFEST = "manifest.json"


def as_json(data: Any) -> bytes:
    """Return data as JSON for people to read."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False).encode()


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, even if the machine stops: beside its place, to the disk, then renamed."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with fresh.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def write(folder: Path, contents: dict[str, Any], files: dict[str, bytes], overwrite: bool = False) -> None:
    """Write files and a manifest of the contents and everybody's hashes: into a sibling, which is then renamed."""
    if not folder.parent.is_dir():
        raise ValueError(f"folder: expected a place in a folder that exists, got {str(folder)!r}")
    replaced = folder.exists()
    if replaced:
        _check_replaceable(folder, overwrite)
    manifest = {"format": FORMAT, **contents, "files": {name: _sha256(data) for name, data in files.items()}}
    manifest["sha256"] = _sha256(as_json(manifest))
    fresh = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")
    old = folder.with_name(f"{fresh.name}.old")
    try:
        fresh.mkdir()
        for name, data in {**files, _MANIFEST: as_json(manifest)}.items():
            (fresh / name).write_bytes(data)
        if replaced:
            folder.rename(old)
        try:
            fresh.rename(folder)
        except BaseException:
            if old.exists():
                old.rename(folder)
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def read(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest and the other files' bytes, so that what was checked is what is used."""
    manifest = _manifest(folder)
    files = {}
    for name, wanted in manifest["files"].items():
        if "/" in name or "\\" in name or not (folder / name).is_file():
            raise ValueError(f"folder: expected a file {name!r} in {str(folder)!r}, got none")
        files[name] = (folder / name).read_bytes()
        if _sha256(files[name]) != wanted:
            raise ValueError(f"folder: {name} in {str(folder)!r} was changed since it was written (its sha256 differs)")
    return manifest, files


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        version, seal = manifest["format"], manifest.pop("sha256", None)
        newer = version > FORMAT
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"folder: expected one with a {_MANIFEST} by mg.save, got {str(folder)!r}") from error
    if newer:
        raise ValueError(f"folder: expected format {FORMAT}, got the newer {version}; upgrade metricgrad to load it")
    if seal != _sha256(as_json(manifest)) or not isinstance(manifest.get("files"), dict):
        raise ValueError(
            f"folder: {_MANIFEST} in {str(folder)!r} was changed since it was written (its sha256 differs)"
        )
    return manifest  # type: ignore[no-any-return]


def _check_replaceable(folder: Path, overwrite: bool) -> None:
    if not overwrite:
        raise ValueError(f"folder: {str(folder)!r} exists; choose another, or pass overwrite=True")
    # Whatever else lies there is not ours to delete.
    try:
        ours = {_MANIFEST, *_manifest(folder)["files"]}
    except ValueError as error:
        raise ValueError(f"folder: overwrite=True replaces only what mg.save wrote, got {str(folder)!r}") from error
    if others := sorted({path.name for path in folder.iterdir()} - ours):
        raise ValueError(f"folder: overwrite=True would delete {others[0]!r}, which mg.save did not write")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
