"""Folders of files with a manifest: written whole or not at all, and read only as they were written."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from metricgrad.atomic_files import write_file, write_folder
from metricgrad.strict_json import Sha256, check, read_file, seal, sha256, unseal
from metricgrad.strict_json import as_json as as_json

if TYPE_CHECKING:
    from pathlib import Path

Contents = dict[str, Any]
"""What a manifest holds, as JSON gives it."""
Files = dict[str, bytes]
"""Files by name, with what is in them."""

FORMAT = 1
"""The version of the format: it grows when an older version of this library could not read what is written."""

MANIFEST = "manifest.json"

_FILE = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*){0,3}", re.ASCII)


# Writing


def write(folder: Path, contents: Contents, files: Files, overwrite: bool = False) -> None:
    """Write files and a manifest of the contents and the hashes of all files: into a sibling, which is then renamed."""
    if not folder.parent.is_dir():
        raise ValueError(f"folder: expected a place in a folder that exists, got {str(folder)!r}")
    replaced = folder.exists()
    if replaced:
        _check_replaceable(folder, overwrite)
    write_folder(folder, pack_files(contents, files), replaced)


def rewrite(folder: Path, changes: Contents) -> None:
    """Change the contents of a manifest, the files staying as they are: one file, replaced in one step."""
    manifest = _read_manifest(folder)
    write_file(folder / MANIFEST, seal({**manifest, **changes}))


def pack_files(contents: Contents, files: Files) -> Files:
    """Return all files of a folder, the manifest among them."""
    for name in files:
        if not _FILE.fullmatch(name) or name == MANIFEST:
            raise ValueError(
                f"files: expected names of letters, digits, '.', '_', '-' and at most three '/', got {name!r}"
            )
    hashes = {name: sha256(data) for name, data in files.items()}
    return {**files, MANIFEST: seal({"format": FORMAT, **contents, "files": hashes})}


# Reading


def read(folder: Path) -> tuple[Contents, Files]:
    """Return the manifest and the other files' bytes, so that what was checked is what is used."""
    manifest = _read_manifest(folder)
    return manifest, _read_files(folder, manifest)


def unpack_files(files: Files, name: str) -> tuple[Contents, Files]:
    """Do as ``read`` for files that are in memory already; ``name`` is that of their folder."""
    manifest = _check_manifest(files.get(MANIFEST, b""), name)
    for one, wanted in manifest["files"].items():
        if one not in files:
            raise ValueError(f"folder: expected a file {one!r} in {name!r}, got none")
        if sha256(files[one]) != wanted:
            raise ValueError(f"folder: {one} in {name!r} was changed since it was written (its sha256 differs)")
    return manifest, {one: files[one] for one in manifest["files"]}


def _read_files(folder: Path, manifest: Contents) -> Files:
    files = {}
    for name, wanted in manifest["files"].items():
        if not _FILE.fullmatch(name) or not (folder / name).is_file():
            raise ValueError(f"folder: expected a file {name!r} in {str(folder)!r}, got none")
        files[name] = read_file(folder / name)
        if sha256(files[name]) != wanted:
            raise ValueError(f"folder: {name} in {str(folder)!r} was changed since it was written (its sha256 differs)")
    return files


def _read_manifest(folder: Path) -> Contents:
    try:
        data = read_file(folder / MANIFEST)
    except OSError as error:
        raise _no_manifest(str(folder)) from error
    return _check_manifest(data, str(folder))


def _check_manifest(data: bytes, folder: str) -> Contents:
    """Return a manifest; its seal is compared first, so that nothing that was changed is read."""
    if not data.rstrip().endswith(b"}") or b'"sha256"' not in data:
        raise _no_manifest(folder)
    try:
        manifest: Contents = unseal(data, dict[str, Any], f"{MANIFEST} in {folder!r}")
        check(manifest.get("format"), int, "format")
    except ValueError as error:
        raise ValueError(f"folder: {error}") from error
    found = manifest["format"]
    if found > FORMAT:
        raise ValueError(f"folder: expected format {FORMAT}, got the newer {found}; upgrade metricgrad to load it")
    if found < FORMAT:
        raise ValueError(f"folder: expected format {FORMAT}, got {found}; save the model again")
    check(manifest.get("files"), dict[str, Sha256], f"folder: {MANIFEST} in {folder!r}: files")
    return manifest


def _no_manifest(folder: str) -> ValueError:
    return ValueError(f"folder: expected one with a {MANIFEST} by mg.save, got {folder!r}")


def _check_replaceable(folder: Path, overwrite: bool) -> None:
    if not overwrite:
        raise ValueError(f"folder: {str(folder)!r} exists; choose another, or pass overwrite=True")
    # Other files in it are not ours to delete.
    try:
        ours = {MANIFEST, *_read_manifest(folder)["files"]}
    except ValueError as error:
        raise ValueError(f"folder: overwrite=True replaces only what mg.save wrote, got {str(folder)!r}") from error
    ours |= {parent.as_posix() for name in ours for parent in PurePosixPath(name).parents}
    if others := sorted({path.relative_to(folder).as_posix() for path in folder.rglob("*")} - ours):
        raise ValueError(f"folder: overwrite=True would delete {others[0]!r}, which mg.save did not write")
