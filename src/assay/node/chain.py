"""The registry of a chain at an epoch's block: one block for all competitions of a subnet that close the epoch. SPEC 3.0, 4.

The block of each epoch is noted, so that competitions which close the epoch later, or a node that was killed, take the same one:
a split is refused if its competitions rest on two states of the subnet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from assay.errors import Unreachable
from assay.folder import csvs, registry
from assay.folder.files import alone, write_bytes
from assay.publish import publishers
from assay.publish.bittensor import settings
from assay.publish.bittensor.node import BittensorNode, BlockId
from assay.publish.bittensor.registry import Pull, pull_together
from assay.publish.bittensor.registry import write as write_registry
from assay.scheme.clock import BLOCK_SECONDS, EpochEnd
from assay.scheme.load import read as read_scheme
from assay.settle.story.telling import plural

__all__ = ["EpochRegistry"]

STATE_BLOCKS = 200
"""A node that is no archive has the state of so many blocks."""


class EpochRegistry:
    """The registries of competitions as a chain has them. target: of publish.toml beside them: its folder and its name.

    Methods raise BadInput for what the chain or the folders do not allow, and Unreachable.
    """

    def __init__(self, target: tuple[Path, str], tell: Callable[[Path, str], None]) -> None:
        self._target, self._tell = target, tell
        self._opened: tuple[BittensorNode, int, int] | None = None

    @property
    def _node(self) -> BittensorNode:
        if self._opened is None:
            folder, name = self._target
            self._opened = settings.subnet_of(publishers.read_target(folder, name))
        return self._opened[0]

    def close(self) -> None:
        """Drop the connection; the next question opens another."""
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    def head(self) -> int:
        """The number of the newest final block."""
        return self._node.finalized().number

    def begin(self, folders: Sequence[Path]) -> None:
        """Pull the registries at the newest final block, if one of the folders has none yet."""
        if any(registry.read_pulled(folder / registry.PULLED_FILE) is None for folder in folders):
            self._pull(self._node.finalized(), folders)

    def pull(self, end: EpochEnd, folders: Sequence[Path], noted: Mapping[int, int]) -> int:
        """Pull what closes an epoch, for these folders, and add the randomness that it draws by; returns the block's number.

        noted: epoch → the block of earlier pulls, which is taken again.
        """
        at = self._block_of(end, noted.get(end.epoch))
        stale = [folder for folder in folders if not _is_of(folder, at)]
        if stale:
            self._pull(at, stale)
        for folder in folders:
            _draw(folder, end.epoch, at)
        return at.number

    def _pull(self, at: BlockId, folders: Sequence[Path]) -> None:
        node = self._node
        assert self._opened is not None  # `_node` opened it
        pulls: list[Pull] = pull_together(node, *self._opened[1:], at, folders)
        write_registry(*pulls)
        for pulled in pulls:
            if changes := len(pulled.people) + len(pulled.judges):
                self._tell(pulled.folder, f"registry of block {at.number}: {plural(changes, 'change')}")

    def _block_of(self, end: EpochEnd, noted: int | None) -> BlockId:
        """The block of an epoch's end; the newest final one, if the node has no state of that any more."""
        head = self._node.finalized()
        number = noted if noted is not None else end.at if end.unit == "block" else self._last_before(end.at, head)
        if head.number - number >= STATE_BLOCKS and not self._has_state(number):
            return head
        block_hash = self._node.block_hash(number)
        return head if block_hash is None else BlockId(number, block_hash)

    def _last_before(self, seconds: int, head: BlockId) -> int:
        """The last final block that is not younger than a time, as far as the node has state."""
        newest = self._seconds(head.number)
        if newest <= seconds:
            return head.number
        low = max(0, head.number - STATE_BLOCKS + 1)
        high = head.number
        guess = head.number - int((newest - seconds) / BLOCK_SECONDS) - 1
        while low < high:
            middle = guess if low < guess <= high else (low + high + 1) // 2
            guess = -1
            if self._seconds(middle) <= seconds:
                low = middle
            else:
                high = middle - 1
        return low

    def _seconds(self, number: int) -> float:
        """The time of a block, by the chain."""
        block_hash = self._node.block_hash(number)
        then = None if block_hash is None else self._node.query("Timestamp", "Now", (), block_hash)
        if not isinstance(then, int):
            raise Unreachable(f"{self._node.host} does not say when block {number} was", hint="ask another node")
        return then / 1000

    def _has_state(self, number: int) -> bool:
        try:
            self._seconds(number)
        except Unreachable:
            return False
        return True


def _is_of(folder: Path, at: BlockId) -> bool:
    """Whether the registry of a folder is of a block. Tables changed by hand since then are refused when it is settled."""
    pulled = registry.read_pulled(folder / registry.PULLED_FILE)
    return pulled is not None and (pulled.block, pulled.hash) == (at.number, at.hash)


def _draw(folder: Path, epoch: int, at: BlockId) -> None:
    """Add the hash of an epoch's block to randomness.csv, where the scheme draws validators. SPEC 3.0."""
    if read_scheme(folder / "scheme.toml").consensus.assign is None:
        return
    file, table = folder / csvs.RANDOMNESS.name, csvs.RANDOMNESS
    with alone(folder):
        rows = [row.fields for row in csvs.read(file, table)] if file.exists() else []
        if epoch not in [row["epoch"] for row in rows]:
            rows.append({"epoch": epoch, "hex": at.hash.removeprefix("0x")})
            write_bytes(file, csvs.dumped(table.needed, [{name: str(cell) for name, cell in row.items()} for row in rows]))
