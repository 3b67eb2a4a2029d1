"""Checks of all that a long-running command needs to start: its folder, ledger, keys, targets, files and address."""

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
_TELLING: frozenset[Words] = frozenset({("node", "operator"), ("node", "validator"), ("publish",)})
"""Commands that write a page and metrics."""
_WRITTEN = ("export", "output")
"""Options that name a folder or file to write, beside the page and the metrics."""
_SECONDS = 5.0
"""For the whole answer of the service that has the address."""
_ANSWER_BYTES = 64 * 1024


def problems(path: Words, values: Values, notes: list[str]) -> Iterator[AssayError]:
    """Yield what would stop the start of a command with these values, by the names of its options.

    notes: gets what is no problem, but should be known. Reads only; asks the database, and no other machine.
    """
    from assay.competition import open_competition

    place: Path = values.get("place") or values.get("folder") or Path()  # one of them is required
    checks: list[Callable[[], object]] = []
    if path in _HOLDING:
        try:
            folders, subnet, beside = _places(place)
        except AssayError as error:
            yield error
            folders, subnet, beside = [], None, place.parent
        checks += [partial(open_competition, folder) for folder in folders]
        checks += _ledgers(path, folders, subnet, values)
        checks += _targets(path, folders, beside, values)
    if path in _SENDING:
        checks += [partial(_copy, place), partial(_service, values["url"]), partial(_key, values["key"])]
        checks += [partial(_sandbox, values)] if path == ("node", "validator") else []
    if path in _SERVING and values.get("serve", True) and not values.get("once"):
        checks.append(partial(_address, place, values, notes))
    if path in _TELLING:
        checks += _telling(place, values)
    checks += [partial(_writable, Path(values[name]), f"--{name}") for name in _WRITTEN if values.get(name)]
    for check in checks:
        try:
            check()
        except AssayError as error:
            yield error


def _places(place: Path) -> tuple[list[Path], Path | None, Path]:
    """The folders of the competitions, the subnet file if there is one, and the folder of publish.toml. Raises BadInput."""
    from assay.scheme.subnet import places

    if not place.exists():
        raise BadInput("no such file or folder", file=place, hint="correct the path: one of the file is relative to the file")
    return places(place)


def _ledgers(path: Words, folders: list[Path], subnet: Path | None, values: Values) -> Iterator[Callable[[], object]]:
    """Each ledger, and the key that signs for it. The operator's node needs both; the other commands use what is there."""
    from assay.cli.operator import signers_of
    from assay.ledger import config

    places, key = [*folders, *([] if subnet is None else [subnet])], values.get("key")
    if path == ("node", "operator"):
        yield from (partial(_ledger, place) for place in places)
        yield partial(signers_of, places, key)
        return
    for place in filter(config.exists, places):
        yield partial(_ledger, place)
        yield partial(_signer, place, key)


def _ledger(place: Path) -> None:
    """Open the database of a competition's folder or a subnet file, and look for its log."""
    from assay.ledger import config
    from assay.ledger.access import open_store

    settings = config.read(place)
    with open_store(settings) as database:
        elsewhere = database.elsewhere()
        if elsewhere is not None:
            raise elsewhere
    if not settings.tiles.is_dir():
        raise BadInput("no such folder", file=settings.tiles, hint="assay ledger check says what to do")


def _signer(place: Path, key: str | None) -> None:
    """Load the key that signs, if one is named. key: another than the one of ledger.toml."""
    from assay.ledger import config

    if name := key or config.read(place).signer:
        _key(name)


def _targets(path: Words, folders: list[Path], beside: Path, values: Values) -> Iterator[Callable[[], object]]:
    """The targets of publish.toml that a command uses; without `--to`, the operator's node uses all of them."""
    from assay.cli.operator import registry_target
    from assay.publish.publishers import target_kinds, target_names

    targets = values.get("to") or []
    targets = [targets] if isinstance(targets, str) else targets  # `publish` has one target, the operator's node several
    if path == ("node", "operator"):
        yield partial(target_kinds, beside)
        registry = values.get("registry")
        if registry is None:
            yield lambda: registry_target(folders, beside, target_kinds(beside), None)
        targets = targets or target_names(beside) if values.get("publish") else []
        targets = [*dict.fromkeys([*targets, *([] if registry is None else [registry])])]
    yield from (partial(_target, beside, name) for name in targets)


def _telling(place: Path, values: Values) -> Iterator[Callable[[], object]]:
    """The program and the address that are told of alarms, and the files of the page and the metrics."""
    from assay.cli.telling import telling_of

    yield partial(telling_of, place, values.get("on-alarm"), None, False, None, None)
    yield partial(telling_of, place, None, values.get("webhook"), values.get("plain-webhook", False), None, None)
    yield partial(_files, place, [values.get("metrics"), values.get("page")])


def _files(place: Path, files: list[Path | None]) -> None:
    """Check the files of the metrics and of the page."""
    from assay.cli.watching import check_files

    check_files(place, files)
    for file, name in zip(files, ("--metrics", "--page"), strict=True):
        if file is not None:
            _writable(file, name)


def _key(name: str) -> None:
    from assay.cli.ledger.keys import asking
    from assay.ledger import keys

    keys.load(name, asking())


def _target(folder: Path, name: str) -> None:
    from assay.publish import publishers

    publishers.open_publisher(publishers.read_target(folder, name))


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
    from assay.judge.kind_options import containers_engine
    from assay.judge.sandbox import choose

    name = values.get("sandbox")
    if name is not None:
        engine = containers_engine(values.get("engine"))
        choose(str(getattr(name, "value", name)), engine=engine, runtime=values.get("runtime"))


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
        if options.certificate is not None:  # it is not asked what it is: its certificate need not be for this name
            notes.append(f"something has the address {options.host}:{options.port}: it must end before this service starts")
        elif _is_assay(options):
            notes.append(f"a service of Assay answers at {options.host}:{options.port}: it must end before this one starts")
        else:
            raise BadInput(error.what, hint=error.hint) from None


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
    """Check whether a service of Assay answers at the address, without TLS."""
    from assay.peers import NoAnswer
    from assay.peers.http import Peer

    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    url = f"http://[{host}]:{options.port}/healthz" if ":" in host else f"http://{host}:{options.port}/healthz"
    try:
        with Peer(url, seconds=_SECONDS, keep=False) as peer:
            answer = peer.ask("GET", most=_ANSWER_BYTES)
    except NoAnswer:
        return False
    return answer.status in (200, 503) and answer.body.startswith((b"ok", b"{"))
