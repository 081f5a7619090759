"""Where Avro records end: checks many bodies at once, all of them one field further at each step.

The block reader takes bodies joined together. Without this check a body that lacks its last bytes would read those of
its neighbour, and polars panics (printing to stderr) where lengths lead beyond the data. After it, every
body is known to be well formed and to end where its record ends, so neither can happen; what is left is text that
isn't UTF-8.

One vectorised step costs microseconds, whatever the number of bodies, so only types whose number of steps the
schema bounds are walked: scalars, records and nullables of these, arrays whose items have one size or are integers.
`walk_of` returns None for others. Encoding: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from millstream.schemas.avro.array import MOST_BLOCKS, FaultError, after_blocks
from millstream.schemas.avro.types import kind_of, nullable
from millstream.schemas.avro.varint import INT, LENGTH, LONG, Varint
from millstream.schemas.store import AvroType

PADDING = 16  # bytes below 0x80 that must follow the last body: integers are looked at in windows of up to 10 bytes
_MOST_ARRAYS = 100  # of a record: each of their blocks is a step for all records, even if only one record has so many
_FEW = 16  # fewer arrays than this are skipped one by one from their third block on
_FIXED = {"null": 0, "float": 4, "double": 8}

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Step = Callable[["Bodies"], None]


class _Text:
    """The bytes of all bodies, and where integers may end in them."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self.data = data
        self._overlong: dict[str, Ints] = {}

    @cached_property
    def stops(self) -> Ints:
        """Positions of bytes below 0x80, which can end a varint."""
        return np.flatnonzero(self.data < 0x80)

    def overlong(self, varint: Varint) -> Ints:
        """For each stop, how many integers up to it would be too long, counted from the start of the data."""
        if varint.name not in self._overlong:
            runs = np.diff(self.stops, prepend=-1)
            high = (runs == varint.longest) & (self.data[self.stops] > varint.last)
            self._overlong[varint.name] = np.cumsum((runs > varint.longest) | high)
        return self._overlong[varint.name]


@dataclass(slots=True)
class Bodies:
    """How far the walk has come in each of some bodies. A body at fault stays at its end and fails every step on."""

    text: _Text
    position: Ints
    end: Ints
    rows: Ints
    is_faulty: Flags  # by row of the whole poll, not only of this part
    errors: dict[int, str] = field(default_factory=dict)  # by row: the first fault

    def fail(self, at_fault: Flags, why: str) -> None:
        """Mark bodies as malformed, unless they are already, and stop walking them."""
        rows = self.rows[at_fault]
        self.is_faulty[rows] = True
        for row in rows.tolist():
            self.errors.setdefault(row, why)
        self.position = np.where(at_fault, self.end, self.position)

    def advance(self, size: int | Ints, place: str) -> None:
        """Go on by so many bytes."""
        position = self.position + size
        beyond = position > self.end
        self.position = position
        if beyond.any():
            self.fail(beyond, f"{place}: the record ends before the field does")

    def part(self, where: Ints) -> "Bodies":
        """Return some of the bodies, to be walked by themselves and merged afterwards."""
        return Bodies(self.text, self.position[where], self.end[where], self.rows[where], self.is_faulty, self.errors)


def check(steps: Sequence[Step], data: npt.NDArray[np.uint8], starts: Ints, ends: Ints) -> Mapping[int, str]:
    """Walk all bodies, body i from starts[i] to ends[i] of data (and PADDING behind the last); return faults by i."""
    bodies = Bodies(_Text(data), starts, ends, np.arange(len(starts)), np.zeros(len(starts), np.bool_))
    for step in steps:
        step(bodies)
    left = bodies.position != ends
    if left.any():
        for row in np.flatnonzero(left).tolist():
            count = int(ends[row] - bodies.position[row])
            bodies.errors.setdefault(row, f"{count} bytes are left over after the last field")
    return bodies.errors


def walk_of(record: AvroType) -> list[Step] | None:
    """Compile a record's tree to the steps that walk it; None where it has a type that can't be walked."""
    pieces = _pieces(record, "record") if _arrays(record) <= _MOST_ARRAYS else None
    return None if pieces is None else _steps(pieces)


def _arrays(tree: AvroType) -> int:
    core, _ = nullable(tree)
    if kind_of(core) == "record":
        return sum(_arrays(entry["type"]) for entry in core["fields"])
    return int(kind_of(core) == "array")


# A piece is a number of bytes to pass, with the place for messages, or a step.
_Piece = tuple[int, str] | Step


def _steps(pieces: list[_Piece]) -> list[Step]:
    steps: list[Step] = []
    size, place = 0, ""
    for piece in pieces:
        if isinstance(piece, tuple):
            size, place = size + piece[0], place or piece[1]
            continue
        if size:
            steps.append(_pass(size, place))
            size, place = 0, ""
        steps.append(piece)
    return [*steps, _pass(size, place)] if size else steps


def _pieces(tree: AvroType, place: str) -> list[_Piece] | None:
    kind = kind_of(tree)
    if kind == "record":
        pieces: list[_Piece] = []
        for entry in tree["fields"]:
            inner = _pieces(entry["type"], f"field '{entry['name']}'")
            if inner is None:
                return None
            pieces += inner
        return pieces
    size = fixed_size(tree)
    if size is not None:
        return [(size, place)]
    step = _step_of(tree, kind, place)
    return None if step is None else [step]


def _step_of(tree: AvroType, kind: str, place: str) -> Step | None:
    match kind:
        case "array":
            return _array(tree["items"], place)
        case "union":
            return _nullable(tree, place)
        case "enum":
            return _enum(len(tree["symbols"]), place)
    scalars = {"boolean": _boolean, "int": _integer(INT), "long": _integer(LONG), "string": _sized, "bytes": _sized}
    return scalars[kind](place) if kind in scalars else None


def fixed_size(tree: AvroType) -> int | None:
    """Bytes of every value of a type, where that is one number and any bytes will do."""
    kind = kind_of(tree)
    if kind == "fixed":
        return int(tree["size"])
    if kind == "record":
        sizes = [fixed_size(entry["type"]) for entry in tree["fields"]]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    return _FIXED.get(kind)


def _pass(size: int, place: str) -> Step:
    def step(bodies: Bodies) -> None:
        bodies.advance(size, place)

    return step


def _boolean(place: str) -> Step:
    def step(bodies: Bodies) -> None:
        neither = bodies.text.data[bodies.position] > 1
        bodies.advance(1, place)
        if neither.any():
            bodies.fail(neither, f"{place}: expected the byte 0 or 1 of a boolean")

    return step


def _integer(varint: Varint) -> Callable[[str], Step]:
    def of_field(place: str) -> Step:
        def step(bodies: Bodies) -> None:
            length, _ = _lengths(bodies, varint, place)
            bodies.advance(length, place)

        return step

    return of_field


def _enum(symbols: int, place: str) -> Step:
    def step(bodies: Bodies) -> None:
        index = _read_varint(bodies, place)
        outside = (index < 0) | (index >= symbols)
        if outside.any():
            bodies.fail(outside, f"{place}: the enum's index isn't that of one of its {symbols} symbols")

    return step


def _sized(place: str) -> Step:
    def step(bodies: Bodies) -> None:
        size = _read_varint(bodies, place)
        negative = size < 0
        bodies.advance(np.maximum(size, 0), place)
        if negative.any():
            bodies.fail(negative, f"{place}: negative length")

    return step


def _nullable(tree: AvroType, place: str) -> Step | None:
    core, is_nullable = nullable(tree)
    pieces = _pieces(core, place) if is_nullable else None
    if pieces is None:
        return None
    inner = _steps(pieces)
    present = tree.index(core)

    def step(bodies: Bodies) -> None:
        index = _read_varint(bodies, place)
        outside = (index < 0) | (index > 1)
        if outside.any():
            bodies.fail(outside, f"{place}: the union's index isn't that of one of its 2 types")
        where = np.flatnonzero(index == present)
        if len(where) == 0:
            return
        part = bodies if len(where) == len(index) else bodies.part(where)
        for one in inner:
            one(part)
        if part is not bodies:
            bodies.position[where] = part.position

    return step


def _array(items: AvroType, place: str) -> Step | None:
    size = fixed_size(items)
    varint = {"int": INT, "long": LONG}.get(kind_of(items))
    if not size and varint is None:  # items without bytes: a short record could claim any number of them
        return None

    def pass_items(bodies: Bodies, count: Ints) -> None:
        if varint is None:
            assert size is not None
            # Cap the count just above what fits, because count * size of a false count could overflow 64 bits.
            fitting = (bodies.end - bodies.position) // size
            bodies.advance(np.minimum(count, fitting + 1) * size, place)
        else:
            _skip_varints(bodies, count, varint, place)

    def step(bodies: Bodies) -> None:
        live = np.arange(len(bodies.position))
        for passed in range(MOST_BLOCKS):
            if size and passed > 1 and len(live) < _FEW:
                for row in live.tolist():
                    _pass_alone(bodies, row, size, MOST_BLOCKS - passed, place)
                return
            part = bodies if len(live) == len(bodies.position) else bodies.part(live)
            more = _block(part, pass_items, place)
            if part is not bodies:
                bodies.position[live] = part.position
            live = live[more]
            if len(live) == 0:
                return
        at_fault = np.zeros(len(bodies.position), bool)
        at_fault[live] = True
        bodies.fail(at_fault, f"{place}: an array in more than {MOST_BLOCKS} blocks")

    return step


def _pass_alone(bodies: Bodies, row: int, size: int, most: int, place: str) -> None:
    """Skip the rest of one array of fixed-size items in plain Python (see `array`)."""
    start, end = int(bodies.position[row]), int(bodies.end[row])
    data = bodies.text.data[start : end + PADDING].tobytes()
    try:
        bodies.position[row] = start + after_blocks(data, end - start, size, most)
    except FaultError as fault:
        at_fault = np.zeros(len(bodies.position), np.bool_)
        at_fault[row] = True
        bodies.fail(at_fault, f"{place}: {fault}")


def _block(bodies: Bodies, pass_items: Callable[[Bodies, Ints], None], place: str) -> Flags:
    """Pass one block of each array; return which of them had one and so may have more."""
    count = _read_varint(bodies, place)
    more = np.not_equal(count, 0)
    stated = _stated_ends(bodies, count, place)
    where = np.flatnonzero(more)
    if len(where):
        part = bodies if len(where) == len(count) else bodies.part(where)
        pass_items(part, np.abs(count[where]))
        if part is not bodies:
            bodies.position[where] = part.position
    if stated is None:
        return more
    wrong = np.less(count, 0) & np.not_equal(bodies.position, stated)
    bodies.fail(wrong, f"{place}: an array's block is not of the size that it states")
    return more & ~wrong


def _stated_ends(bodies: Bodies, count: Ints, place: str) -> Ints | None:
    """Where blocks should end: a negative count of items is followed by the block's size in bytes."""
    where = np.flatnonzero(count < 0)
    if len(where) == 0:
        return None
    part = bodies.part(where)
    size = _read_varint(part, place)
    bodies.position[where] = part.position
    stated = np.full(len(count), -1)
    stated[where] = part.position + size
    return stated


def _lengths(bodies: Bodies, varint: Varint, place: str) -> tuple[int | Ints, npt.NDArray[np.uint8] | None]:
    """Bytes of the integer at each position, and, unless all have one byte, the bytes from there on, a row each."""
    data, position = bodies.text.data, bodies.position
    if not len(position) or data[position].max() < 0x80:
        return 1, None
    window = data[position[:, None] + np.arange(varint.longest)]
    ends = window < 0x80
    last = ends.argmax(1)
    ended = ends.any(1)
    too_long = ~ended | ((last == varint.longest - 1) & (window[:, -1] > varint.last))
    if too_long.any():
        bodies.fail(too_long, f"{place}: an integer too large for its type ({varint.name})")
        last = np.where(too_long, 0, last)
    return last + 1, window


def _read_varint(bodies: Bodies, place: str) -> Ints:
    """Read a length, count or index; 0 where the body is at fault."""
    first = bodies.text.data[bodies.position]
    length, window = _lengths(bodies, LENGTH, place)
    if window is None:
        raw = first.astype(np.int64)
    else:
        bits = (window & 0x7F).astype(np.int64) << (7 * np.arange(LENGTH.longest))
        bits[np.arange(LENGTH.longest) >= np.asarray(length)[:, None]] = 0
        raw = bits.sum(1)
    bodies.advance(length, place)
    value: Ints = (raw >> 1) ^ -(raw & 1)
    if bodies.errors:
        value[bodies.is_faulty[bodies.rows]] = 0
    return value


def _skip_varints(bodies: Bodies, count: Ints, varint: Varint, place: str) -> None:
    """Pass `count` integers, at least one each, at the cost of one: the last one's end is found by counting stops."""
    text = bodies.text
    first = np.searchsorted(text.stops, bodies.position)
    last = np.minimum(first + count - 1, len(text.stops) - 1)
    length = text.stops[last] + 1 - bodies.position
    unfinished = first + count > len(text.stops)
    overlong = text.overlong(varint)
    first_size = text.stops[first] - bodies.position + 1  # the run it ends may begin before this array
    too_long = (overlong[last] > overlong[first]) | (first_size > varint.longest)
    too_long |= (first_size == varint.longest) & (text.data[text.stops[first]] > varint.last)
    bodies.advance(np.where(unfinished, bodies.end - bodies.position + 1, length), place)
    if too_long.any():
        bodies.fail(too_long, f"{place}: an integer too large for its type ({varint.name})")
