"""The log that leads to RTMR3: digests as dstack makes them, and the lies that a log could tell."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from assay.enclave.attest import LogEvent, document, events_of, verify
from assay.enclave.develop.machine import runtime_event
from assay.errors import BadInput, Refused
from enclave_kit import MACHINE, NOW, attested, policy, refused, stages, with_changes

# Events of real dstack machines, with the digests that they logged.
REAL = [
    (
        "rootfs-hash",
        "4a89dadfa8c6be6d312beb51e24ef5bd4b3aeb695f11f4e2ff9c87eac907389b",
        "738ae348dbf674b3399300c0b9416c203e9b645c6ffee233035d09003cccad12f71becc805ad8d97575bc790c6819216",
    ),
    (
        "app-id",
        "9f91439ecacc4f8845a9cd81cc141256d5e1bce3",
        "8ecf784c418ff83b7c8d67adfa7b6c13c93766e0356fd915d038133a170fa09b42ef91aad28642adcee58a0c8a542e7d",
    ),
    (
        "app-id",
        "5b979a9a745405d4de53aae0e2c3a09d24b174a3",
        "785954615488bc4e84475a787aa55ba46443b3f47f649790847a2d3c9009c5004793c0c710ceecd117a2702d68353d79",
    ),
    (
        "system-preparing",
        "",
        "f9974020ef507068183313d0ca808e0d1ca9b2d1ad0c61f5784e7157c362c06536f5ddacdad4451693f48fcc72fff624",
    ),
]
OTHER = bytes(32)  # a compose hash that is not the machine's


@pytest.mark.parametrize(("name", "payload", "digest"), REAL)
def test_digests_are_dstacks(name: str, payload: str, digest: str) -> None:
    assert runtime_event(name, bytes.fromhex(payload)).digest == digest


def test_digests_of_the_second_version() -> None:
    text = b'{"event":"compose-hash","event_type":134217729,"payload":"abcd","version":2}'
    assert runtime_event("compose-hash", b"\xab\xcd", 2).digest == hashlib.sha384(text).hexdigest()


def test_the_register_is_replayed() -> None:
    log = [runtime_event("a", b"1"), runtime_event("b", b"2")]
    first = hashlib.sha384(bytes(48) + bytes.fromhex(log[0].digest)).digest()
    assert document.replay_log(log) == hashlib.sha384(first + bytes.fromhex(log[1].digest)).digest()
    assert document.replay_log([]) == bytes(48)


def lying(log: Sequence[LogEvent], words: str, stage: str = "events", **pins: Any) -> Refused:
    """An attestation of the honest machine with another log, which must be refused."""
    return refused(attested(log=log), stage, words, **pins)


def changed(name: str, **fields: object) -> list[LogEvent]:
    """The machine's log with one event changed."""
    return [event.model_copy(update=fields) if event.event == name else event for event in MACHINE.log]


def test_a_payload_that_is_not_what_was_logged() -> None:
    lie = changed("compose-hash", event_payload=OTHER.hex())
    lying(lie, "another digest than its payload")
    lying(changed("compose-hash", event_payload=OTHER.hex(), digest=""), "does not lead to RTMR3")
    lying(changed("app-id", event="app-ie"), "another digest")


def test_events_that_were_not_there_or_are_left_out() -> None:
    log = list(MACHINE.log)
    lying([*log, runtime_event("more", b"")], "does not lead to RTMR3")
    lying(log[:-1], "does not lead to RTMR3")
    lying([log[1], log[0], *log[2:]], "does not lead to RTMR3")
    lying([], "there is no log", compose_hash=OTHER.hex())


def test_events_of_other_registers_count_for_nothing() -> None:
    boot = LogEvent(imr=0, event_type=2147483659, digest="11" * 48, event="compose-hash", event_payload=OTHER.hex())
    verdict = verify(attested(log=[boot, *MACHINE.log, boot]), policy=policy(), now=NOW)
    assert verdict.logged["compose-hash"] == MACHINE.compose_hash.hex()
    moved = [event.model_copy(update={"imr": 2}) if event.event == "compose-hash" else event for event in MACHINE.log]
    lying(moved, "does not lead to RTMR3")
    lying([boot], "there is no log")


def test_an_event_of_another_type_is_refused_since_its_payload_is_not_under_its_digest() -> None:
    real = next(event for event in MACHINE.log if event.event == "compose-hash")
    lie = changed("compose-hash", event_type=1, digest=real.digest, event_payload=OTHER.hex())
    lying(lie, "a type whose digest does not come from its payload")


def evil(*more: LogEvent) -> list[LogEvent]:
    """The log of a machine that runs another program, which logs events of its own."""
    return [*(runtime_event("compose-hash", OTHER) if event.event == "compose-hash" else event for event in MACHINE.log), *more]


def test_a_program_cannot_log_the_wanted_compose_hash_after_its_own() -> None:
    log = evil(runtime_event("compose-hash", MACHINE.compose_hash))
    machine = with_changes(MACHINE, rt_mr3=document.replay_log(log))
    refused(attested(machine, log=log), "events", "compose-hash occurs twice")
    refused(attested(with_changes(MACHINE, rt_mr3=document.replay_log(evil())), log=evil()), "compose", "another program")


def test_a_program_cannot_cut_its_own_compose_hash_elsewhere() -> None:
    """A hash that begins with a colon could be read as the event `compose-hash:`; then the wanted one would stand alone."""
    own = b":" + bytes(31)
    log = [runtime_event("compose-hash", own), runtime_event("compose-hash", MACHINE.compose_hash)]
    forged = [
        LogEvent(
            imr=3, event_type=document.RUNTIME_EVENT, digest=log[0].digest, event="compose-hash:", event_payload=own[1:].hex()
        ),
        log[1],
    ]
    assert forged[0].computed() == log[0].computed()  # the lie has the digest of the truth
    machine = with_changes(MACHINE, rt_mr3=document.replay_log(log))
    refused(attested(machine, log=forged), "events", "a colon in its name")


def test_the_second_version_has_no_such_doubt() -> None:
    log = [
        runtime_event("a:b", b"", 2),
        *(runtime_event(event.event, bytes.fromhex(event.event_payload), 2) for event in MACHINE.log),
    ]
    machine = with_changes(MACHINE, rt_mr3=document.replay_log(log))
    assert verify(attested(machine, log=log), policy=policy(), now=NOW)
    assert attested(machine, log=log).document()["event_log"][0]["version"] == 2
    first = [event.model_copy(update={"version": 1, "digest": ""}) for event in log[1:]]
    refused(attested(machine, log=first), "events", "does not lead")


def test_without_a_compose_hash_among_the_events() -> None:
    log = [event for event in MACHINE.log if event.event != "compose-hash"]
    machine = with_changes(MACHINE, rt_mr3=document.replay_log(log))
    error = refused(attested(machine, log=log), "compose", "another program")
    assert error.found == "none"


def test_a_register_may_be_pinned_without_a_log() -> None:
    pins: dict[str, Any] = {"compose_hash": None, "rtmr3": MACHINE.report["rt_mr3"].hex()}
    bare = verify(attested(log=[]), policy=policy(**pins), now=NOW)
    assert stages(bare, done=False) == ["measurements", "events"]
    logged = verify(attested(), policy=policy(**pins), now=NOW)
    assert stages(logged, done=False) == ["measurements", "compose"]
    assert logged.logged["compose-hash"] == MACHINE.compose_hash.hex()


def test_a_digest_may_be_left_out() -> None:
    bare = [event.model_copy(update={"digest": ""}) for event in MACHINE.log]
    assert verify(attested(log=bare), policy=policy(), now=NOW)


def test_a_key_provider_that_is_no_json_is_shown_as_hex() -> None:
    for payload in (b"\xff", b"[" * 50_000):
        log = [*(event for event in MACHINE.log if event.event != "key-provider"), runtime_event("key-provider", payload)]
        machine = replace(MACHINE, changes={"rt_mr3": document.replay_log(log)})
        assert verify(attested(machine, log=log), policy=policy(), now=NOW).logged["key-provider"] == payload.hex()


def test_dstacks_log_is_read_and_what_is_new_in_it_left_out() -> None:
    text = MACHINE.log_text().replace('"imr": 3', '"imr": 3, "hash_input": "00"')
    assert events_of(text) == MACHINE.log
    for wrong in ("", "{}", "[1]", "[[]]", '[{"imr": 3}]', "[" * 100, f"[{','.join(['{}'] * 5000)}]"):
        with pytest.raises(BadInput):
            events_of(wrong)
