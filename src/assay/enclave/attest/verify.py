"""Verifies an attestation in stages, offline and at a given time. The first stage that fails is raised as Refused, with its name.

    quote → certificates → collateral → debug → signature → tcb → report_data → measurements → events → compose

quote         it is a TDX quote in plain form, and nothing follows its end
certificates  its chain ends at Intel's root; if the policy allows it, at a development root, which proves nothing
collateral    it is present, of the same root and authority, and valid at the given time
debug         the host cannot look into the TD
signature     Intel's root → platform → quoting enclave → attestation key → this quote; none of them is revoked
tcb           Intel's status of the platform's firmware: up to date, or a status that the policy lists
report_data   the quote is about this statement, or these 64 bytes
measurements  they are those that the policy pins
events        dstack's log leads to the quote's RTMR3
compose       the log's compose hash is the policy's

This module uses no clock and no network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.enclave.attest import document as logs
from assay.enclave.attest.collateral import Collateral
from assay.enclave.attest.document import Attestation, LogEvent
from assay.enclave.attest.document import report_data as data_of
from assay.enclave.attest.quote import DEVELOPMENT_ROOT, INTEL_ROOT, Quote, load_library, read_quote
from assay.errors import BadInput, Refused
from assay.scheme.bounty import Measurements

STAGES = (
    *("quote", "certificates", "collateral", "debug", "signature", "tcb", "report_data"),
    *("measurements", "events", "compose"),
)
"""The stages, in the order in which they are checked."""
LATEST = 253_402_300_799
"""The last second of the year 9999: no time is after it."""
_TCB = ("TCB", "Fmspc", "TDX module", "FMSPC")
_CHAIN = ("certificate chain", "PCK cert")
_COLLATERAL = ("CRL", "Crl", "tcb_info", "qe_identity", "TcbInfo", "TCBInfo", "QE Identity", "QeIdentity")


@dataclass(frozen=True)
class StageCheck:
    """A stage, and what was checked there; or, if `done` is False, what was not checked."""

    stage: str
    what: str
    done: bool = True


@dataclass
class VerifiedQuote:
    """The result of a verification that succeeded; `checked` has the stages."""

    development: bool = False
    """Whether it ends at a development root, and so proves nothing."""
    status: str = ""
    advisories: tuple[str, ...] = ()
    measurements: dict[str, str] = field(default_factory=dict)
    report_data: str = ""
    logged: dict[str, str] = field(default_factory=dict)
    """Values that dstack logged: compose-hash, app-id, instance-id and others, in hex; key-provider as its text."""
    valid_from: int = 0
    valid_until: int = 0
    """The time in which the collateral is valid (seconds since 1970; the second one is exclusive)."""
    statement: dict[str, Any] | None = None
    checked: list[StageCheck] = field(default_factory=list)

    def right(self, stage: str, what: str) -> None:
        """Note that a stage was checked and is right."""
        self.checked.append(StageCheck(stage, what))

    def not_looked_at(self, stage: str, what: str) -> None:
        """Note what was not checked, and what the check would need."""
        self.checked.append(StageCheck(stage, what, done=False))

    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "verified": True,
            "development": self.development,
            "tcb": {"status": self.status, "advisories": list(self.advisories)},
            "measurements": self.measurements,
            "report_data": self.report_data,
            "logged": self.logged,
            "valid": {"from": self.valid_from, "until": self.valid_until},
            "statement": self.statement,
            "stages": [{"stage": check.stage, "checked": check.done, "what": check.what} for check in self.checked],
        }


def verify(attestation: Attestation, *, policy: Measurements, now: int, collateral: Collateral | None = None) -> VerifiedQuote:
    """Check an attestation against what a bounty pins, at a time (seconds since 1970).

    collateral: replaces the attestation's own. Raises Refused at the first stage that is not right, and BadInput if the library
    is not installed. SPEC 7.
    """
    verified = verify_quote(
        bytes.fromhex(attestation.quote),
        policy=policy,
        now=now,
        collateral=collateral or attestation.collateral,
        report_data=data_of(attestation.statement),
        events=attestation.event_log,
        about=f"the quote binds the statement ({attestation.statement.type})",
    )
    verified.statement = attestation.statement.model_dump(mode="json")
    return verified


def verify_quote(
    raw: bytes,
    *,
    policy: Measurements,
    now: int,
    collateral: Collateral | None,
    report_data: bytes | None = None,
    events: Sequence[LogEvent] = (),
    about: str = "the quote binds the given 64 bytes",
) -> VerifiedQuote:
    """Check a bare quote, as `verify` does. report_data: the 64 bytes that it must carry; about: their description."""
    if not 0 <= now <= LATEST:
        raise BadInput(f"{now} is not a time", field="now", hint="give seconds since 1970")
    into = VerifiedQuote()
    quote = read_quote(raw)
    into.right("quote", f"TDX, version {quote.version}, {quote.size} bytes")
    _root(quote, policy, into)
    if collateral is None:
        raise Refused("collateral", "it is missing: give it with --collateral, or in the attestation")
    collateral.check(quote.chain)
    window = collateral.good_at(now)
    into.valid_from, into.valid_until = window.start, window.end
    into.right("collateral", f"good {window.words()}")
    if quote.debug:
        raise Refused("debug", "the quote is of a TD in debug mode: the host can read and change what runs in it")
    into.right("debug", "not in debug mode")
    _signed(quote, collateral, policy, now, into)
    _bound(quote, report_data, about, into)
    _measured(quote, policy, into)
    _logged(quote, policy, events, into)
    return into


def _root(quote: Quote, policy: Measurements, into: VerifiedQuote) -> None:
    """Check that the quote's certificates end at an allowed root."""
    if quote.chain.intel:
        into.right("certificates", f"{len(quote.chain.certificates)} certificates up to Intel's root")
        return
    expected, fingerprint = f"Intel SGX Root CA, {INTEL_ROOT}", quote.chain.fingerprint
    if not quote.chain.development:
        raise Refused("certificates", "they end at a root that is not Intel's", expected=expected, found=fingerprint)
    if not policy.development:
        what = "it is a development quote: anybody can make one, and it proves nothing; only a policy for tests allows it"
        raise Refused("certificates", what, expected=expected, found=f"{DEVELOPMENT_ROOT}, {fingerprint}")
    into.development = True
    into.right("certificates", f"they end at {DEVELOPMENT_ROOT!r}: the policy allows it, and it proves nothing")


def _signed(quote: Quote, collateral: Collateral, policy: Measurements, now: int, into: VerifiedQuote) -> None:
    """Let the library check every signature, then check the platform's status."""
    library = load_library()
    try:
        parsed = library.QuoteCollateralV3.from_json(collateral.text())
        if into.development:
            report = library.verify_with_root_ca(quote.raw, parsed, quote.chain.root, now)
        else:
            report = library.verify(quote.raw, parsed, now)
    except ValueError as error:
        raise _refused(str(error)) from None
    into.right("signature", "the root certifies the platform, the platform its quoting enclave, and that signed this quote")
    into.status, into.advisories = str(report.status), tuple(report.advisory_ids)
    advisories = f"advisories: {', '.join(into.advisories)}" if into.advisories else "no advisories"
    if not policy.accepts(into.status):
        wanted = " or ".join(dict.fromkeys(("UpToDate", *policy.tcb)))
        raise Refused("tcb", f"the platform is not up to date; {advisories}", expected=wanted, found=into.status)
    into.right("tcb", f"{into.status}, {advisories}")


def _refused(message: str) -> Refused:
    """The library's error as Refused, with the stage that it belongs to."""
    what = " ".join(message.split()).removeprefix("Verification failed: ")
    kinds = (("collateral", _COLLATERAL), ("certificates", _CHAIN), ("tcb", _TCB))
    stage = next((name for name, words in kinds if any(word in what for word in words)), "signature")
    return Refused(stage, f"the library that verifies quotes says: {what}")


def _bound(quote: Quote, wanted: bytes | None, about: str, into: VerifiedQuote) -> None:
    """Check that the quote is about the expected data."""
    into.report_data = quote.report.report_data.hex()
    if wanted is None:
        into.not_looked_at("report_data", "not compared: nothing says what it must be")
        return
    if wanted.hex() != into.report_data:
        raise Refused("report_data", "the quote is about something else", expected=wanted.hex(), found=into.report_data)
    into.right("report_data", about)


def _measured(quote: Quote, policy: Measurements, into: VerifiedQuote) -> None:
    """Compare the measurements with those that are pinned."""
    into.measurements = quote.measurements
    pinned = {name: value for name in into.measurements if (value := getattr(policy, name)) is not None}
    for name, value in pinned.items():
        if into.measurements[name] != value:
            raise Refused("measurements", f"{name} is not what is pinned", expected=value, found=into.measurements[name])
    if pinned:
        into.right("measurements", f"{', '.join(pinned)} as pinned")
    if policy.unpinned:
        what = f"{', '.join(policy.unpinned)}: not pinned, so it could be another system than dstack's that logs the same"
        into.not_looked_at("measurements", what)


def _logged(quote: Quote, policy: Measurements, events: Sequence[LogEvent], into: VerifiedQuote) -> None:
    """Replay the log, and compare the compose hash."""
    count = sum(event.imr == logs.RTMR3 for event in events)
    if not count:
        if policy.compose_hash is not None:
            raise Refused("events", "there is no log that leads to RTMR3, so nothing shows the compose hash")
        into.not_looked_at("events", "there is no log of RTMR3")
        return
    register = logs.replay_log(events).hex()
    if register != into.measurements["rtmr3"]:
        raise Refused("events", "the log does not lead to RTMR3", expected=into.measurements["rtmr3"], found=register)
    into.right("events", f"the {count} events of the log lead to RTMR3")
    values = logs.logged_values(events)
    into.logged = {name: _shown(name, value) for name, value in values.items()}
    compose = values[logs.COMPOSE_EVENT].hex() if logs.COMPOSE_EVENT in values else None
    if policy.compose_hash is None:
        into.not_looked_at("compose", "not compared: no compose hash is pinned")
        return
    if compose != policy.compose_hash:
        raise Refused("compose", "another program runs there", expected=policy.compose_hash, found=compose or "none")
    into.right("compose", "the compose hash is the one that is pinned")


def _shown(name: str, value: bytes) -> str:
    """A payload as text: as JSON for key-provider, otherwise in hex."""
    if name == "key-provider":
        try:
            return json.dumps(json.loads(value), sort_keys=True)
        except (ValueError, RecursionError):
            pass
    return value.hex()
