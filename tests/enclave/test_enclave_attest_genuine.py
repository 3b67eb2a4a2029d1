"""A genuine quote of Intel's, with its collateral: right within its window, and with any bit changed, wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.enclave.attest import Collateral, read_collateral, verify_quote
from assay.enclave.attest.quote import INTEL_ROOT, read_quote
from assay.errors import BadInput, Refused
from assay.scheme.bounty import Measurements
from assay.scheme.reading import validate
from enclave_kit import AUTHORITY, stages

FIRST, LAST = 1750329147, 1752919234
NOW = 1751000000
SIGNED = 4936  # bytes of header, TD report and signature data; 70 of padding follow
POLICY = Measurements(rtmr3="00" * 48)  # a TD that logged nothing


@pytest.fixture(scope="module")
def quote(shared: Path) -> bytes:
    return _data(shared, "tdx_quote")


def _data(shared: Path, name: str) -> bytes:
    return (shared / "data" / "tdx" / name).read_bytes()


@pytest.fixture(scope="module")
def collateral(shared: Path) -> Collateral:
    return read_collateral(shared / "data" / "tdx" / "tdx_quote_collateral.json")


def wrong(quote: bytes, collateral: Collateral, now: int = NOW) -> Refused:
    with pytest.raises(Refused) as error:
        verify_quote(quote, policy=POLICY, now=now, collateral=collateral)
    return error.value


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_it_is_right_within_its_window(quote: bytes, collateral: Collateral) -> None:
    for now in (FIRST, NOW, LAST):
        verdict = verify_quote(quote, policy=POLICY, now=now, collateral=collateral)
        assert stages(verdict) == ["quote", "certificates", "collateral", "debug", "signature", "tcb", "measurements"]
        assert stages(verdict, done=False) == ["report_data", "measurements", "events"]
        assert (verdict.status, verdict.advisories, verdict.development) == ("UpToDate", (), False)
        assert (verdict.valid_from, verdict.valid_until) == (FIRST, LAST + 1)


def test_it_is_about_what_it_carries(quote: bytes, collateral: Collateral) -> None:
    carried = read_quote(quote).report.report_data
    verdict = verify_quote(quote, policy=POLICY, now=NOW, collateral=collateral, report_data=carried)
    assert "report_data" in stages(verdict)
    with pytest.raises(Refused, match="about something else"):
        verify_quote(quote, policy=POLICY, now=NOW, collateral=collateral, report_data=bytes(64))


def test_before_and_after_it_is_not(quote: bytes, collateral: Collateral) -> None:
    early, late = wrong(quote, collateral, FIRST - 1), wrong(quote, collateral, LAST + 1)
    assert early.stage == late.stage == "collateral"
    assert "not valid yet" in early.what
    assert "expired" in late.what
    assert "2025-06-19T10:32:27Z" in str(early)
    assert "2025-07-19T10:00:35Z" in str(late)
    for now in (0, 4_000_000_000):
        assert wrong(quote, collateral, now).stage == "collateral"
    with pytest.raises(BadInput, match="is not a time"):
        verify_quote(quote, policy=POLICY, now=-1, collateral=collateral)


@pytest.mark.full
def test_with_a_bit_changed_it_is_not(quote: bytes, collateral: Collateral) -> None:
    """One bit of every third byte; each place within a byte has its turn."""
    tried = [8 * byte + (5 * byte + 3) % 8 for byte in range(0, len(quote), 3)]
    assert len(tried) == 1669
    assert {bit % 8 for bit in tried} == set(range(8))
    for bit in tried:
        wrong(flipped(quote, bit), collateral)


@pytest.mark.full
@pytest.mark.parametrize("place", range(8))
def test_with_any_bit_changed_it_is_not(quote: bytes, collateral: Collateral, place: int) -> None:
    """All 40,048 bits: 39,488 of header, TD report and signature data; the rest is padding, which must be zeros."""
    tried = range(place, 8 * len(quote), 8)
    assert len(tried) == 5006
    for bit in tried:
        wrong(flipped(quote, bit), collateral)


def test_shorter_or_longer_it_is_not(quote: bytes, collateral: Collateral) -> None:
    for length in range(0, SIGNED, 61):
        assert wrong(quote[:length], collateral).stage == "quote"
    assert wrong(quote[: SIGNED - 1], collateral).stage == "quote"
    assert wrong(quote + b"\1", collateral).stage == "quote"
    assert "too large" in wrong(quote + bytes(20_000), collateral).what
    for padding in (0, 70, 3000):  # as machines leave it
        assert verify_quote(quote[:SIGNED] + bytes(padding), policy=POLICY, now=NOW, collateral=collateral).status == "UpToDate"


@pytest.mark.full
def test_with_a_bit_of_its_collateral_changed_it_is_not(quote: bytes, collateral: Collateral, shared: Path) -> None:
    raw: dict[str, str] = json.loads(_data(shared, "tdx_quote_collateral.json"))
    tried = 0
    for name, value in raw.items():
        packed = name.endswith(("_signature", "_crl"))
        data = bytes.fromhex(value) if packed else value.encode()
        step = 1 if name.endswith("_signature") else 5
        for byte in range(0, len(data), step):
            changed = flipped(data, 8 * byte + byte // step % 7)
            tried += 1
            refused_with(quote, raw | {name: changed.hex() if packed else changed.decode()})
    assert tried > 2_500


def refused_with(quote: bytes, raw: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        verify_quote(quote, policy=POLICY, now=NOW, collateral=validate(Collateral, raw))


def test_collateral_of_another_platform_or_none(quote: bytes, collateral: Collateral) -> None:
    assert "not of the authority" in wrong(quote, AUTHORITY.collateral(NOW)).what
    with pytest.raises(Refused, match="it is missing: give it with --collateral") as error:
        verify_quote(quote, policy=POLICY, now=NOW, collateral=None)
    assert error.value.stage == "collateral"


def test_its_root_is_the_one_that_the_library_trusts(quote: bytes) -> None:
    import dcap_qvl

    chain = read_quote(quote).chain
    assert chain.fingerprint == INTEL_ROOT
    library = next(Path(dcap_qvl.__file__).parent.glob("_dcap_qvl*.so"))
    assert chain.root in library.read_bytes()


def test_what_is_pinned_must_be_there(quote: bytes, collateral: Collateral) -> None:
    measured = read_quote(quote).measurements
    for name, value in measured.items():
        other = flipped(bytes.fromhex(value), 7).hex()
        right, wrong = (validate(Measurements, {"rtmr3": measured["rtmr3"]} | {name: digest}) for digest in (value, other))
        assert verify_quote(quote, policy=right, now=NOW, collateral=collateral)
        with pytest.raises(Refused, match=name) as error:
            verify_quote(quote, policy=wrong, now=NOW, collateral=collateral)
        assert error.value.stage == "measurements"
    with pytest.raises(Refused, match="no log") as error:
        verify_quote(quote, policy=Measurements(compose_hash="00" * 32), now=NOW, collateral=collateral)
    assert error.value.stage == "events"


def test_a_policy_for_tests_still_takes_intels_root(quote: bytes, collateral: Collateral) -> None:
    verdict = verify_quote(quote, policy=Measurements(rtmr3="00" * 48, development=True), now=NOW, collateral=collateral)
    assert not verdict.development
