"""The commands `assay keys new|show|import|list`, for keys that sign evidence and logs or open what is sealed.

They print public keys only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.ledger.config import Config
    from assay.ledger.keys import PrivateKey, PublicKey

__all__ = ["app", "asking", "log_signer"]

HELP = "Make and show keys: they sign evidence and logs, or open sealed files."

app = typer.Typer(name="keys", help=HELP, no_args_is_help=True, rich_markup_mode=None)


class KeyKind(StrEnum):
    """The kinds of key."""

    ed25519 = "ed25519"
    sr25519 = "sr25519"
    x25519 = "x25519"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The key's name, or the path of its file.", show_default=False)]
KindOption = Annotated[KeyKind, typer.Option(help="sr25519 is the kind of Bittensor's hotkeys; x25519 opens, and does not sign.")]
Passphrase = Annotated[
    bool,
    typer.Option("--passphrase", help="Ask for a passphrase that encrypts the key; without asking, ASSAY_PASSPHRASE is used."),
]
AsJson = Annotated[bool, typer.Option("--json", help="As canonical JSON.")]


@app.command()
def new(name: Name, kind: KindOption = KeyKind.ed25519, passphrase: Passphrase = False, as_json: AsJson = False) -> None:
    """Make a key. Keep its file to yourself, on this machine; others need only the public key.

    \b
    Examples:
      assay keys new val-1
      assay keys new log --passphrase
      assay keys new sponsor --kind x25519
    """
    from assay.ledger import keys

    key = keys.new(kind.value)
    _show(name, keys.save(name, key, _new_passphrase(passphrase)), key.public, as_json)


@app.command()
def show(
    name: Name,
    log: Annotated[str, typer.Option("--log", metavar="ORIGIN", help="Also the key of the log of this name (vkey).")] = "",
    public_only: Annotated[bool, typer.Option("--public", help="Only the public key, for a script.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the public key of a key file, in the spellings of validators.csv, of signatures and of a log.

    \b
    Examples:
      assay keys show val-1
      echo "$(assay keys show val-1 --public),1000,Val One" >> my-competition/validators.csv
      assay keys show log --log example.org/my-log
    """
    from assay.ledger import keys
    from assay.ledger import log as note

    public = keys.load(name, asking()).public
    if public_only:
        typer.echo(_spelt(public)["key"])
        return
    vkey = str(note.log_key(log, public)) if log else ""
    _show(name, keys.path_of(name), public, as_json, vkey)


@app.command("import")
def import_(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file with the private key.", show_default=False)],
    kind: KindOption = KeyKind.ed25519,
    passphrase: Passphrase = False,
    as_json: AsJson = False,
) -> None:
    """Import a key: 64 hex digits (a seed, of --kind), a PKCS#8 PEM, a Bittensor hotkey, a log's key PRIVATE+KEY+….

    The file is not changed. An encrypted key is encrypted again, with the same passphrase.

    \b
    Examples:
      assay keys import val-1 ~/.bittensor/wallets/default/hotkeys/val-1
      assay keys import val-2 seed.hex --kind sr25519
    """
    from assay.errors import BadInput
    from assay.folder.files import load
    from assay.ledger import keys
    from assay.ledger.keys import KEY_BYTES

    given: list[str] = []

    def ask() -> str:
        asked = _of_environment() or (asking() or str)()
        given.append(asked)
        return asked

    data = load(file, KEY_BYTES, hint="give the file that holds the key")
    try:
        key = keys.read(data, kind=kind.value, passphrase=ask)
    except BadInput as error:
        raise error.at(file=file) from None
    _show(name, keys.save(name, key, given[-1] if given else _new_passphrase(passphrase)), key.public, as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the key files in $ASSAY_KEYS, or else in ~/.config/assay/keys.

    \b
    Example:
      assay keys list
    """
    from assay.ledger import keys

    key_files = keys.listed()
    if as_json:
        from assay.cli.output import json_bytes, put

        rows = [{"name": file.name, "path": str(file.path), "problem": file.problem, **_spelt(file.public)} for file in key_files]
        put(json_bytes({"keys": rows}), None)
        return

    from assay.cli.show import Column, grid, sentence, show

    if not key_files:
        show(sentence(f"There are no keys in {keys.folder()}."))
        return
    show(
        grid(
            [
                Column("key", [file.name for file in key_files], style="bold"),
                Column("kind", ["" if file.public is None else file.public.kind for file in key_files]),
                Column(
                    "public key",
                    [file.problem if file.public is None else _spelt(file.public)["key"] for file in key_files],
                    kind="key",
                ),
            ]
        )
    )


def log_signer(settings: Config, name: str | None) -> PrivateKey:
    """The log's key of this name; without one, the signer that ledger.toml names. Raises BadInput."""
    from assay.ledger import keys

    if name is None and settings.signer is None:
        hint = "name the log's key with --key NAME"
        raise BadInput("does not say which key signs", file=settings.file, field="signer", hint=hint)
    return keys.load(name or settings.signer or "", asking())


def asking() -> Callable[[], str] | None:
    """A function that asks for the passphrase of a key; None without a terminal."""
    if not _terminal():
        return None
    return lambda: str(typer.prompt("Passphrase", hide_input=True, err=True))


def _terminal() -> bool:
    return sys.stdin.isatty()


def _of_environment() -> str:
    import os

    return os.environ.get("ASSAY_PASSPHRASE", "")


def _new_passphrase(wanted: bool) -> str:
    given = _of_environment()
    if given or not wanted:
        return given
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True))


def _spelt(public: PublicKey | None) -> dict[str, Any]:
    """The spellings of a public key: in a registry (`key`), and beside a signature (`id`)."""
    from assay.ledger.keys import ED25519, SR25519, hotkey

    if public is None:
        return {"kind": None, "key": None, "id": None}
    spelling = public.raw.hex() if public.kind == ED25519 else public.id
    return {"kind": public.kind, "key": hotkey.address(public.raw) if public.kind == SR25519 else spelling, "id": public.id}


def _show(name: str, path: Path, public: PublicKey, as_json: bool, vkey: str = "") -> None:
    fields = {"name": name, "path": str(path), **_spelt(public)} | ({"vkey": vkey} if vkey else {})
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes(fields), None)
        return
    from assay.cli.errors import printable

    words = {"path": "file", "kind": "kind", "key": "public key", "vkey": "log key"}
    for field, word in words.items():
        if field in fields:
            typer.echo(printable(f"{word:10}  {fields[field]}"))
