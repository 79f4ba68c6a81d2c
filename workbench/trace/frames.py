"""Frames of a segment file: length, checksum, payload, one after the other, readable up to the first damaged byte.

A file is a preamble followed by frames. A frame says how long it is, and its CRC-32 covers every field and the payload,
so that a cut, a flipped bit or a wrong length ends the reading there and leaves all earlier frames usable.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from workbench.errors import DataIntegrityError

# Carriage return, line feed and control-Z show a text-mode copy at once, as PNG's signature does.
MAGIC = b"WBSEG\r\n\x1a"
FORMAT = 1
PREAMBLE = struct.Struct("<8sI4x")

FRAME_MAGIC = b"WBFR"
# magic, kind, table, writer, rows, payload bytes, number of the last row, CRC-32 of everything else in the frame
FRAME = struct.Struct("<4sBBHIIQI")

HEADER, ROWS, HEARTBEAT, FOOTER = range(4)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame whose checksum was right; `last` is the highest row number in it, `offset` its place in the file."""

    kind: int
    table: int
    writer: int
    rows: int
    last: int
    payload: bytes
    offset: int


def preamble() -> bytes:
    """First bytes of a segment file."""
    return PREAMBLE.pack(MAGIC, FORMAT)


def pack(kind: int, payload: bytes, *, table: int = 0, writer: int = 0, rows: int = 0, last: int = 0) -> bytes:
    """A frame as bytes."""
    head = FRAME.pack(FRAME_MAGIC, kind, table, writer, rows, len(payload), last, 0)[:-4]
    checksum = zlib.crc32(payload, zlib.crc32(head))
    return b"".join((head, checksum.to_bytes(4, "little"), payload))


class Scan:
    """Iterator over the intact frames of one segment file.

    Attributes
    ----------
    damage : str or None
        Why the reading stopped before the end of the file; None if every byte was read.
    good_bytes, size_bytes : int
        Bytes of intact frames (with the preamble) and of the file.

    Raises
    ------
    DataIntegrityError
        The file does not begin with the preamble of this format.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = path.stat().st_size
        self.damage: str | None = None
        self.good_bytes = 0

    def __iter__(self) -> Iterator[Frame]:
        with self.path.open("rb") as file:
            if not self._read_preamble(file):
                return
            while self.good_bytes < self.size_bytes:
                frame = self._read_frame(file)
                if frame is None:
                    return
                self.good_bytes += FRAME.size + len(frame.payload)
                yield frame

    def _read_preamble(self, file: BinaryIO) -> bool:
        found = file.read(PREAMBLE.size)
        if found != preamble()[: len(found)]:
            what = f"format {int.from_bytes(found[8:12], 'little')}" if found[:8] == MAGIC else f"{found[:8]!r}"
            raise DataIntegrityError(
                f"a segment file of format {FORMAT} ({MAGIC!r})",
                what,
                where=str(self.path),
                fix="Read it with the version of the workbench that recorded it, or remove it if it is another file.",
            )
        if len(found) < PREAMBLE.size:
            self.damage = f"the preamble is cut after {len(found)} of {PREAMBLE.size} bytes"
            return False
        self.good_bytes = PREAMBLE.size
        return True

    def _read_frame(self, file: BinaryIO) -> Frame | None:
        """The next frame, or None after setting `damage`. The length is believed only if the file is that long."""
        left = self.size_bytes - self.good_bytes
        head = file.read(FRAME.size)
        if len(head) < FRAME.size:
            self.damage = f"a frame head is cut after {len(head)} of {FRAME.size} bytes"
            return None
        magic, kind, table, writer, rows, size, last, checksum = FRAME.unpack(head)
        if magic != FRAME_MAGIC:
            self.damage = f"no frame begins there, found {magic!r}"
            return None
        if size > left - FRAME.size:
            self.damage = f"a frame claims {size} bytes where {left - FRAME.size} are left"
            return None
        payload = file.read(size)
        if zlib.crc32(payload, zlib.crc32(head[:-4])) != checksum:
            self.damage = f"the checksum of a frame of {size} bytes is wrong"
            return None
        return Frame(kind, table, writer, rows, last, payload, self.good_bytes)
