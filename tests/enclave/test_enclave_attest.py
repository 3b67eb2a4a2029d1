"""Attestations of a development machine: every stage right, and each wrong in its turn; documents that are none."""

import json
from dataclasses import replace
from typing import Any

import pytest

from assay.enclave.attest import (
    STAGES,
    Attestation,
    Collateral,
    EnclaveStatement,
    JudgementStatement,
    report_data,
    verify,
    verify_quote,
)
from assay.enclave.attest import document as documents
from assay.enclave.attest.quote import DEVELOPMENT_ROOT, load_library, read_quote
from assay.enclave.develop.machine import ADVISORY, Authority, Machine
from assay.errors import BadInput, Refused
from assay.exact import canonical
from assay.scheme.bounty import STATUSES, Measurements
from assay.scheme.reading import validate
from enclave_kit import AUTHORITY, MACHINE, NOW, STATEMENT, attested, policy, refused, stages, with_changes

JUDGEMENT = JudgementStatement(
    bounty=STATEMENT.bounty,
    judgement=f"sha256:{'12' * 32}",
    signer=STATEMENT.signer,
)


def test_every_stage_of_a_right_one() -> None:
    verdict = verify(attested(), policy=policy(), now=NOW)
    assert stages(verdict) == [stage for stage in STAGES if stage != "measurements"]
    assert stages(verdict, done=False) == ["measurements"]
    assert verdict.development
    assert verdict.statement == STATEMENT.model_dump()
    assert verdict.logged["compose-hash"] == MACHINE.compose_hash.hex()
    assert verdict.logged["app-id"] == MACHINE.app_id.hex()
    assert "not a KMS" in verdict.logged["key-provider"]
    assert json.loads(canonical(verdict.document()))["tcb"] == {"status": "UpToDate", "advisories": []}


def test_nothing_is_left_to_look_at_when_all_is_pinned() -> None:
    measured: dict[str, Any] = read_quote(MACHINE.quote(b"")).measurements
    verdict = verify(attested(), policy=policy(**measured), now=NOW)
    assert stages(verdict) == list(STAGES)
    assert stages(verdict, done=False) == []


def test_a_quote_of_version_5_too() -> None:
    machine = replace(MACHINE, version=5)
    verdict = verify(attested(machine), policy=policy(), now=NOW)
    assert verdict.checked[0].what.startswith("TDX, version 5")
    refused(attested(machine, statement=JUDGEMENT), "report_data")


def test_a_development_root_is_refused_by_default() -> None:
    error = refused(attested(), "certificates", "it is a development quote", development=False)
    assert "it proves nothing" in error.what
    assert DEVELOPMENT_ROOT in str(error.found)
    assert "Intel SGX Root CA" in str(error.expected)


def test_the_library_alone_refuses_it_too() -> None:
    given = load_library().QuoteCollateralV3.from_json(AUTHORITY.collateral(NOW).text())
    with pytest.raises(ValueError, match="Verification failed"):
        load_library().verify(MACHINE.quote(bytes(64)), given, NOW)
    root = AUTHORITY.platform.root
    assert load_library().verify_with_root_ca(MACHINE.quote(bytes(64)), given, root, NOW).status == "UpToDate"


def test_a_root_that_is_nobodys() -> None:
    class Nobody(Authority):
        @property
        def platform(self) -> Any:
            chain = super().platform
            root = chain.root.replace(DEVELOPMENT_ROOT.encode(), DEVELOPMENT_ROOT.encode().swapcase())
            return replace(chain, certificates=(*chain.certificates[:2], root))

    refused(attested(Machine(Nobody(AUTHORITY.secret))), "certificates", "a root that is not Intel's")


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "UpToDate"])
def test_a_status_is_refused_unless_it_is_listed(status: str) -> None:
    machine = Machine(Authority(AUTHORITY.secret, status))
    error = refused(attested(machine), "tcb", f"not up to date; advisories: {ADVISORY}")
    assert (error.expected, error.found) == ("UpToDate", status)
    verdict = verify(attested(machine), policy=policy(tcb=[status]), now=NOW)
    assert (verdict.status, verdict.advisories) == (status, (ADVISORY,))
    assert verify(attested(), policy=policy(tcb=[status]), now=NOW).status == "UpToDate"


def test_a_revoked_platform_is_refused_whatever_is_listed() -> None:
    refused(attested(Machine(Authority(AUTHORITY.secret, "Revoked"))), "tcb", "Revoked", tcb=list(STATUSES))
    refused(attested(Machine(Authority(AUTHORITY.secret, revoked=True))), "certificates", "CertRevoked", tcb=list(STATUSES))


def test_debug_mode_is_refused() -> None:
    refused(attested(replace(MACHINE, debug=True)), "debug", "the host can read and change what runs in it")
    for bit in range(8):  # each of the first byte says that the TD is not to be trusted
        attributes = bytes([1 << bit]) + MACHINE.report["td_attributes"][1:]
        refused(attested(with_changes(MACHINE, td_attributes=attributes)), "debug")


def test_a_quote_is_of_its_statement_alone() -> None:
    error = refused(attested(statement=JUDGEMENT), "report_data", "about something else")
    assert error.expected == report_data(JUDGEMENT).hex()
    for field, value in (("bounty", "sha256:"), ("seal", "x25519:"), ("signer", "ed25519:")):
        other = STATEMENT.model_copy(update={field: f"{value}{'99' * 32}"})
        refused(attested(statement=other), "report_data")


def test_report_data_are_of_a_tag_and_a_type() -> None:
    import hashlib

    assert len(report_data(STATEMENT)) == 64
    assert report_data(STATEMENT) == hashlib.sha512(b"assay/report-data/v1\0" + canonical(STATEMENT.model_dump())).digest()
    assert report_data(STATEMENT) != report_data(JUDGEMENT)


def test_measurements_that_are_pinned() -> None:
    measured: dict[str, Any] = read_quote(MACHINE.quote(b"")).measurements
    for name, value in measured.items():
        pins: dict[str, Any] = {name: "00" * 48}
        error = refused(attested(), "measurements", name, **pins)
        assert error.found == value


def test_time_and_collateral() -> None:
    given = attested()
    assert refused(given, "collateral", "not valid yet", now=NOW - 3601).found is not None
    end = NOW - 3600 + 30 * 86_400
    refused(given, "collateral", "expired", now=end)
    for now in (NOW - 3600, end - 1):
        assert verify(given, policy=policy(), now=now).valid_until == end
    refused(attested(collateral=None), "collateral", "it is missing")
    fresh = AUTHORITY.collateral(NOW + 40 * 86_400)
    assert verify(given, policy=policy(), now=NOW + 40 * 86_400, collateral=fresh)
    other = Authority(bytes(32)).collateral(NOW)
    refused(attested(collateral=other), "collateral", "not of the authority")


def test_collateral_that_does_not_belong_together() -> None:
    mine, other = AUTHORITY.collateral(NOW), Authority(bytes(32)).collateral(NOW)

    def mixed(**fields: Any) -> Attestation:
        return attested(collateral=mine.model_copy(update=fields))

    refused(mixed(tcb_info_issuer_chain=other.tcb_info_issuer_chain), "collateral", "another root")
    refused(mixed(tcb_info_issuer_chain="nothing"), "collateral", "plain PEM")
    refused(mixed(qe_identity_issuer_chain=mine.qe_identity_issuer_chain.replace("\n", "\r\n")), "collateral", "plain PEM")
    refused(mixed(pck_crl_issuer_chain=AUTHORITY.platform.pem.decode()), "collateral", "too few or too many")
    refused(mixed(pck_crl=other.pck_crl), "collateral", "Crl")
    refused(mixed(root_ca_crl="00"), "collateral", "cannot be read")
    refused(mixed(tcb_info_signature=other.tcb_info_signature), "collateral", "tcb_info")
    refused(mixed(qe_identity_signature=mine.tcb_info_signature), "collateral", "qe_identity")
    for text in ("[]", "{", '{"issueDate": 3}', '{"issueDate": "2026-01-01T00:00:00Z"}'):
        refused(mixed(tcb_info=text), "collateral", "tcb_info")


def test_a_platforms_own_chain_in_collateral_is_not_used() -> None:
    raw = AUTHORITY.collateral(NOW).document()
    given = validate(Collateral, raw | {"pck_certificate_chain": Authority(bytes(32)).platform.pem.decode()})
    assert verify(attested(collateral=given), policy=policy(), now=NOW)
    assert "pck_certificate_chain" not in given.document()


def test_lengths_that_do_not_fill_each_other() -> None:
    quote = bytes.fromhex(attested().quote)
    refused(attested(quote=(quote[:632] + (len(quote) - 636 + 1).to_bytes(4, "little") + quote[636:] + b"\0").hex()), "quote")
    refused(attested(quote=(quote + b"\1").hex()), "quote", "something follows its end")
    refused(attested(quote=(quote[:764] + b"\5\0" + quote[766:]).hex()), "quote")


def test_every_length_and_type_has_one_value() -> None:
    """The library takes several of them; here any bit of any is refused."""
    quote = bytes.fromhex(attested().quote)
    fields = (*range(632, 636), *range(764, 770), *range(1218, 1220), *range(1252, 1258))
    for bit in (8 * byte + place for byte in fields for place in range(8)):
        changed = bytearray(quote)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Refused):
            verify(attested(quote=bytes(changed).hex()), policy=policy(), now=NOW)


def test_certificates_in_another_spelling() -> None:
    pem = AUTHORITY.platform.pem
    spelled = (pem.replace(b"\n", b"\r\n"), pem.replace(b"-----END", b" -----END"), b"\n" + pem, pem + pem, pem[:-200])
    quotes = [_with_pem(MACHINE.quote(report_data(STATEMENT)), text) for text in spelled]
    for quote in quotes:
        with pytest.raises(Refused) as error:
            verify_quote(quote, policy=policy(), now=NOW, collateral=AUTHORITY.collateral(NOW))
        assert error.value.stage in ("certificates", "quote")
    for end in (b"", b"\0", b"\n\0"):  # as some quoting enclaves end it
        quote = _with_pem(MACHINE.quote(report_data(STATEMENT)), pem.removesuffix(b"\n") + end)
        assert verify_quote(quote, policy=policy(), now=NOW, collateral=AUTHORITY.collateral(NOW), events=MACHINE.log)


def _with_pem(quote: bytes, pem: bytes) -> bytes:
    """The quote with other certificates, its lengths put right: they are not under its signature."""
    fixed = 384 + 64 + 2 + 32
    start = 632 + 4 + 128 + 6
    inner = quote[start : start + fixed] + b"\5\0" + len(pem).to_bytes(4, "little") + pem
    outer = quote[636 : 636 + 128] + b"\6\0" + len(inner).to_bytes(4, "little") + inner
    return quote[:632] + len(outer).to_bytes(4, "little") + outer


def test_what_is_no_quote_of_tdx() -> None:
    for junk in (b"", b"\0" * 100, b"\4\0" * 400, bytes(5000), b"\3\0\2\0" + bytes(2000)):
        with pytest.raises(Refused) as error:
            verify_quote(junk, policy=policy(), now=NOW, collateral=None)
        assert error.value.stage == "quote"


def test_a_document_is_read_as_it_was_written() -> None:
    original = attested()
    again = documents.parse_attestation(original.data)
    assert again == original
    assert again.digest == original.digest
    assert original.with_collateral(None).digest != original.digest
    assert documents.parse_attestation(original.with_collateral(None).data).collateral is None
    judged = attested(statement=JUDGEMENT)
    assert documents.parse_attestation(judged.data).statement == JUDGEMENT


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "assay.attestation/2"}, "is not an attestation"),
        ({"schema": None}, "is not an attestation"),
        ({"more": 1}, "there is no field 'more' here"),
        ({"quote": "zz"}, "quote: 'zz'"),
        ({"quote": ""}, "quote"),
        ({"quote": "00" * 20_000}, "quote"),
        ({"statement": {"type": "other"}}, "statement"),
        ({"statement": STATEMENT.model_dump() | {"seal": "cd" * 32}}, "seal"),
        ({"statement": STATEMENT.model_dump() | {"judgement": "x"}}, "judgement"),
        ({"statement": None}, "statement"),
        ({"event_log": [{"imr": 4, "event_type": 1, "event": "", "event_payload": ""}]}, "event_log"),
        ({"event_log": [{"imr": 3, "event_type": 1, "event": "", "event_payload": "", "preimage": ""}]}, "preimage"),
        ({"event_log": "[]"}, "event_log"),
        ({"collateral": {}}, "collateral"),
        ({"collateral": AUTHORITY.collateral(NOW).document() | {"more": ""}}, "more"),
        ({"vm_config": {}}, "vm_config"),
    ],
)
def test_what_is_no_document(change: dict[str, Any], words: str) -> None:
    data = canonical(attested().document() | change)
    with pytest.raises(BadInput, match=words):
        documents.parse_attestation(data, "a.json")


def test_what_is_no_json() -> None:
    for data in (b"", b"[]", b"{", b"\xff", b'{"schema": NaN}', b'{"schema": "a", "schema": "b"}'):
        with pytest.raises(BadInput):
            documents.parse_attestation(data)
    with pytest.raises(BadInput, match="larger than"):
        documents.parse_attestation(b" " * 9_000_000)


def test_a_policy_pins_the_program() -> None:
    with pytest.raises(BadInput, match="neither compose_hash nor rtmr3"):
        validate(Measurements, {"mrtd": "00" * 48})
    with pytest.raises(BadInput, match="Revoked"):
        policy(tcb=["Revoked"])
    with pytest.raises(BadInput, match="64 lower-case hex digits"):
        policy(compose_hash="AB" * 32)
    assert policy().unpinned == ("mrtd", "rtmr0", "rtmr1", "rtmr2")


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "dcap_qvl", None)
    with pytest.raises(BadInput, match=r"pip install 'assay\[tee\]'"):
        verify(attested(), policy=policy(), now=NOW)


def test_what_is_no_statement() -> None:
    with pytest.raises(BadInput):
        validate(EnclaveStatement, {"bounty": "x", "seal": "y", "signer": "z"})
