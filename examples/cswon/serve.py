"""The two services of this example on loopback: `python examples/cswon/serve.py [PORT PORT]`. Ctrl-C ends them.

The library finds passages and rows. The writer makes answers of them, on one of three lines: `fast` costs 0.01 and answers at
once, `slow` costs 0.004 and takes 0.6 s, `bad` costs as much as `fast` and breaks off at the first attempt of every step.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORTS = (8801, 8802)
LINES = {"fast": ("0.01", 0.0), "slow": ("0.004", 0.6), "bad": ("0.01", 0.0)}

PASSAGES = [
    "The night ferry to Skarn is owned by the harbour cooperative, and has been since the flood.",
    "Skarn exports salt and smoked herring.",
    "The harbour cooperative was founded by nine fishing families.",
    "Barley is sown in Veld after the last frost, in the second week of May.",
    "The mill at Veld grinds barley from September on.",
]
ROWS = [
    {"id": "17", "customer": " Ines ", "amount": "12.50"},
    {"id": "18", "customer": "BORIS", "amount": "7.25"},
    {"id": "19", "customer": "ines", "amount": "0.50"},
]
MEDIAN = """import sys

numbers = sorted(int(word) for word in sys.stdin.read().split())
middle = len(numbers) // 2
if len(numbers) % 2:
    print(numbers[middle])
else:
    print((numbers[middle - 1] + numbers[middle]) / 2)
"""


class NoSuchProgram(Exception):
    """What was asked cannot be done."""


def words(text: str) -> set[str]:
    return set(re.findall("[a-z]{3,}", text.lower())) - {"the", "who", "what", "when", "and", "has"}


def find(params: dict[str, Any]) -> Any:
    """The passages that share most words with a text."""
    wanted = words(params["text"])
    return {"passages": sorted(PASSAGES, key=lambda passage: (-len(words(passage) & wanted), passage))[:2]}


def rows(params: dict[str, Any]) -> Any:
    """The orders as they were typed in."""
    return {"rows": ROWS}


def answer(params: dict[str, Any]) -> Any:
    """The first of some passages."""
    return params["passages"][0]


def clean(params: dict[str, Any]) -> Any:
    """Rows with names and numbers as they should be."""
    return [
        {"id": int(row["id"]), "customer": row["customer"].strip().title(), "amount": row["amount"]} for row in params["rows"]
    ]


def totals(params: dict[str, Any]) -> Any:
    """What each customer ordered for."""
    found: dict[str, Decimal] = {}
    for row in params["rows"]:
        found[row["customer"]] = found.get(row["customer"], Decimal(0)) + Decimal(row["amount"])
    return {name: str(amount) for name, amount in found.items()}


def triage(params: dict[str, Any]) -> Any:
    """What becomes of a report."""
    urgent = "fire" in params["report"].lower()
    reply = "Leave the building. The fire brigade is on its way." if urgent else "We will look at it."
    return {"priority": "P1" if urgent else "P3", "team": "safety" if urgent else "facilities", "reply": reply}


def program(params: dict[str, Any]) -> Any:
    """A program for what is wanted."""
    if "median" not in params["wanted"]:
        raise NoSuchProgram("there is no program for that")
    return MEDIAN


Action = Callable[[dict[str, Any]], Any]
LIBRARY: dict[str, Action] = {"find": find, "rows": rows}
WRITER: dict[str, Action] = {"answer": answer, "clean": clean, "totals": totals, "triage": triage, "program": program}


def library(action: str, params: dict[str, Any], attempt: int) -> tuple[int, Any]:
    return 200, {"output": LIBRARY[action](params), "cost": "0.001"}


def writer(action: str, params: dict[str, Any], attempt: int) -> tuple[int, Any]:
    line = params.pop("line")
    cost, seconds = LINES[line]
    time.sleep(seconds)
    if line == "bad" and attempt == 1:
        return 503, {}
    return 200, {"output": WRITER[action](params), "cost": cost}


def handler(service: Callable[[str, dict[str, Any], int], tuple[int, Any]]) -> type[BaseHTTPRequestHandler]:
    """What answers the requests to one service."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                if asked["action"] == "ping":
                    status, said = 200, {"output": "pong", "cost": "0"}
                else:
                    status, said = service(asked["action"], asked["params"], int(self.headers["assay-attempt"]))
            except (KeyError, IndexError, TypeError, ValueError, NoSuchProgram) as error:
                status, said = 400, {"error": f"{type(error).__name__}: {error}"}
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def start(ports: tuple[int, int] = PORTS) -> list[ThreadingHTTPServer]:
    """Both services, each in a thread; a port of 0 is any that is free."""
    servers = []
    for port, service in zip(ports, (library, writer), strict=True):
        server = ThreadingHTTPServer(("127.0.0.1", port), handler(service))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
    return servers


def main() -> None:
    ports = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) == 3 else PORTS
    for name, server in zip(("library", "writer"), start(ports), strict=True):
        print(f"{name} on http://127.0.0.1:{server.server_address[1]}/", flush=True)
    with suppress(KeyboardInterrupt):
        threading.Event().wait()


if __name__ == "__main__":
    main()
