"""The commands `assay config show|check`: where each option's value comes from, and what would stop a start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from assay.cli.commands import COMMANDS, Loaded
from assay.cli.output import AsJson, emit
from assay.errors import AssayError, BadInput, suggest

if TYPE_CHECKING:
    from assay.cli.configuration import ConfigFile

__all__ = ["app", "parsed"]

app = typer.Typer(
    name="config",
    help="Show where each option's value comes from, and check before a start what would stop it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
SECRET = frozenset({"webhook", "code"})
"""Options whose values are never shown, beside the variables that are secrets."""
_AT_ALL = "[COMMAND]..."


@app.command()
def show(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar=_AT_ALL, help="A command, such as: node validator. All of its options are shown.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the value of each option, and where it comes from.

    Variables are shown too; secrets are not.

    Without a command, everything is shown that the configuration file or a variable sets. The command line overrides a variable,
    a variable overrides the file, and the file overrides the default. docs/operations.md describes the file.

    \\b
    Examples:
      assay --config assay.toml config show
      assay config show node validator
    """
    root = _root_of(context)
    rows = list(_variables(root)) if not words else []
    for path in [_known(words)] if words else _all_set(root):
        command_context = parsed(root, path, loose=True)
        rows += [row for row in _options(command_context, path) if words or row["from"] != "default"]
    file = root.params.get("config")
    if emit(lambda: {"file": None if file is None else str(file), "values": rows}, as_json):
        return
    from assay.cli.show import Column, grid, sentence
    from assay.cli.show import show as put

    if not rows:
        put(sentence("Neither a configuration file nor a variable sets anything."))
        return
    names = [" ".join([*row["command"].split()[1:], row["name"]]) if row["command"] else row["name"] for row in rows]
    values = ["" if row["value"] is None else str(row["value"]) for row in rows]
    put(grid([Column("option", names), Column("value", values, kind="text"), Column("from", [row["from"] for row in rows])]))


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True})
def check(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar=_AT_ALL,
            help="A command, with options as for a start. Otherwise each one that the file has.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say everything that would stop a start: run it before a restart. Starts and sends nothing.

    Names of tables and options, types, folders, keys and their permissions, schemes, subnet files, ledgers and their databases,
    targets of publish.toml, the program and the address for alarms, certificates, and whether the address is free, or a service
    of Assay has it already. Ends with 0, or with 2 if something is wrong.

    \\b
    Examples:
      assay --config assay.toml config check
      assay config check node validator my-copy --url https://assay.example.org/arena --key val-1
    """
    from assay.cli.errors import tell

    problems: list[AssayError] = []
    notes: list[str] = []
    paths: list[tuple[tuple[str, ...], list[str]]] = []
    try:
        root = _root_of(context)
        if words:
            path = _known(words, exact=False)
            paths = [(path, words[len(path) :])]
        else:
            problems += _wrong_tables(root)
            paths = [(path, []) for path in _all_set(root, only_file=True)] if not problems else []
            if root.params.get("config") is None:
                raise BadInput(
                    "there is no configuration file to check",
                    hint="name one: assay --config FILE config check; or name a command: assay config check node operator DIR",
                )
    except AssayError as error:
        problems.append(error)
    for path, rest in paths:
        problems += _problems(root, path, rest, notes)
    lines = list(dict.fromkeys(map(str, problems)))
    if not emit({"wrong": lines, "notes": notes, "checked": [" ".join(path) for path, _ in paths]}, as_json):
        from assay.cli.errors import printable

        for note in notes:
            typer.echo(printable(note))
        for line in lines:
            tell("error", line, typer.colors.RED)
        if not lines:
            typer.echo(f"Nothing is wrong with: {', '.join('assay ' + ' '.join(path) for path, _ in paths) or 'the file'}")
    if lines:
        raise typer.Exit(BadInput.exit_code)


def parsed(root: Any, path: Sequence[str], rest: Sequence[str] = (), *, loose: bool = False) -> Any:
    """Parse the context of a command as a start would have it, from its command line, variables and the file; nothing is started.

    loose: what is missing or wrong is None. Raises BadInput, and typer.BadParameter for a command line that is refused.
    """
    from assay.cli.configuration import configure

    commands = Loaded()
    configure(root, root.params.get("config"), path[0], commands[path[0]])
    context, command = root, commands[path[0]]
    for number, word in enumerate(path):
        args = [*path[number + 1 :], *rest]
        command = command if number == 0 else command.commands[word]
        context = command.make_context(word, args, parent=context, resilient_parsing=loose)
    return context


def _root_of(context: Any) -> Any:
    """The root's context, with the variables of the file set."""
    from assay.cli.configuration import configure

    root = context.find_root()
    configure(root, root.params.get("config"), "config", context.parent.command)
    return root


def _known(words: Sequence[str], *, exact: bool = True) -> tuple[str, ...]:
    """The words that name a command. exact: there may be no others. Raises BadInput."""
    members: Any = Loaded()
    path: list[str] = []
    for word in words:
        if word not in members:
            named = " ".join(("assay", *path, word))
            raise BadInput(f"there is no command `{named}`", hint=suggest(word, members, f"there are: {', '.join(members)}"))
        path.append(word)
        members = getattr(members[word], "commands", None)
        if members is None:
            break
    if members is not None:
        raise BadInput(f"`assay {' '.join(path)}` is several commands", hint=f"name one: {', '.join(members)}")
    if exact and len(path) < len(words):
        raise BadInput(f"{words[len(path)]!r} is no part of a command's name", hint=f"assay config show {' '.join(path)}")
    return tuple(path)


def _all_set(root: Any, *, only_file: bool = False) -> Iterator[tuple[str, ...]]:
    """The commands with an option that the file or a variable sets."""
    from assay.cli.configuration import CONFIG, leaves

    file: ConfigFile | None = root.meta.get(CONFIG)
    content = {} if file is None else file.content
    prefixes = (
        ()
        if only_file
        else tuple(name.split("_")[1].lower() for name in os.environ if name.startswith("ASSAY_") and os.environ[name])
    )
    for name in COMMANDS:
        if name not in content and name not in prefixes:
            continue
        for path, leaf in leaves(Loaded()[name], (name,)):
            here: Any = content
            for word in path:
                here = here.get(word) if isinstance(here, dict) else None
            start = "_".join(("ASSAY", *path, "")).upper().replace("-", "_")
            if here is not None or (not only_file and leaf.params and any(variable.startswith(start) for variable in os.environ)):
                yield path


def _wrong_tables(root: Any) -> Iterator[AssayError]:
    """The errors in the tables of the file, the first of each command."""
    from assay.cli.configuration import CONFIG, ENVIRONMENT, configure

    file: ConfigFile | None = root.meta.get(CONFIG)
    commands = Loaded()
    if file is None:
        return
    for name in file.content:
        if name == ENVIRONMENT:
            continue
        if name not in commands:
            yield file.refuse(
                "is no command of Assay, and not [environment]", [name], suggest(name, commands, "assay --help lists them")
            )
            continue
        try:
            configure(root, file.path, name, commands[name])
        except AssayError as error:
            yield error


def _problems(root: Any, path: tuple[str, ...], rest: Sequence[str], notes: list[str]) -> Iterator[AssayError]:
    """The errors that would stop the start of one command."""
    from assay.cli.config_checks import problems
    from assay.cli.errors import of_the_file

    try:
        context = parsed(root, path, rest)
    except typer.BadParameter as error:
        yield of_the_file(error) or BadInput(
            error.format_message().rstrip("."), field=f"assay {' '.join(path)}", hint=f"assay {' '.join(path)} --help"
        )
        return
    except AssayError as error:
        yield error
        return
    yield from problems(path, _values(context), notes)


def _values(context: Any) -> dict[str, Any]:
    """The values of a context by the names of options, those of kinds too."""
    from assay.cli.configuration import options_of
    from assay.cli.judging.run import late_values

    late = late_values(context)
    params = options_of(context.command.get_params(context))
    return {name: context.params.get(param.name, late.get(param.name)) for name, param in params.items()}


def _options(context: Any, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    from assay.cli.configuration import options_of, whence

    values = _values(context)
    for name, param in options_of(context.command.get_params(context)).items():
        value = values[name]
        shown = _shown(name, value)
        yield {"command": f"assay {' '.join(path)}", "name": name, "value": shown, "from": whence(context, param)}


def _shown(name: str, value: Any) -> Any:
    """A value for people and programs: a secret is `(not shown)`, as is what stands before the @ or after the ? of an address."""
    if name in SECRET and value:
        return "(not shown)"
    if isinstance(value, list | tuple):
        return [_shown(name, item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        if isinstance(value, str) and "://" in value:
            parts = urlsplit(value)
            if "@" in parts.netloc or parts.query:
                return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="…" if parts.query else "").geturl()
        return value
    return str(getattr(value, "value", value))


def _variables(root: Any) -> Iterator[dict[str, Any]]:
    """The variables that are set: those of Assay itself, not those of options."""
    from assay.cli.configuration import CONFIG, ENVIRONMENT, FILE_END, SECRETS, VARIABLES

    file: ConfigFile | None = root.meta.get(CONFIG)
    table = {} if file is None else file.table([ENVIRONMENT])
    for name in sorted({"ASSAY_CONFIG", *VARIABLES, *table, *(f"{name}{FILE_END}" for name in SECRETS)}):
        value = os.environ.get(name)
        if not value:
            continue
        of_file = file is not None and name in file.variables
        secret_of = f"{name}{FILE_END}"
        source = f"{file.path}:{file.line([ENVIRONMENT, name])}" if of_file and file is not None else name
        if name in SECRETS and os.environ.get(secret_of):
            source = secret_of
        yield {"command": "", "name": name, "value": "(not shown)" if name in SECRETS else _shown(name, value), "from": source}
