"""`assay enclave verify` and `compose-hash`: what they print, how they end, and what they refuse."""

import json
from pathlib import Path

import pytest

from assay.enclave.attest import report_data
from assay.enclave.attest.quote import read_quote
from assay.exact import canonical
from cli_kit import narrow, output, refused, run
from enclave_kit import AUTHORITY, MACHINE, NOW, STATEMENT, attested, compose_hash

AT = ("--at", "2027-01-15T08:00:00Z")
RTMR3 = MACHINE.report["rt_mr3"].hex()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "attestation.json"
    path.write_bytes(attested().data)
    return path


def test_the_time_of_these_tests() -> None:
    from assay.scheme.fields import instant

    assert int(instant(AT[1]).timestamp()) == NOW


def test_stages_are_shown(file: Path) -> None:
    text = output("enclave", "verify", file, "--compose-hash", compose_hash(), "--development", *AT, columns=100)
    assert text.startswith("enclave: of a development root, so it proves nothing\n")
    assert "Anybody can make such an attestation." in text
    for stage in ("quote", "certificates", "collateral", "debug", "signature", "tcb", "report_data", "events", "compose"):
        assert f"✓  {stage} " in text
    assert "–  measurements  mrtd, rtmr0, rtmr1, rtmr2: not pinned" in text
    for detail in (STATEMENT.bounty, STATEMENT.seal, STATEMENT.signer, MACHINE.app_id.hex(), compose_hash(), "not a KMS"):
        assert detail in text


def test_it_fits_a_narrow_terminal(file: Path) -> None:
    text = output("enclave", "verify", file, "--compose-hash", compose_hash(), "--development", *AT, columns=80)
    assert narrow(text)
    assert "✓  report_data " in text


def test_json_of_what_is_right_and_of_what_is_not(file: Path) -> None:
    right = json.loads(output("enclave", "verify", file, "--compose-hash", compose_hash(), "--development", "--json", *AT))
    assert right["verified"]
    assert right["development"]
    assert right["statement"] == STATEMENT.model_dump()
    wrong = json.loads(run("enclave", "verify", file, "--compose-hash", "00" * 32, "--development", "--json", *AT, code=1).stdout)
    assert not wrong["verified"]
    assert wrong["stage"] == "compose"
    assert (wrong["expected"], wrong["found"]) == ("00" * 32, compose_hash())


def test_a_development_root_is_refused_by_default(file: Path) -> None:
    message = refused("enclave", "verify", file, "--compose-hash", compose_hash(), *AT, code=1)
    assert message.startswith("certificates: it is a development quote: anybody can make one")


def test_a_bare_quote_as_bytes_and_as_hex(tmp_path: Path) -> None:
    quote = MACHINE.quote(report_data(STATEMENT))
    (tmp_path / "quote.bin").write_bytes(quote)
    (tmp_path / "quote.hex").write_text(f"0x{quote.hex()}\n", encoding="utf-8")
    (tmp_path / "collateral.json").write_bytes(canonical(AUTHORITY.collateral(NOW).document()))
    pins: list[str | Path] = ["--rtmr3", RTMR3, "--development", "--collateral", tmp_path / "collateral.json", *AT]
    for name in ("quote.bin", "quote.hex"):
        bare = output("enclave", "verify", tmp_path / name, *pins, columns=200)
        assert "–  report_data" in bare
        assert report_data(STATEMENT).hex() in bare
        bound = output("enclave", "verify", tmp_path / name, *pins, "--report-data", report_data(STATEMENT).hex())
        assert "✓  report_data" in bound
        message = refused("enclave", "verify", tmp_path / name, *pins, "--report-data", "00" * 64, code=1)
        assert message.startswith("report_data: the quote is about something else")
    assert refused("enclave", "verify", tmp_path / "quote.bin", "--rtmr3", RTMR3, "--development", *AT, code=1).startswith(
        "collateral: it is missing"
    )


def test_measurements_and_statuses_by_option(file: Path) -> None:
    measured = read_quote(MACHINE.quote(b"")).measurements
    pins = [word for name in ("mrtd", "rtmr0", "rtmr1", "rtmr2") for word in (f"--{name}", measured[name])]
    text = output("enclave", "verify", file, "--rtmr3", RTMR3, *pins, "--tcb", "OutOfDate", "--development", *AT, columns=200)
    assert "✓  measurements  mrtd, rtmr0, rtmr1, rtmr2, rtmr3 as pinned" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing says which program must run there; give --compose-hash"),
        (["--mrtd", "00" * 48], "nothing says which program"),
        (["--compose-hash", "zz"], "--compose-hash: 'zz' is not a measurement"),
        (["--rtmr3", "00"], "--rtmr3: '00' is not a measurement"),
        (["--rtmr3", RTMR3, "--tcb", "Revoked"], "--tcb: is 'Revoked'; use one of"),
        (["--rtmr3", RTMR3, "--at", "yesterday"], "--at: 'yesterday' is not a time"),
        (["--rtmr3", RTMR3, "--report-data", "00" * 64], "--report-data: an attestation states what it binds"),
        (["--rtmr3", RTMR3, "--collateral", "none.json"], "none.json: no such file"),
    ],
)
def test_options_that_are_wrong(file: Path, words: list[str], message: str) -> None:
    assert refused("enclave", "verify", file, *words).startswith(message)


def test_files_that_are_wrong(tmp_path: Path) -> None:
    pins = ("--rtmr3", RTMR3, "--development")
    assert refused("enclave", "verify", tmp_path / "none", *pins).endswith("no such file; give an attestation, or a quote")
    for content, words in ((b"{", "is not JSON"), (b'{"schema":"other"}', "is not an attestation (schema: 'other')")):
        (tmp_path / "a.json").write_bytes(content)
        assert words in refused("enclave", "verify", tmp_path / "a.json", *pins)
    (tmp_path / "a.bin").write_bytes(b"\xff" * 100)
    assert refused("enclave", "verify", tmp_path / "a.bin", *pins, code=1).startswith("quote: it is not a quote")
    (tmp_path / "c.json").write_bytes(b'{"tcb_info": 3}')
    assert "c.json" in refused("enclave", "verify", tmp_path / "a.bin", *pins, "--collateral", tmp_path / "c.json")


def _reply(**changes: object) -> bytes:
    """dstack's own answer to GetQuote."""
    data = report_data(STATEMENT)
    reply = {"quote": MACHINE.quote(data).hex(), "event_log": MACHINE.log_text(), "report_data": data.hex(), "vm_config": "{}"}
    return json.dumps(reply | changes).encode()


def test_dstacks_own_reply_is_verified_as_it_is(tmp_path: Path) -> None:
    reply, collateral = tmp_path / "getquote.json", tmp_path / "collateral.json"
    collateral.write_bytes(canonical(AUTHORITY.collateral(NOW).document()))
    words = ("enclave", "verify", reply, "--compose-hash", compose_hash(), "--development", "--collateral", collateral, *AT)
    bound = ("--report-data", report_data(STATEMENT).hex())
    reply.write_bytes(_reply(newer="left out"))
    printed = output(*words, *bound, columns=100)
    for stage in ("report_data", "events", "compose"):
        assert f"✓  {stage} " in printed
    assert "–  report_data" in output(*words, columns=100)  # what it says of itself proves nothing
    assert "the quote is about something else" in refused(*words, "--report-data", "00" * 64, code=1)
    reply.write_bytes(_reply(report_data="ab" * 64))
    assert "is about something else than dstack's reply says" in refused(*words, code=1)
    reply.write_bytes(_reply(event_log=""))
    assert "there is no log that leads to RTMR3" in refused(*words, code=1)
    for changes, why in (
        ({"event_log": []}, "event_log: is not a text of JSON"),
        ({"event_log": "{"}, "event_log: is not JSON"),
        ({"quote": "zz"}, "quote: is not hex"),
        ({"report_data": 7}, "report_data: is not hex"),
    ):
        reply.write_bytes(_reply(**changes))
        assert why in refused(*words, code=2)
    reply.write_bytes(_reply(quote=""))
    assert "it is not a quote" in refused(*words, code=1)
    reply.write_bytes(_reply())
    assert "is a bare quote, which does not name a bounty" in refused("enclave", "verify", reply, "--bounty", tmp_path)


def test_report_data_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "quote.bin").write_bytes(MACHINE.quote(b""))
    for given in ("zz", "00", ""):
        message = refused("enclave", "verify", tmp_path / "quote.bin", "--rtmr3", RTMR3, "--report-data", given)
        assert message == "--report-data: is not 64 bytes in hex; write 128 hex digits"
