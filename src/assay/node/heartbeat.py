"""Tell the service that a node works, and with which key: of two nodes with one key, it lets one work.

A node has an identity of its own, in DIR/node/id. The file names its own inode, so a folder that was copied, to another disk or
machine, is another node. The service gives a key to the node that it heard first, until five minutes passed without a heartbeat;
the other one is refused, and stands still.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, BadInput, printable
from assay.exact import canonical
from assay.folder.strict import load_note
from assay.node import FOLDER, status
from assay.serve.client import Client

if TYPE_CHECKING:
    from assay.ledger.keys import PrivateKey

__all__ = ["beat", "is_of_another", "leave", "node_id"]

LEAVE_SECONDS = 5.0
"""For so long a node that ends waits for the service."""

_TROUBLES, _CHARACTERS = 20, 300
"""The most troubles of a heartbeat, and the most characters of each, that a service takes."""
_FILE = "id"


def beat(client: Client, folder: Path, judging: Sequence[Mapping[str, Any]] = (), *, take_over: bool = False) -> None:
    """Say what is judged, and what is wrong here. take_over: take the key from another node that has it.

    It also notes by how much this machine's clock differs from the service's, whether the service takes the heartbeat or not.
    Raises BadInput, for which `is_of_another` says yes, if another node works with this key; Unreachable.
    """
    rows: dict[str, Any] = {"judging": list(judging)}
    whole = rows | {"node": node_id(folder), "take_over": take_over}
    if troubles := _troubles(folder):
        whole["troubles"] = troubles
    try:
        _send(client, whole)
    except BadInput as error:
        if is_of_another(error):
            raise
        _send(client, rows)  # an earlier version knows nothing else
    finally:
        ahead = round(client.ahead) or None
        if status.content_of(folder).get("ahead") != ahead:
            status.note(folder, ahead=ahead)


def _troubles(folder: Path) -> list[dict[str, str]]:
    """The alarms that stand at this node, as the service takes them to the operator."""
    rows = [alarm for alarm, _ in status.look(folder).alarms if alarm.code != "not-running"]
    return [{"code": alarm.code, "what": printable(alarm.sentence)[:_CHARACTERS]} for alarm in rows[:_TROUBLES]]


def leave(url: str, signer: PrivateKey, folder: Path) -> None:
    """Say that this node ends, so that another one may begin at once; a service that does not answer finds out by itself."""
    with suppress(AssayError), Client(url, signer, seconds=LEAVE_SECONDS) as client:
        _send(client, {"judging": [], "node": node_id(folder), "ends": True})


def _send(client: Client, body: Mapping[str, Any]) -> None:
    client.send("POST", "heartbeat", json.dumps(body).encode(), "application/json")


def is_of_another(error: AssayError) -> bool:
    """Whether the service refused a heartbeat because another node works with the same key."""
    return isinstance(error, BadInput) and error.field == "node"


def node_id(folder: Path) -> str:
    """Read the identity of the node in a folder, 32 hex digits; make one if it has none, or a copied one. Raises BadInput."""
    file = folder / FOLDER / _FILE
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = load_note(file)
        if known["inode"] == file.stat().st_ino:
            return bytes.fromhex(known["id"]).hex()
    return _new_id(file)


def _new_id(file: Path) -> str:
    new, beside = secrets.token_hex(16), file.with_name(f".{file.name}.{secrets.token_hex(8)}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("xb") as opened:
            opened.write(canonical({"id": new, "inode": os.fstat(opened.fileno()).st_ino}) + b"\n")
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(file)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=file, hint="check permissions and space") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return new
