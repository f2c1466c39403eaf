"""The files of an uploaded model: a ZIP archive, read into memory after checks of everything that it declares.

An archive has plain files by relative paths, stored or deflated, and nothing else: no links, no encryption, no names
that lead outside, no second file of the same name, no comment, no extension for more than 4 GB.
"""

import io
import posixpath
import stat
import struct
import zipfile
import zlib
from pathlib import PurePath, PurePosixPath

from worldloom.worlds.settings import SettingTooLargeError, abbreviate

MAX_FILES = 4096
_MAX_NAME_LENGTH = 512
_END = struct.Struct("<4s4H2LH")
"""The record at the end of an archive: signature, four numbers of disks and entries, size and offset of the directory,
length of the comment."""
_MAX_DIRECTORY_BYTES = MAX_FILES * 1024
"""Size of an archive's directory: the module zipfile reads all of it, whatever number of entries is declared."""
_LOCATOR_OFFSET, _LOCATOR = 20, b"PK\x06\x07"
"""Record before that at the end, which archives with the extension for more than 4 GB have."""
_ENCRYPTED = 1
_FAILURES = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)
"""Exceptions of the module zipfile for archives that are damaged."""

MODEL = PurePosixPath("the uploaded model")
"""Path of the model itself among its files; its name is for error messages."""


class UploadedFiles:
    """Contents of an uploaded model and the files that came with it, by their paths."""

    missing_text = (
        "which is not in the archive of the setting 'files': expected a file there, by a path relative to the model"
    )

    def __init__(self, xml: str, files: dict[PurePosixPath, bytes]) -> None:
        self._files = {**files, MODEL: xml.encode()}

    def find(self, folder: PurePath, name: str) -> PurePosixPath | None:
        """Return the path of a file named relative to a folder; None if there is none, or the path leads outside."""
        if name.startswith("/"):
            return None
        path = PurePosixPath(posixpath.normpath(posixpath.join(str(folder), name)))
        return path if path in self._files else None

    def read(self, path: PurePath, max_bytes: int) -> bytes:
        """Return the first bytes of a file."""
        return self._files[PurePosixPath(path)][:max_bytes]


def read_archive(data: bytes, max_bytes: int) -> dict[PurePosixPath, bytes]:
    """Return the files of an archive, `max_bytes` at most in all; raise ValueError for one that is not as it should."""
    if not data:
        return {}
    _check_end(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = _check_entries(archive, max_bytes)
            return {path: _read_entry(archive, entry) for path, entry in entries.items()}
    except _FAILURES as error:
        if isinstance(error, _ArchiveError | SettingTooLargeError):
            raise
        raise ValueError(f"the archive cannot be read: {abbreviate(str(error))[1:-1]}") from None


class _ArchiveError(ValueError):
    """An archive that is refused; the message has the reason."""


def _check_end(data: bytes) -> None:
    """Check the record at the end, so that nothing large is read on its behalf."""
    if len(data) < _END.size or not (end := _END.unpack(data[-_END.size :]))[0] == b"PK\x05\x06" or end[-1]:
        raise _ArchiveError("the archive does not end like a ZIP archive: expected one without a comment")
    if data[-_END.size - _LOCATOR_OFFSET :].startswith(_LOCATOR):
        raise _ArchiveError("the archive is of the ZIP64 kind: expected one of less than 4 GB and 65536 files")
    count, directory_bytes = end[4], end[5]
    if count > MAX_FILES or directory_bytes > _MAX_DIRECTORY_BYTES:
        raise _ArchiveError(
            f"the archive has {count} entries, listed in {directory_bytes} bytes: expected {MAX_FILES} and "
            f"{_MAX_DIRECTORY_BYTES} at most"
        )


def _check_entries(archive: zipfile.ZipFile, max_bytes: int) -> dict[PurePosixPath, zipfile.ZipInfo]:
    """Return the files of an archive by their paths, after checks of all that it declares of them."""
    entries: dict[PurePosixPath, zipfile.ZipInfo] = {}
    total_bytes = 0
    listed = archive.infolist()
    if len(listed) > MAX_FILES:
        raise _ArchiveError(f"the archive has {len(listed)} entries: expected {MAX_FILES} at most")
    for entry in listed:
        path = _check_name(entry)
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.is_dir():
            continue
        what = f"the archive's {abbreviate(str(path))}"
        if kind not in (0, stat.S_IFREG):
            raise _ArchiveError(f"{what} is a link or another special file: expected plain files only")
        if entry.flag_bits & _ENCRYPTED:
            raise _ArchiveError(f"{what} is encrypted: expected an archive without a password")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _ArchiveError(f"{what} is compressed by method {entry.compress_type}: expected none, or deflate")
        if path in entries or path == MODEL:
            raise _ArchiveError(f"{what} is there twice: expected each name once")
        entries[path] = entry
        total_bytes += entry.file_size
        if total_bytes > max_bytes:
            raise SettingTooLargeError(
                f"the archive's files have {total_bytes} bytes or more: expected {max_bytes} at most; send less, or "
                "raise --max-upload-bytes, of which they may have four times as many"
            )
    return entries


def _check_name(entry: zipfile.ZipInfo) -> PurePosixPath:
    name = entry.orig_filename  # as it is in the archive
    parts = name.removesuffix("/").split("/")
    is_valid = len(name) <= _MAX_NAME_LENGTH and name.isprintable() and not {"\\", ":"} & set(name)
    if not is_valid or any(part in ("", ".", "..") for part in parts):
        raise _ArchiveError(
            f"the archive has an entry named {abbreviate(name)}: expected relative paths of up to {_MAX_NAME_LENGTH} "
            "characters, with / between directories and without '..', '\\' and ':'"
        )
    return PurePosixPath(name)


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return the contents of a file. The module zipfile reads no more than the declared size, and checks the sum."""
    with archive.open(entry) as file:
        content = file.read(entry.file_size + 1)
    if len(content) != entry.file_size:
        raise _ArchiveError(
            f"the archive's {abbreviate(entry.orig_filename)} has {len(content)} bytes and declares {entry.file_size}: "
            "expected a complete archive"
        )
    return content
