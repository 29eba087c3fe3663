"""Reads ``voices.tgz`` member by member into memory; nothing is ever written to disk.

An archive comes from a download and is not trusted: whoever made it may name a path outside, a
link, a device, or something that unpacks to terabytes. Any of these refuses the whole archive.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from livekit_personaplex.errors import CheckpointError

MAX_MEMBER_BYTES = 64 * 2**20
MAX_ARCHIVE_BYTES = 512 * 2**20
MAX_MEMBERS = 1000


def read_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the plain files of a gzipped tar as file name and content, without their folders.

    Raises:
        CheckpointError: The file is missing, broken, or holds what a voice archive must not.
    """
    if not path.is_file():
        raise CheckpointError(f"expected a voice archive at {path}, found none")
    try:
        with gzip.open(path) as unpacked:
            stream = _LimitedReader(unpacked, path)
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for count, member in enumerate(archive):
                    if count >= MAX_MEMBERS:
                        raise CheckpointError(f"{path} has more than {MAX_MEMBERS} members")
                    if _is_wanted(member, path):
                        content = archive.extractfile(member)
                        assert content is not None, f"{member.name} is a plain file"
                        yield PurePosixPath(member.name).name, content.read()
            while stream.read(tarfile.RECORDSIZE):
                pass  # what follows the last member ends with the checksum
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as error:
        raise CheckpointError(
            f"{path} is no complete gzipped tar ({error}); download it again"
        ) from error


class _LimitedReader(io.RawIOBase):
    """Stops an archive that unpacks to more than anyone's voices, headers included."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, path: Path) -> None:
        self._stream, self._path = stream, path
        self._left_bytes = MAX_ARCHIVE_BYTES

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left_bytes + 1))
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise CheckpointError(
                f"{self._path} unpacks to more than {MAX_ARCHIVE_BYTES // 2**20} MiB"
            )
        return data


def _is_wanted(member: tarfile.TarInfo, path: Path) -> bool:
    """Tell files from folders; anything else is refused."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\\" in member.name or "\0" in member.name:
        raise CheckpointError(f"{path} has a member that points outside: {member.name!r}")
    if member.isdir():
        return False
    if not member.isreg() or member.issparse():
        raise CheckpointError(f"{path} has a member that is no plain file: {member.name!r}")
    if member.size > MAX_MEMBER_BYTES:
        raise CheckpointError(
            f"{path} has a member of {member.size} bytes: {member.name!r}; "
            f"at most {MAX_MEMBER_BYTES} are read"
        )
    return True
