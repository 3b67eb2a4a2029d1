"""The cost of validators that wait for work, in CPU seconds of the service's process.

    python -m bench polling

Each validator does what `assay node validator` does while there is nothing to judge: a heartbeat, then `GET work?wait=45`, on a
new connection, again and again; they are spread over the time of one poll. CPU time does not depend on what else the machine does
as wall time would, and a busy machine makes it larger, not smaller.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from assay.ledger.keys import PrivateKey
from assay.node.validator import WAIT
from bench import serving
from bench.serving import Kept, ServedProcess

VALIDATORS, PARTICIPANTS, TASKS = 100, 64, 80
SECONDS = 2.0 * WAIT
AIM = 5.0
BEAT, WORK = "/v1/bench/heartbeat", "/v1/bench/work"


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def follow(process: ServedProcess, signer: PrivateKey, delay: float, over: threading.Event, counted: list[int]) -> None:
    """Be one validator that waits, until it is over. counted: is appended the status of each poll."""
    seen = ""
    over.wait(delay)
    while not over.is_set():
        client = Kept(process.port, signer)
        try:
            client.ask("POST", BEAT, b'{"judging":[]}')
            answer = client.ask("GET", f"{WORK}?wait={WAIT}&seen={seen}" if seen else WORK)
        except OSError:  # the service ends
            return
        finally:
            client.close()
        counted.append(answer.status)
        seen = answer.json.get("seen", "") if answer.status == 200 else ""


def main() -> None:
    signers = serving.signers(VALIDATORS)
    people = [key.public.raw.hex() for key in serving.signers(PARTICIPANTS)]
    counted, over = list[int](), threading.Event()
    with serving.scratch() as work:
        folder = serving.competition(work / "polled", "tests", people, signers, tasks=TASKS)
        with serving.served(folder) as process:
            idle = cpu_seconds(process.process.pid), time.monotonic()
            time.sleep(10)
            alone = (cpu_seconds(process.process.pid) - idle[0]) / (time.monotonic() - idle[1])
            threads = [
                threading.Thread(target=follow, args=(process, key, WAIT * number / VALIDATORS, over, counted), daemon=True)
                for number, key in enumerate(signers)
            ]
            for thread in threads:
                thread.start()
            time.sleep(WAIT + 2)  # until each of them waits
            first, begun, before = cpu_seconds(process.process.pid), time.monotonic(), len(counted)
            time.sleep(SECONDS)
            spent, wall = cpu_seconds(process.process.pid) - first, time.monotonic() - begun
            polls, memory = len(counted) - before, serving.resident(process.process.pid)
            over.set()
    percent = 100 * spent / wall
    print(
        f"{VALIDATORS} validators that wait: {spent:.2f} s of CPU in {wall:.0f} s, {percent:.1f} % of a core "
        f"(aim: at most {AIM:g} %); {polls} polls, all answered: {set(counted) == {200}}; "
        f"{memory / 2**20:.0f} MiB; without them {100 * alone:.2f} %"
    )
    if percent > AIM or set(counted) != {200}:
        raise SystemExit("too dear, or not answered")


if __name__ == "__main__":
    main()
