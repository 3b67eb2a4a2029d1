"""What would stop the start of a command that runs for long: its folder, ledger, keys, targets, files and address."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, BadInput

if TYPE_CHECKING:
    from assay.serve.listening import ServeOptions

__all__ = ["problems"]

Values = dict[str, Any]
Words = tuple[str, ...]
_SERVING: frozenset[Words] = frozenset({("serve",), ("node", "operator")})
_HOLDING: frozenset[Words] = _SERVING | {("publish",), ("settle",)}
"""Commands whose first argument is a competition with its ledger."""
_SENDING: frozenset[Words] = frozenset({("node", "validator"), ("pull",), ("push",)})
_WRITTEN = ("page", "metrics", "export", "output")
"""Options that name a file or folder to write."""
_SECONDS = 5.0
"""For an answer of the service that has the address."""


def problems(path: Words, values: Values, notes: list[str]) -> Iterator[AssayError]:
    """What would stop the start of a command with these values, by the names of its options.

    notes: gets what is no problem, but should be known. Reads only; asks the database, and no other machine.
    """
    place: Path = values.get("place") or values.get("folder") or Path()  # one of them is required
    checks: list[Callable[[], object]] = []
    if path in _HOLDING:
        checks += [partial(_competition, place), partial(_ledger, place, values.get("key"))]
        checks += [partial(_target, place, target) for target in _targets(path, place, values)]
    if path in _SENDING:
        checks += [partial(_copy, place), partial(_service, values["url"]), partial(_key, values["key"])]
        checks += [partial(_sandbox, values)] if path == ("node", "validator") else []
    if path in _SERVING and values.get("serve", True):
        checks.append(partial(_address, place, values, notes))
    checks += [partial(_writable, Path(values[name]), f"--{name}") for name in _WRITTEN if values.get(name)]
    for check in checks:
        try:
            check()
        except AssayError as error:
            yield error


def _targets(path: Words, place: Path, values: Values) -> list[str]:
    """The targets of publish.toml that a command uses; the operator's node uses all, if it is told of none."""
    from assay.publish.publishers import target_names

    told = values.get("to") or []
    told = [told] if isinstance(told, str) else told  # `publish` has one target, the operator's node several
    if path != ("node", "operator"):
        return told
    folder = place.parent if place.is_file() else place
    others = target_names(folder) if values.get("publish") and not told else []
    return [*dict.fromkeys([*told, *filter(None, [values.get("registry")]), *others])]


def _folders(place: Path) -> list[Path]:
    """The folders of the competitions of a place. Raises BadInput."""
    from assay.ledger.config import is_subnet
    from assay.scheme import subnet

    if not place.exists():
        raise BadInput("no such file or folder", file=place, hint="correct the path: one of the file is relative to the file")
    return [place.parent / member.path for member in subnet.read(place).competitions] if is_subnet(place) else [place]


def _competition(place: Path) -> None:
    from assay.competition import open_competition

    for folder in _folders(place):
        open_competition(folder)


def _ledger(place: Path, key: str | None) -> None:
    """Open each ledger, and the key that signs for it. key: another than the one of ledger.toml."""
    from assay.ledger import config
    from assay.ledger.access import open_store

    places = [place] if config.is_subnet(place) and config.exists(place) else []
    for one in [*places, *(_folders(place) if place.exists() else ())]:
        if config.exists(one):
            settings = config.read(one)
            with open_store(settings) as database:
                elsewhere = database.elsewhere()
                if elsewhere is not None:
                    raise elsewhere
            if not settings.tiles.is_dir():
                raise BadInput("no such folder", file=settings.tiles, hint="assay ledger check says what to do")
            if name := key or settings.signer:
                _key(name)


def _key(name: str) -> None:
    from assay.cli.ledger.keys import asking
    from assay.ledger import keys

    keys.load(name, asking())


def _target(place: Path, name: str) -> None:
    from assay.publish import publishers

    publishers.open_publisher(publishers.read_target(place.parent if place.is_file() else place, name))


def _copy(folder: Path) -> None:
    """A validator's folder is made if it is not there."""
    if folder.exists() and not folder.is_dir():
        raise BadInput("is no folder", file=folder, hint="name the folder of your copy")
    _writable(folder / "node" if folder.exists() else folder, "DIR")


def _service(url: str) -> None:
    from assay.serve import installed

    installed()
    from assay.serve.client import Client

    Client(url)


def _sandbox(values: Values) -> None:
    from assay.judge.sandbox import choose

    name = values.get("sandbox")
    if name is not None:
        choose(str(getattr(name, "value", name)), engine=values.get("engine"), runtime=values.get("runtime"))


def _writable(path: Path, field: str) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise BadInput("no such folder", file=parent, field=field, hint="make it")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise BadInput(
            "this user may not write there", file=parent, field=field, hint="change its owner, or the user of the process"
        )


def _address(place: Path, values: Values, notes: list[str]) -> None:
    """The address is free, or Assay has it; proxies and the certificate can be read."""
    from assay.cli.serve import options_of
    from assay.errors import Unreachable
    from assay.serve import installed

    installed()
    from assay.serve.listening import addresses, listen

    certificate, key = values.get("certificate"), values.get("certificate-key")
    names = ("port", "host", "address", "certificate", "certificate-key", "workers", "proxy")
    given: list[Any] = [values.get(name) for name in names]
    options = options_of(place, *given)
    if certificate is not None and key is not None:
        _certificate(certificate, key)
    addresses(options, options.port)
    try:
        with ExitStack() as stack:
            stack.enter_context(listen(options))
    except Unreachable as error:
        if not _is_assay(options):
            raise BadInput(error.what, hint=error.hint) from None
        notes.append(f"a service of Assay answers at {options.host}:{options.port}: it must end before this one starts")


def _certificate(certificate: Path, key: Path) -> None:
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        why = error.strerror or "not a PEM certificate and its key"
        raise BadInput(
            f"the certificate cannot be used ({why})", file=certificate, hint="check both files and who may read them"
        ) from None


def _is_assay(options: ServeOptions) -> bool:
    """Check whether a service of Assay answers at the address. Its certificate is not checked: nothing is told to it."""
    import http.client
    import ssl

    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    if options.certificate is None:
        connection = http.client.HTTPConnection(host, options.port, timeout=_SECONDS)
    else:
        trusting = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(host, options.port, timeout=_SECONDS, context=trusting)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status in (200, 503) and answer.read(64).startswith((b"ok", b"{"))
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
