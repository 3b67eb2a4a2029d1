"""Options of commands from one TOML file and from environment variables.

    [environment]                       # variables that are not set otherwise
    ASSAY_KEYS = "keys"                 # paths are relative to the file
    ASSAY_PASSPHRASE_FILE = "secret"    # sets ASSAY_PASSPHRASE to the content of a file

    [serve]                             # a table for each command, with its options and arguments by name
    place = "season"
    port = 8400

    [node.validator]                    # the command `assay node validator`
    url = "https://assay.example.org/arena"

The file is the one of `assay --config FILE`, else that of ASSAY_CONFIG. No file is looked for in the working folder: a folder
from somebody else must not decide what a command does. The command line overrides a variable such as ASSAY_SERVE_PORT, the
variable overrides the file, and the file overrides the default. The library of the command line carries that out (`default_map`,
`envvar`). Only the standard library is imported here as long as there is no file, so that a command begins quickly.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from assay.errors import BadInput, brief, suggest

__all__ = [
    "CONFIG",
    "ENVIRONMENT",
    "FILE_END",
    "SECRETS",
    "VARIABLES",
    "ConfigFile",
    "bind",
    "configure",
    "key_of",
    "leaves",
    "options_of",
    "variable_of",
    "whence",
]

CONFIG = "assay.config"
"""The key of the ConfigFile in a context's `meta`."""
ENVIRONMENT = "environment"
"""The table of variables."""
SECRETS = ("ASSAY_PASSPHRASE", "ASSAY_MODEL_KEY", "ASSAY_LLM_API_KEY", "GITHUB_TOKEN")
"""Variables that are never shown, and that no configuration file may hold."""
_PATHS = ("ASSAY_KEYS", "ASSAY_STATE", "ASSAY_SCRATCH", "PGPASSFILE", "SSL_CERT_FILE", "SSL_CERT_DIR")
_TEXTS = (
    *(
        "ASSAY_MODEL_URL",
        "ASSAY_MODEL_HEADER",
        "ASSAY_MODEL_ENDPOINTS",
        "ASSAY_MODEL_NAMES",
        "ASSAY_MODEL_RATE",
        "ASSAY_PLANS_RATE",
    ),
    *("ASSAY_LLM_BASE_URL", "ASSAY_LLM_RATE", "CONTAINER_HOST", "DOCKER_HOST"),
)
VARIABLES = (*_PATHS, *_TEXTS, *SECRETS)
"""Every variable that Assay or a library of its reads, beside those of options."""
FILE_END = "_FILE"
"""The end of a variable that names the file of a secret."""
_SECRET_BYTES = 65_536
_OWN = frozenset({"help", "version", "config", "install-completion", "show-completion"})


@dataclass
class ConfigFile:
    """A configuration file: its tables as written. Raises BadInput for a file that is missing or not TOML."""

    path: Path
    content: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    variables: set[str] = field(default_factory=set)
    """The variables that this file set."""

    @classmethod
    def read(cls, path: Path) -> ConfigFile:
        """Read the file at a path."""
        from assay.scheme.reading import read_toml

        if not path.exists():
            raise BadInput("no such file", file=path, hint="--config or ASSAY_CONFIG names the configuration file")
        return cls(path, *read_toml(path))

    def line(self, words: Iterable[str]) -> int | None:
        """The line on which a table or a key stands."""
        from assay.scheme.reading import line_of

        return line_of(self.source, [*words])

    def refuse(self, what: str, words: Iterable[str], hint: str) -> BadInput:
        """Make the refusal of a table or a key."""
        words = [*words]
        return BadInput(what, file=self.path, line=self.line(words), field=".".join(words), hint=hint)

    def table(self, words: Iterable[str]) -> dict[str, Any]:
        """Return the table of a command; empty if the file has none. Raises BadInput if something else has its name."""
        here, seen = self.content, list[str]()
        for word in words:
            seen.append(word)
            here = here.get(word, {})
            if not isinstance(here, dict):
                raise self.refuse(f"is {brief(here)}, and no table", seen, f"write [{'.'.join(seen)}] above its options")
        return here

    def resolved(self, text: str) -> str:
        """A path of the file as the process has to open it."""
        return text if text == "-" else str(self.path.absolute().parent / Path(text).expanduser())


def key_of(param: Any) -> str:
    """The name of an option or an argument in the file: `--certificate-key` is `certificate-key`."""
    named = [word for word in param.opts if word.startswith("--")]
    return str(named[0] if named else param.name).removeprefix("--").replace("_", "-")


def variable_of(words: Iterable[str], param: Any) -> str:
    """The variable of an option: ASSAY_NODE_VALIDATOR_URL."""
    return re.sub("[^A-Z0-9]", "_", "_".join(("assay", *words, key_of(param))).upper())


def options_of(params: Iterable[Any]) -> dict[str, Any]:
    """The parameters that a file or a variable can set, by name."""
    return {key_of(param): param for param in params if key_of(param) not in _OWN}


def leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """List each command under a command, with its words; itself if it is no group."""
    members = getattr(command, "commands", None)
    if members is None:
        yield words, command
    else:
        for name, inner in members.items():
            yield from leaves(inner, (*words, name))


def configure(context: Any, path: Path | None, name: str, command: Any) -> None:
    """Let the file and the variables set the options of a command and of those under it. Raises BadInput.

    context: the root's. path: the file, None without one.
    """
    file = None
    if path is not None:
        file = context.meta.get(CONFIG) or ConfigFile.read(path)
        context.meta[CONFIG] = file
    _set_variables(file)
    for words, leaf in leaves(command, (name,)):
        _name_variables(words, leaf.params)
    if file is not None and name in file.content:
        context.default_map = {**(context.default_map or {}), name: _defaults(file, command, (name,))}


def bind(context: Any, params: Iterable[Any]) -> None:
    """Do the same for options that a command has only because of its arguments. Raises BadInput for a name of no option."""
    params = [*params]
    words = _words(context)
    _name_variables(words, params)
    file: ConfigFile | None = context.meta.get(CONFIG)
    if file is not None:
        known = options_of([*context.command.params, *params])
        context.default_map = dict(_values(file, words, file.table(words), known))


def whence(context: Any, param: Any) -> str:
    """The source of a parameter's value: `file:line`, a variable's name, `command line`, else `default`."""
    source = context.get_parameter_source(param.name)
    match "" if source is None else source.name:
        case "DEFAULT_MAP":
            file: ConfigFile = context.meta[CONFIG]
            return f"{file.path}:{file.line([*_words(context), key_of(param)])}"
        case "ENVIRONMENT":
            return str(param.envvar)
        case "COMMANDLINE":
            return "command line"
    return "default"


def _words(context: Any) -> tuple[str, ...]:
    """The words of a context's command, without the program's name."""
    return () if context.parent is None else (*_words(context.parent), context.info_name)


def _name_variables(words: tuple[str, ...], params: Iterable[Any]) -> None:
    for param in options_of(params).values():
        if param.envvar is None:
            param.envvar, param.show_envvar = variable_of(words, param), False  # the help has no room for all


def _defaults(file: ConfigFile, command: Any, words: tuple[str, ...]) -> dict[str, Any]:
    """The defaults that the tables of a command set, as the library wants them: by the names of parameters."""
    table, members = file.table(words), getattr(command, "commands", None)
    if members is None:
        if getattr(command, "late", False):  # its further options are known when its arguments are: `bind` refuses then
            table = {key: value for key, value in table.items() if key in options_of(command.params)}
        return dict(_values(file, words, table, options_of(command.params)))
    for name in table:
        if name not in members:
            hint = suggest(name, members, f"there are: {', '.join(members)}")
            raise file.refuse(f"there is no command `assay {' '.join((*words, name))}`", (*words, name), hint)
    return {name: _defaults(file, members[name], (*words, name)) for name in table}


def _values(file: ConfigFile, words: tuple[str, ...], table: dict[str, Any], known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if key not in known:
            hint = suggest(key, known, f"there are: {', '.join(known)}")
            raise file.refuse(f"`assay {' '.join(words)}` has no option {brief(key, 80)}", (*words, key), hint)
        param = known[key]
        kind, many = _type_of(param)
        several = value if many and isinstance(value, list) else [value]
        for item in several:
            if not _fits(item, kind):
                what = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "text in quotes")
                raise file.refuse(f"is {brief(item)}", (*words, key), f"it must be {what}{', or a list of it' if many else ''}")
        paths = [file.resolved(item) if kind is Path else item for item in several]
        yield str(param.name), paths if many else paths[0]


def _fits(value: Any, kind: type) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if kind in (int, float):
        return isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
    return isinstance(value, str)


def _type_of(param: Any) -> tuple[type, bool]:
    """The type of a parameter's value, and whether it takes several."""
    kind = param.type_descriptor.annotation
    many = bool(getattr(param, "multiple", False)) or param.nargs != 1
    inner = get_args(kind)
    kind = inner[0] if many and inner else kind
    if isinstance(kind, type) and issubclass(kind, Path):
        return Path, many
    return (kind if kind in (bool, int, float) else str), many


def _set_variables(file: ConfigFile | None) -> None:
    """Set the variables of [environment] that are not set, and secrets from the files that variables name. Raises BadInput."""
    for name, value in ({} if file is None else _environment(file)).items():
        if not os.environ.get(name):
            os.environ[name] = value
            if file is not None:
                file.variables.add(name)
    named = [name for name in os.environ if name.endswith(FILE_END) and name.removesuffix(FILE_END) in SECRETS]
    if file is not None:
        named += [name for name in file.table([ENVIRONMENT]) if name.endswith(FILE_END) and name not in (*named, *VARIABLES)]
    for name in named:
        if os.environ[name] and not os.environ.get(name.removesuffix(FILE_END)):
            os.environ[name.removesuffix(FILE_END)] = _secret(Path(os.environ[name]), name)


def _environment(file: ConfigFile) -> dict[str, str]:
    """The table [environment]. Raises BadInput for what is no variable of Assay, and for a secret."""
    variables = {}
    for name, value in file.table([ENVIRONMENT]).items():
        where = (ENVIRONMENT, name)
        if name in SECRETS:
            raise file.refuse(
                "is a secret, which a configuration file must not hold", where, f"write {name}{FILE_END} = the path of a file"
            )
        is_file = name.endswith(FILE_END) and re.fullmatch("[A-Z][A-Z0-9_]*", name) is not None
        if name not in VARIABLES and not is_file:
            raise file.refuse("is no variable of Assay", where, suggest(name, VARIABLES, f"there are: {', '.join(VARIABLES)}"))
        if not isinstance(value, str) or "\0" in value:
            raise file.refuse(f"is {brief(value)}", where, "it must be text in quotes")
        variables[name] = file.resolved(value) if is_file or name in _PATHS else value
    return variables


def _secret(path: Path, name: str) -> str:
    from assay.folder.files import load

    data = load(path, _SECRET_BYTES, hint=f"{name} names the file of a secret")
    try:
        return data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8", file=path, hint=f"{name} names the file of a secret") from None
