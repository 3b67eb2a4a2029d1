"""Every hash and entry of a log, changed one at a time: verify fails, and names the file; a log that was put back is seen."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ledger_kit
import tamper_kit
from assay.errors import Refused
from assay.ledger import bundle, log
from assay.ledger.check import leaf_hash
from assay.ledger.merkle import root
from assay.ledger.verify import verify
from assay.ledger.verify.claims import log_of
from tamper_kit import KEY, Change, all_refused

exported = pytest.fixture(scope="module")(tamper_kit.exported)


def flips(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The bytes of a tile with a bit of each hash changed, cut off, and grown."""
    for at in range(0, len(data), log.HASH_BYTES):
        place = at + at // log.HASH_BYTES % log.HASH_BYTES
        yield f"hash {at // log.HASH_BYTES}", data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    yield "cut off", data[:-1]
    yield "grown", data + bytes(log.HASH_BYTES)


@pytest.mark.full
@pytest.mark.no_cover
def test_every_hash_and_entry_of_the_log(exported: Path) -> None:
    given = exported / "bundle"
    files = [str(path.relative_to(given)) for path in sorted((given / "log").rglob("*")) if path.is_file()]
    assert files == ["log/checkpoint", "log/tile/0/000.p/3", "log/tile/entries/000.p/3"]
    assert len(all_refused(given, files[1], {"log"}, flips((given / files[1]).read_bytes()))) == 5
    entries = (given / files[2]).read_bytes()
    every: Iterator[Change] = (
        (str(at), entries[:at] + bytes([entries[at] ^ 1]) + entries[at + 1 :]) for at in range(len(entries))
    )
    assert len(all_refused(given, files[2], {"log"}, every)) == len(entries)
    checkpoint = (given / files[0]).read_bytes()
    each: Iterator[Change] = (
        (str(at), checkpoint[:at] + bytes([checkpoint[at] ^ 1]) + checkpoint[at + 1 :]) for at in range(len(checkpoint))
    )
    assert len(all_refused(given, files[0], {"log"}, each)) == len(checkpoint)


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[[int], bytes]]:
    """A log of 700 entries: full tiles, partial ones, two levels."""
    place = tmp_path_factory.mktemp("long") / "log"
    entries = [number.to_bytes(32, "big") for number in range(700)]

    def checkpoint(size: int) -> bytes:
        top = root([leaf_hash(entry) for entry in entries[:size]])
        return log.sign_checkpoint(size, top, ledger_kit.KEY, ledger_kit.SIGNER)

    for path, data in bundle.log_files(entries, checkpoint(700)).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    return place, checkpoint


@pytest.mark.full
def test_every_hash_of_every_tile_of_a_long_log(long_log: tuple[Path, Callable[[int], bytes]]) -> None:
    from assay.ledger.check import check_checkpoint
    from assay.ledger.verify import Verified

    place, checkpoint = long_log
    now = check_checkpoint(checkpoint(400), [ledger_kit.KEY])
    assert log_of(place, ledger_kit.KEY, now, Verified(), whole=True).size == 700
    count = 0
    for path in sorted((place / "tile").rglob("*")):
        if not path.is_file() or "entries" in path.parts:
            continue
        whole = path.read_bytes()
        for what, data in flips(whole):
            path.write_bytes(data)
            with pytest.raises(Refused) as error:
                log_of(place, ledger_kit.KEY, now, Verified(), whole=True)
            assert error.value.stage == "log", what
            assert str(path.relative_to(place)) in str(error.value.file) or what in ("grown", "cut off"), (what, error.value)
            count += 1
        path.write_bytes(whole)
    assert count == 700 + 2 + 2 * 4


@pytest.mark.no_cover
def test_a_log_that_was_rolled_back_or_forked(exported: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(exported / "bundle", tmp_path / "bundle"))
    entries = [bytes([number]) * 32 for number in range(3)]
    for size in (0, 2, 3):
        shutil.rmtree(given / "log")
        top = root([leaf_hash(entry) for entry in entries[:size]])
        for path, data in bundle.log_files(
            entries[:size], log.sign_checkpoint(size, top, ledger_kit.KEY, ledger_kit.SIGNER)
        ).items():
            (given / "log" / path).parent.mkdir(parents=True, exist_ok=True)
            (given / "log" / path).write_bytes(data)
        with pytest.raises(Refused, match="was forked" if size == 3 else "was rolled back") as error:
            verify(given, key=KEY)
        assert error.value.stage == "log"
