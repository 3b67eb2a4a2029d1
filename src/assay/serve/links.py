"""The names of pages, and links between them. A name follows from a key alone, so it is the same in every epoch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from urllib.parse import quote, urlencode

__all__ = ["api_address", "beside", "logs_page", "other_epochs", "participant_page", "segment", "task_page", "verifier_link"]

PLAIN = 64
"""A key of at most so many letters, digits, dots, underscores and hyphens is its page's name as it stands."""
SLUG = 40
DIGITS = 12
_PLAIN = re.compile(rf"[A-Za-z0-9._-]{{1,{PLAIN}}}")
_OTHER = re.compile(r"[^A-Za-z0-9._]+")


def segment(name: str) -> str:
    """A competition's part of an address, from its scheme's name: `/term-challenge/`."""
    return quote(re.sub("[^A-Za-z0-9._~-]+", "-", name).strip("-.") or "competition", safe="")


def participant_page(key: str) -> str:
    """The file name of a participant's page: "participant-atlas.html"."""
    return f"participant-{_slug(key)}.html"


def task_page(task: str) -> str:
    """The file name of a task's page: "task-decode-packet-capture.html"."""
    return f"task-{_slug(task)}.html"


def beside(page: str, ending: str) -> str:
    """The name of a file beside a page: its JSON or CSV."""
    return f"{page.removesuffix('.html')}.{ending}"


def api_address(address: str, epoch: int, what: str) -> str:
    """The address at which a service has `bundle` or `records` of a settled epoch. address: of the competition there."""
    base, _, segment = address.rpartition("/")
    return f"{base}/v1/{segment}/epochs/{epoch}/{what}"


def verifier_link(root: str, address: str | None, epoch: int, what: str) -> str:
    """The address of the verifier's page that checks something of a settled epoch as soon as it opens.

    root: from the page to the competition's top. address: of the competition at a service, which offers `what` (as `api_address`
    has it); None in a report, where the receipt lies beside the epoch's page. The part after `#` is seen from the verifier's
    page, so that it leads to the same host by whatever name the reader reached it.
    """
    if address is None:
        file = f"../epoch-{epoch}/epoch.receipt" if root else "../epoch.receipt"
    else:
        file = f"../../v1/{address.rpartition('/')[2]}/epochs/{epoch}/{what}"
    return f"{root}verifier/index.html#{quote(file, safe='/')}"


def logs_page(submission: str, task: str | None = None) -> str:
    """The address of the page of a submission's logs, or of those of one task, seen from the other pages."""
    return "logs.html?" + urlencode({"submission": submission} | ({} if task is None else {"task": task}))


def other_epochs(epochs: Iterable[int], shown: int, *, inside: bool) -> dict[int, str]:
    """Epoch → the folder of its pages, of each other epoch: the last is at the top, those before it in folders `epoch-N`.

    inside: the pages of the epoch shown are in such a folder.
    """
    every = sorted({*epochs, shown})
    top = "../" if inside else ""
    return {epoch: top if epoch == every[-1] else f"{top}epoch-{epoch}/" for epoch in every if epoch != shown}


def _slug(key: str) -> str:
    """The key itself, or its plain characters and the beginning of its SHA-256.

    A plain key has no "~", so nobody can take the name of somebody else's page by the choice of a key.
    """
    if _PLAIN.fullmatch(key):
        return key
    plain = _OTHER.sub("-", key[:SLUG]).strip("-")
    return f"{plain}~{hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()[:DIGITS]}"
