"""Finds values in many lines of JSON at once: where they are, and what numbers, decimals, instants and texts they say. SPEC 1, 7.

A block has some lines, and the places of their ends and quotes. Of the lines of one `Layout`, each value begins and ends at a
place that follows from the quotes. A value that is not plainly right is called wrong here, and is read again by
`folder/evidence.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.characters import allowed
from assay.errors import BadInput
from assay.folder.files import LINE_BYTES
from assay.scheme.fields import instant
from assay.settle.inputs import Bools, Ints

__all__ = ["Hole", "Layout", "LineBlock", "Texts", "words_of"]

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
LONGEST = 512
"""The most bytes of a text around values, and of a text that is compared: bytes so far behind the end of a block are zero."""
_TAIL = np.array([(1 << (8 * size)) - 1 for size in range(9)], np.uint64)
"""The mask of the first bytes of a word."""


@dataclass(frozen=True)
class Hole:
    """A value of a layout: its field, and where it ends: so many bytes before a quote of the line, or (−1) before its end."""

    name: str
    written: str
    """text, number or boolean."""
    quote: int
    before: int


@dataclass(frozen=True)
class Layout:
    """The layout that lines share: the text before, between and after its holes."""

    quotes: int
    texts: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...]
    """Of each text its length, and its words: offset, mask, value."""
    holes: tuple[Hole, ...]


def words_of(text: bytes) -> tuple[int, tuple[tuple[int, int, int], ...]]:
    """The length of a text and its words, as a layout has them; raises LookupError if it is too long."""
    if len(text) > LONGEST:
        raise LookupError
    pieces = []
    for begin in range(0, len(text), 8):
        piece = text[begin : begin + 8]
        pieces.append((begin, (1 << (8 * len(piece))) - 1, int.from_bytes(piece, "little")))
    return len(text), tuple(pieces)


class Texts:
    """Some bytes, and what stands between places in them; a value that is not plainly right is said to be wrong."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        padded = data + bytes(2 * LONGEST + 8)
        self.bytes: Bytes = np.frombuffer(padded, np.uint8)
        self.words: Words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))

    def numbers(self, begins: Ints, ends: Ints) -> tuple[Ints, Bools]:
        """The integers between places, and whether each is one of at most 16 digits, without sign or leading zero."""
        sizes = ends - begins
        right = (sizes > 0) & (sizes <= 16)
        values = np.zeros(len(begins), np.int64)
        for place in range(min(16, int(sizes.max(initial=0)))):
            digits = self.bytes[begins + place] - np.uint8(48)
            inside = sizes > place
            right &= ~inside | (digits <= 9)
            values = np.where(inside, values * 10 + digits, values)
            if place == 0:
                right &= (digits != 0) | (sizes == 1)
        return values, right

    def booleans(self, begins: Ints, ends: Ints) -> tuple[Ints, Bools]:
        """1 for true, 0 for false; and whether it is one of them."""
        sizes, words = ends - begins, self.words[begins]
        true = (sizes == 4) & (words & _TAIL[4] == np.uint64(int.from_bytes(b"true", "little")))
        false = (sizes == 5) & (words & _TAIL[5] == np.uint64(int.from_bytes(b"false", "little")))
        return true.astype(np.int64), true | false

    def decimals(self, begins: Ints, ends: Ints, most: int) -> tuple[Ints, Bools]:
        """The nanos of decimal strings, and whether each is plainly one, of at most so many nanos and 18 digits."""
        sizes = ends - begins
        if self._alike(begins, sizes):
            value, right = self._decimals(begins[:1], ends[:1], most)
            return np.full(len(begins), value[0]), np.full(len(begins), right[0])
        values, fine = np.zeros(len(begins), np.int64), np.zeros(len(begins), np.bool_)
        for size in np.flatnonzero(np.bincount(np.minimum(sizes, 20), minlength=21))[: -1 if (sizes > 19).any() else None]:
            mine = np.flatnonzero(sizes == size)
            values[mine], fine[mine] = self._decimals_of_size(begins[mine], ends[mine], int(size), most)
        return values, fine

    def _decimals_of_size(self, begins: Ints, ends: Ints, size: int, most: int) -> tuple[Ints, Bools]:
        """As `decimals`, of texts of one size, in most of which the point stands at the same place."""
        point = self.data.find(b".", int(begins[0]), int(ends[0])) - int(begins[0])
        whole, fraction = (point, size - point - 1) if point >= 0 else (size, 0)
        if not (1 <= whole <= 9 and fraction <= 9 and (point < 0 or fraction)):
            return self._decimals(begins, ends, most)
        values, right = np.zeros(len(begins), np.int64), np.ones(len(begins), np.bool_)
        for place in range(size):
            digits = self.bytes[begins + place] - np.uint8(48)
            if place == point:
                right &= digits == 254
            else:
                right &= digits <= 9
                values = values * 10 + digits
        if not right.all():
            return self._decimals(begins, ends, most)
        values *= 10 ** (9 - fraction)
        return values, values <= most

    def _alike(self, begins: Ints, sizes: Ints) -> bool:
        """Whether all texts are the same: a budget often is."""
        size = int(sizes[0])
        if size > 16 or (sizes != size).any():
            return False
        first = self.words[begins] & _TAIL[min(size, 8)]
        second = self.words[begins + 8 * (size > 8)] & _TAIL[size - 8 if size > 8 else min(size, 8)]
        return bool((first == first[0]).all() and (second == second[0]).all())

    def _decimals(self, begins: Ints, ends: Ints, most: int) -> tuple[Ints, Bools]:
        """As `decimals`, of texts of any shape."""
        sizes = ends - begins
        right = (sizes > 0) & (sizes <= 19)
        values, points = np.zeros(len(begins), np.int64), np.full(len(begins), -1, np.int64)
        for place in range(min(19, int(sizes.max(initial=0)))):
            digits = self.bytes[begins + place] - np.uint8(48)
            inside = sizes > place
            point = inside & (digits == 254)
            right &= ~inside | (digits <= 9) | (point & (points < 0))
            values = np.where(inside & ~point, values * 10 + np.minimum(digits, 9), values)
            points[point] = place
        fraction = np.where(points < 0, 0, sizes - 1 - points)
        whole = np.where(points < 0, sizes, points)
        right &= (whole >= 1) & (whole <= 9) & (fraction <= 9) & ((points < 0) | (fraction >= 1))
        values = values * 10 ** np.where(right, 9 - fraction, 0)
        return values, right & (values <= most)

    def different(self, begins: Ints, ends: Ints) -> tuple[Ints, list[bytes]]:
        """The place of each text among the different ones, and these. Equal hashes are compared byte by byte.

        No text has more bytes than LONGEST.
        """
        sizes = ends - begins
        hashes = sizes.astype(np.uint64)
        pieces = []
        size = int(sizes.max(initial=0))
        alike = bool((sizes == size).all())
        for offset in range(0, max(8, size), 8):
            piece = self.words[begins + offset]
            if not alike:
                piece = piece & _TAIL[np.clip(sizes - offset, 0, 8)]
            elif size - offset < 8:
                piece = piece & _TAIL[size - offset]
            pieces.append(piece)
            hashes = (hashes ^ piece) * np.uint64(0x9E3779B97F4A7C15)
            hashes ^= hashes >> np.uint64(29)
        runs = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
        _, first, place = np.unique(hashes[runs], return_index=True, return_inverse=True)
        places = np.repeat(place, np.diff(np.append(runs, len(hashes))))
        like = runs[first][places]
        if any((piece != piece[like]).any() for piece in pieces) or (sizes != sizes[like]).any():
            texts = [self.data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
            numbered: dict[bytes, int] = {}
            return np.array([numbered.setdefault(text, len(numbered)) for text in texts], np.int64), list(numbered)
        spans = zip(begins[runs[first]].tolist(), ends[runs[first]].tolist(), strict=True)
        return places, [self.data[begin:end] for begin, end in spans]

    def instants(self, begins: Ints, ends: Ints) -> Bools:
        """Whether each text is a canonical instant of a day that exists. SPEC 7."""
        sizes = ends - begins
        right: Bools = (sizes == 20) | (sizes == 27)
        days, dates = self.different(begins, begins + np.minimum(10, sizes))
        right &= np.array([_is_day(date) for date in dates], np.bool_)[days]

        def byte(place: int) -> Bytes:
            return self.bytes[begins + place]

        for place, wanted in ((10, b"T"), (13, b":"), (16, b":")):
            right &= byte(place) == wanted[0]
        for place, most in ((11, 2), (12, 9), (14, 5), (15, 9), (17, 5), (18, 9)):
            right &= byte(place) - np.uint8(48) <= most
        right &= (byte(11) < ord("2")) | (byte(12) < ord("4"))
        fine = sizes == 27
        right &= fine | (byte(19) == ord("Z"))
        if fine.any():
            right &= ~fine | ((byte(19) == ord(".")) & (byte(26) == ord("Z")))
            for place in range(20, 26):
                right &= ~fine | (byte(place) - np.uint8(48) <= 9)
        return right


class LineBlock(Texts):
    """The lines of some bytes, and what is read of them. Arrays have one element for each line, blank ones included."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        text = self.bytes[: len(data)]
        self.ends: Ints = np.flatnonzero(text == 10)
        self.begins: Ints = np.append(0, self.ends[:-1] + 1)
        self.quotes: Ints = np.flatnonzero(text == 34)
        self.first_quote: Ints = np.searchsorted(self.quotes, self.begins)
        self.many_quotes: Ints = np.searchsorted(self.quotes, self.ends) - self.first_quote
        self.plain = (
            (self.bytes[self.begins] == 123) & (self.bytes[self.ends - 1] == 125) & (self.ends - self.begins < LINE_BYTES)
        )
        self._spoil(text)

    def __len__(self) -> int:
        return len(self.ends)

    def _spoil(self, text: Bytes) -> None:
        """Leave lines to be read one by one that have a control character, an escape, or text that is not allowed."""
        if np.count_nonzero(text < 32) > len(self):
            self._not_plain(np.flatnonzero((text < 32) & (text != 10)))
        if b"\\" in self.data:
            self._not_plain(np.flatnonzero(text == 92))
        if len(text) and text.max() > 126 and not _right(self.data):
            self._not_plain(np.flatnonzero(text > 126))

    def _not_plain(self, places: Ints) -> None:
        self.plain[np.searchsorted(self.ends, places)] = False

    def line(self, at: int) -> bytes:
        """The bytes of a line, without its end."""
        return self.data[self.begins[at] : self.ends[at]]

    def fits(self, layout: Layout, rows: Ints) -> tuple[Bools, list[tuple[Ints, Ints]]]:
        """The lines, all with as many quotes as it has, that have the layout, as a mask; begin and end of each of their holes."""
        if len(rows) == len(self) and layout.quotes * len(rows) == len(self.quotes):
            quotes = np.ascontiguousarray(self.quotes.reshape(len(rows), layout.quotes).T)
        else:
            quotes = self.quotes[self.first_quote[rows] + np.arange(layout.quotes)[:, None]]
        at, ends, spans = self.begins[rows], self.ends[rows], list[tuple[Ints, Ints]]()
        right = self._has(at, layout.texts[0])
        at = at + layout.texts[0][0]
        for hole, text in zip(layout.holes, layout.texts[1:], strict=True):
            end = (ends if hole.quote < 0 else quotes[hole.quote]) - hole.before
            right &= end >= at
            spans.append((at, end))
            right &= self._has(np.maximum(end, 0), text)
            at = end + text[0]
        return right & (at == ends), spans

    def _has(self, at: Ints, text: tuple[int, tuple[tuple[int, int, int], ...]]) -> Bools:
        """Whether a text stands at each of some places."""
        right: Bools | None = None
        for offset, mask, value in text[1]:
            words = self.words[at + offset]
            same = (words & np.uint64(mask) if mask < 2**64 - 1 else words) == np.uint64(value)
            right = same if right is None else right & same
        return np.ones(len(at), np.bool_) if right is None else right


def _right(data: bytes) -> bool:
    """Whether bytes are UTF-8 without a character that is refused, apart from the ends of lines."""
    try:
        return allowed(data.replace(b"\n", b" ").decode())
    except UnicodeDecodeError:
        return False


def _is_day(date: bytes) -> bool:
    try:
        instant(f"{date.decode()}T00:00:00Z")
    except (BadInput, UnicodeDecodeError):
        return False
    return re.fullmatch(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}", date) is not None
