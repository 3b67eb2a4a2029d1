"""The cost of the service beside its parts: the ledger's intake, a bare FastAPI route, a bare streaming upload.

    python -m bench serve

`evidence`: one client with a kept connection sends signed batches of 100 records to `assay serve` with one worker, in turns with
the ledger's intake in this process on another ledger on the same disk. `accept` is `intake.accept` of a batch that was read
before; `read + accept` is from the batch's bytes to the disk, as the service does it.

`board`: seconds until the first byte of the board of 4,096 participants, which is in memory, in turns with a bare FastAPI route
that answers with the same bytes, packed by gzip.

`first load`: the bytes, heads included, of the board of 256 and of everything that it needs; then of the page again, and of a
participant's page.

`submission`: an archive of 10 MB that is handed in, checked, unpacked in a sandbox and made the participant's submission, in
turns with a bare FastAPI route that streams the same bytes to a file and flushes it. The first one, which has to begin its box,
is not counted: after an upload the service keeps a box for the next one for a minute. The row below it adds to the bare upload
what it takes to unpack the archive in a new box, which no bare upload does.
"""

from __future__ import annotations

import io
import os
import re
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

from assay.judge.sandbox import choose
from assay.ledger import batch, intake
from assay.ledger.access import open_ledger
from assay.serve.archives import pack
from assay.serve.unpacking import unpack
from bench import serving
from bench.serving import BareAnswer, Kept

TIMES = {"evidence": 150, "board": 200, "submission": 9}
RECORDS = 100
BOARD, LOADED = 4096, 256
ARCHIVE = 10_000_000
PAUSE = 0.3
"""Seconds between two uploads: meanwhile the service begins the box of the next one."""
FIRST_LOAD, NEXT_LOAD = 250_000, 30_000
EVIDENCE, SEGMENT = "/v1/bench/evidence", "bench"
GZIP, ZSTD = {"Accept-Encoding": "gzip"}, {"Accept-Encoding": "gzip, zstd"}


def row(name: str, ours: float, bare: float, ratio: float, aim: str) -> None:
    """Print a comparison. ours, bare: seconds."""
    print(f"{name:<44}{ours * 1e3:>9.2f} ms{bare * 1e3:>9.2f} ms{ratio:>8.2f}    ({aim})", flush=True)


def evidence(work: Path) -> None:
    """Batches over HTTP, and into a ledger of this process."""
    people = [key.public.raw.hex() for key in serving.signers(TIMES["evidence"])]
    (signer,) = serving.signers(1)
    far, near = (serving.competition(work / name, "tests", people, [signer], tasks=RECORDS) for name in ("far", "near"))
    batches = [serving.signed_batch(far, signer, serving.trials(signer, name, range(RECORDS))) for name in people]
    spent: list[tuple[float, float, float]] = []
    with serving.served(far) as process, open_ledger(near) as ledger:
        rules, client = intake.intake_rules(near), Kept(process.port, signer)
        for signed in batches:
            begun = time.perf_counter()
            answer = client.ask("POST", EVIDENCE, signed.data)
            http = time.perf_counter() - begun
            assert answer.json["batches"][0]["new"] == RECORDS, answer
            begun = time.perf_counter()
            read = batch.read(signed.data)
            parsed = time.perf_counter()
            intake.accept(ledger.store, read, rules)
            spent.append((http, parsed - begun, time.perf_counter() - parsed))
        client.close()
    https, reads, accepts = (statistics.median(values) for values in zip(*spent, strict=True))
    row("evidence, 100 records; read + accept", https, reads + accepts, (reads + accepts) / https, "aim: at least 0.6")
    row("evidence, 100 records; accept alone", https, accepts, accepts / https, "for comparison")


def board(work: Path) -> None:
    """The first byte of a page in memory."""
    folder = serving.settled_board(work / "board", BOARD)
    with serving.served(folder) as process:
        client = Kept(process.port)
        begun = time.perf_counter()
        first = client.ask("GET", f"/{SEGMENT}/", headers=GZIP)
        drawing = time.perf_counter() - begun
        page = work / "page.gz"
        page.write_bytes(first.body)
        with serving.started(["-m", "bench.bare", str(page), str(work)]) as other:
            bare, ours, bares = Kept(other.port), list[float](), list[float]()
            for _ in range(TIMES["board"]):
                ours.append(client.ask("GET", f"/{SEGMENT}/", headers=GZIP).first)
                bares.append(bare.ask("GET", "/page", headers=GZIP).first)
            bare.close()
        client.close()
    mine, theirs = statistics.median(ours), statistics.median(bares)
    row(f"board of {BOARD:,}, first byte", mine, theirs, mine / theirs, "aim: at most 3")
    print(f"  the first drawing took {drawing:.2f} s; the page has {len(first.body):,} bytes as served")


def loaded(work: Path) -> None:
    """The bytes of a first and of a next visit."""
    folder = serving.settled_board(work / "loaded", LOADED)
    with serving.served(folder) as process:
        client = Kept(process.port)
        for name, headers in (("gzip", GZIP), ("zstd", ZSTD)):
            page = client.ask("GET", f"/{SEGMENT}/", headers=headers)
            plain = client.ask("GET", f"/{SEGMENT}/", headers={}).body.decode()
            needed = {name: client.ask("GET", f"/{SEGMENT}/{name}", headers=headers) for name in sorted(_needed(plain))}
            total = sum(map(_bytes, (page, *needed.values())))
            again = client.ask("GET", f"/{SEGMENT}/", headers={**headers, "If-None-Match": page.headers["etag"]})
            person = re.search(r'href="(participant-[^"]+\.html)"', plain)
            assert person is not None
            assert again.status == 304
            following = _bytes(again) + _bytes(client.ask("GET", f"/{SEGMENT}/{person[1]}", headers=headers))
            print(
                f"first load of the board of {LOADED}, {name}: {total:,} bytes (aim: at most {FIRST_LOAD:,}), of it "
                f"{_bytes(page):,} the page; the board again and a participant: {following:,} (aim: at most {NEXT_LOAD:,})",
                flush=True,
            )
        client.close()


def _needed(page: str) -> set[str]:
    """The files that a page makes a browser fetch."""
    links = re.findall(r"<link\b[^>]*>", page)
    wanted = [link for link in links if re.search('rel="(stylesheet|preload|icon)"', link)]
    files = {match[1] for link in wanted if (match := re.search('href="([^"]+)"', link))}
    return files | set(re.findall(r'<(?:script|img)\b[^>]*\bsrc="([^"]+)"', page))


def _bytes(answer: BareAnswer) -> int:
    """The bytes of an answer's head and body."""
    return len(answer.body) + sum(len(name) + len(value) + 4 for name, value in answer.headers.items()) + 17


def submission(work: Path) -> None:
    """An archive, and the same bytes."""
    (signer,) = serving.signers(1)
    folder = serving.competition(work / "handed", "tests", [signer.public.raw.hex()], serving.signers(2)[1:], tasks=2)
    source = work / "agent"
    source.mkdir()
    (source / "agent.toml").write_text('name = "bench"\ncommand = ["sh", "/agent/run.sh"]\n')
    (source / "run.sh").write_text("true\n")
    (work / "nothing").write_bytes(b"")
    ours, bares, boxes = list[float](), list[float](), list[float]()
    box = choose()
    with (
        serving.served(folder) as process,
        serving.started(["-m", "bench.bare", str(work / "nothing"), str(work)]) as other,
    ):
        client, bare = Kept(process.port, signer), Kept(other.port)
        for number in range(TIMES["submission"] + 1):
            time.sleep(PAUSE)
            (source / "data").write_bytes(os.urandom(ARCHIVE))
            archive = io.BytesIO()
            pack(source, archive, compressed=False)
            data = archive.getvalue()
            taken = _seconds(client, "/v1/bench/submissions", data, None)
            plain = _seconds(bare, "/upload", data, {})
            (work / "archive").write_bytes(data)
            begun = time.perf_counter()
            unpack(work / "archive", work / f"files-{number}", sandbox=box)
            if number:  # the first one looks for the sandbox
                boxes.append(time.perf_counter() - begun)
                ours.append(taken)
                bares.append(plain)
        client.close()
        bare.close()
    mine, theirs, unpacking = map(statistics.median, (ours, bares, boxes))
    row("submission of 10 MB", mine, theirs, theirs / mine, "aim: at least 0.5")
    both = theirs + unpacking
    row("the same; bare upload + unpacking in a box", mine, both, both / mine, "for comparison")


def _seconds(client: Kept, path: str, data: bytes, headers: Mapping[str, str] | None) -> float:
    begun = time.perf_counter()
    answer = client.ask("PUT", path, data, headers)
    assert answer.status == 201, answer
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    print(f"{'medians, in turns':<44}{'service':>12}{'opponent':>12}{'ratio':>8}")
    with serving.scratch() as work:
        evidence(work)
        board(work)
        submission(work)
        loaded(work)


if __name__ == "__main__":
    main()
