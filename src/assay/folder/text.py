"""Bytes of a file into text, refused with their line where they are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from assay.errors import BadInput
from assay.scheme.files import check_file, opened, present

__all__ = ["check_file", "decode", "load", "opened", "present", "unreadable"]

PIECE = 1_000_000
BOM = b"\xef\xbb\xbf"


def load(path: Path, most: int, *, hint: str) -> bytes:
    """The bytes of a file; raises BadInput if it cannot be read, with `hint` if it is missing, or if it has more than `most`."""
    try:
        with opened(path) as file:
            data = b"".join(_pieces(file, most + 1))
    except FileNotFoundError:
        raise BadInput("no such file", file=path, hint=hint) from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if len(data) > most:
        raise BadInput(f"is larger than {most} bytes", file=path, hint="is this the right file?")
    return data


def _pieces(file: BinaryIO, most: int) -> Iterator[bytes]:
    """Pieces of a file until it ends or has given `most` bytes: to read that many at once would set the room aside for them."""
    while most > 0 and (piece := file.read(min(most, PIECE))):
        most -= len(piece)
        yield piece


def unreadable(path: Path, error: OSError | ValueError) -> BadInput:
    """What the operating system said of a file, as a refusal."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BadInput(f"cannot be read ({why})", file=path, hint="check its permissions and that it is a file")


def decode(data: bytes, file: Path | str | None) -> str:
    """The text of UTF-8 bytes without a byte order mark; raises BadInput with the line of the first wrong byte."""
    data = data.removeprefix(BOM)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"byte 0x{data[error.start]:02x} is not UTF-8", file=file, line=line, hint="save the file as UTF-8"
        ) from None
