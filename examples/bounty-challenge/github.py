"""A small GitHub on this machine: what Assay reads of its REST API, in the same wire format, from a file of facts.

    python examples/bounty-challenge/github.py                   serves until Ctrl-C
    python examples/bounty-challenge/github.py -- COMMAND …      serves while the command runs, and ends as it does

It answers at http://127.0.0.1:8765, which is what issues.toml beside it names. It needs nothing but Python. Its clock stands
still at the `now` of the facts, so that a run comes out the same on any day.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

FACTS = Path(__file__).with_name("github.json")
HOST, PORT = "127.0.0.1", 8765
PATIENCE = 60.0
"""Seconds that a second one waits for the port of the first."""
Json = dict[str, Any]


class HttpAnswer(Exception):
    """Any other answer than 200."""

    def __init__(self, status: int, message: str = "", **headers: str) -> None:
        super().__init__(status, message)
        self.status, self.headers = status, headers
        self.body = {"message": message, "documentation_url": "https://docs.github.com/rest", "status": str(status)}


class GitHubFacts:
    """The facts, and what the API says of them."""

    def __init__(self, facts: Json) -> None:
        self.facts = facts
        self.now = datetime.fromisoformat(facts["now"])

    def account(self, number: int | None) -> Json | None:
        """An account as it stands in an issue or an event, by its id; null for one that is gone."""
        found = next((one for one in self.facts["accounts"] if one["id"] == number), None)
        return None if found is None else {"type": "User", "site_admin": False, **found}

    def answer(self, path: str, accept: str) -> Any:
        """What stands at a path; raises HttpAnswer for anything but 200."""
        if found := re.fullmatch(r"/(repositories/\d+|repos/[^/]+/[^/]+)(?:/(.+))?", path):
            return self._within(found[1], found[2] or "", accept)
        if found := re.fullmatch(r"/users/([^/]+)", path):
            named = next((one["id"] for one in self.facts["accounts"] if one["login"].lower() == found[1].lower()), None)
            return self.account(named) or _nothing()
        if found := re.fullmatch(r"/user/(\d+)", path):
            return self.account(int(found[1])) or _nothing()
        if found := re.fullmatch(r"/gists/([0-9a-f]+)", path):
            return self._gist(found[1])
        raise HttpAnswer(404, "Not Found")

    def _gist(self, name: str) -> Any:
        found = next((one for one in self.facts["gists"] if one["id"] == name), None) or _nothing()
        files = {
            key: {"filename": key, "type": "text/plain", "size": len(text.encode()), "truncated": False, "content": text}
            for key, text in found["files"].items()
        }
        times = {"created_at": found["at"], "updated_at": found["at"]}
        return {"id": name, "public": True, "owner": self.account(found["owner"]), "files": files, **times}

    def _within(self, where: str, rest: str, accept: str) -> Any:
        repository = self._repository(where, rest)
        if not rest:
            name = repository["name"]
            return {"id": repository["id"], "name": name.split("/")[1], "full_name": name, "private": False}
        if rest == "issues":
            return [self._issue(repository, one) for one in repository["issues"] if not one.get("gone")]
        if rest == "stargazers":
            rows = [{"starred_at": one["at"], "user": self.account(one["by"])} for one in repository["stars"]]
            return rows if "star+json" in accept else [one["user"] for one in rows]
        if found := re.fullmatch(r"issues/comments/(\d+)", rest):
            return self._comment(repository, int(found[1]))
        if found := re.fullmatch(r"issues/(\d+)(/events)?", rest):
            one = next((one for one in repository["issues"] if one["number"] == int(found[1])), None) or _nothing()
            if one.get("gone") == "deleted":
                raise HttpAnswer(410, "This issue was deleted")
            if to := one.get("gone"):
                raise HttpAnswer(301, "Moved Permanently", location=f"{to}{found[2] or ''}")
            return self._events(repository, one) if found[2] else self._issue(repository, one)
        raise HttpAnswer(404, "Not Found")

    def _comment(self, repository: Json, number: int) -> Json:
        every = [two for one in repository["issues"] for two in one.get("comments", ())]
        found = next((one for one in every if one["id"] == number), None) or _nothing()
        times = {"created_at": found["at"], "updated_at": found["at"]}
        return {"id": found["id"], "user": self.account(found["by"]), "body": found["body"], **times}

    def _repository(self, where: str, rest: str) -> Json:
        kind, _, name = where.partition("/")
        for one in self.facts["repositories"]:
            if (kind == "repositories" and str(one["id"]) == name) or one["name"].lower() == name.lower():
                return dict(one)
            if name.lower() in (old.lower() for old in one.get("formerly", ())):
                raise HttpAnswer(301, "Moved Permanently", location=f"/repositories/{one['id']}{f'/{rest}' if rest else ''}")
        raise HttpAnswer(404, "Not Found")

    def _issue(self, repository: Json, one: Json) -> Json:
        labels: list[str] = []
        for event in one["events"]:
            labels = [
                *(name for name in labels if name != event["label"]),
                *([event["label"]] if event["event"] == "labeled" else []),
            ]
        return {
            "id": repository["id"] * 1000 + one["number"],
            "number": one["number"],
            "html_url": f"https://github.com/{repository['name']}/issues/{one['number']}",
            "title": one["title"],
            "user": self.account(one["by"]),
            "labels": [{"name": name} for name in labels],
            "state": one.get("state", "open"),
            "locked": one.get("locked", False),
            "comments": len(one.get("comments", ())),
            "created_at": one["at"],
            "body": None,
            **({"pull_request": {"merged_at": None}} if one.get("pull_request") else {}),
        }

    def _events(self, repository: Json, one: Json) -> list[Json]:
        return [
            {
                "id": repository["id"] * 100_000 + one["number"] * 100 + place,
                "actor": self.account(event["by"]),
                "event": event["event"],
                "created_at": event["at"],
                "commit_id": None,
                **({"label": {"name": event["label"], "color": "ededed"}} if event["label"] else {}),
            }
            for place, event in enumerate(one["events"])
        ]


def _nothing() -> Any:
    raise HttpAnswer(404, "Not Found")


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to say that it has the headers
    server: Server

    def do_GET(self) -> None:
        """Answer, with its ETag, its page and what is left of the rate limit."""
        parts = urlsplit(self.path)
        asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.server.asked.append((self.path, dict(self.headers)))
        if self.server.fault(self, parts.path, asked):
            return
        headers: dict[str, str] = {}
        try:
            found = self.server.world.answer(parts.path, self.headers.get("Accept", ""))
            if isinstance(found, list):
                found, headers = self._page(found, parts.path, asked)
            status, body = 200, found
        except HttpAnswer as other:
            status, body, headers = other.status, other.body, dict(other.headers)
            if "location" in headers:
                headers["location"] = f"{self.server.url}{headers['location']}"
        data = json.dumps(body).encode()
        if status == 200:
            headers["ETag"] = f'W/"{hashlib.sha256(data).hexdigest()}"'
            if self.headers.get("If-None-Match") == headers["ETag"]:
                status, data = 304, b""
        if status != 304 and not self.server.take():
            status, data = 403, json.dumps(HttpAnswer(403, "API rate limit exceeded").body).encode()
        self.reply(status, data, headers)

    def reply(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        if status != 304:
            self.send_header("Content-Length", str(len(data)))
        rows = self.server.limits() | {name.lower(): value for name, value in (headers or {}).items()}
        for name, value in rows.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _page(self, every: list[Any], path: str, asked: dict[str, str]) -> tuple[list[Any], dict[str, str]]:
        size = min(100, max(1, int(asked.get("per_page", "30"))))
        page, last = int(asked.get("page", "1")), max(1, -(-len(every) // size))
        others = {"prev": page - 1, "first": 1} if page > 1 else {}
        others |= {"next": page + 1, "last": last} if page < last else {}
        links = [f'<{self.server.url}{path}?{urlencode({**asked, "page": to})}>; rel="{name}"' for name, to in others.items()]
        return every[(page - 1) * size : page * size], {"Link": ", ".join(links)} if links else {}

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The time of the facts, rather than that of this machine."""
        return format_datetime(self.server.world.now.astimezone(UTC), usegmt=True)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


class Server(ThreadingHTTPServer):
    """The server. `limit`: how many answers it gives that are not 304, until `reset` of the limit."""

    daemon_threads = True

    def __init__(self, facts: Json, port: int = 0, limit: int = 5000) -> None:
        super().__init__((HOST, port), Handler)
        self.world, self.limit, self.left = GitHubFacts(facts), limit, limit
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{HOST}:{self.server_address[1]}"

    def fault(self, handler: Handler, path: str, asked: dict[str, str]) -> bool:
        """Whether something else was answered: for tests, which override it."""
        return False

    def take(self) -> bool:
        """Count one answer; whether there was one left."""
        with self._lock:
            self.left -= 1
            return self.left >= 0

    def limits(self) -> dict[str, str]:
        """What an answer says of the rate limit."""
        reset = int(self.world.now.timestamp()) + 3600
        rows = {"limit": self.limit, "remaining": max(0, self.left), "used": self.limit - max(0, self.left), "reset": reset}
        return {f"x-ratelimit-{name}": str(value) for name, value in rows.items()}


def started(facts: Json, port: int) -> Server:
    """The server, once the port is free."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return Server(facts, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
            time.sleep(0.1)


def main(words: list[str]) -> int:
    """Serve, by itself or for a command."""
    with started(json.loads(FACTS.read_text(encoding="utf-8")), PORT) as server:
        if words[:1] == ["--"]:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            code = subprocess.run(words[1:], check=False).returncode
            server.shutdown()
            return code
        print(f"A small GitHub is at {server.url}; Ctrl-C ends it.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
