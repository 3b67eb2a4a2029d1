"""Dockerfiles as steps: what is read as Docker reads it, what is refused and on which line, and what a COPY takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.folder.files import Place
from assay.judge import dockerfile
from assay.judge.dockerfile import PATH, Context, Copy, Placed, Run, Workdir
from assay.judge.dockerfile.parse import expand, raw


def steps(body: str) -> tuple[dockerfile.Step, ...]:
    return dockerfile.plan(f"FROM base\n{body}\n").checked().steps


def command(body: str) -> tuple[str, ...]:
    step = steps(body)[-1]
    assert isinstance(step, Run)
    return step.command


def test_a_whole_file() -> None:
    plan = dockerfile.plan(
        """# syntax=docker/dockerfile:1
ARG TAG=12
FROM localhost/base:${TAG} AS only

LABEL who=me
ENV LANG=C.UTF-8 APP=/app
WORKDIR $APP
COPY --chmod=755 data/ tool.sh ./
RUN sqlite3 shop.db < data.sql && \\
    # a remark
    rm data.sql

RUN ["git", "init", "-q"]
CMD ["bash"]
"""
    )
    env = {"PATH": PATH, "LANG": "C.UTF-8", "APP": "/app"}
    assert (plan.base, plan.workdir, plan.refused) == ("localhost/base:12", "/app", ())
    assert plan.env == {"LANG": "C.UTF-8", "APP": "/app"}
    assert plan.steps == (
        Workdir("/app", 7),
        Copy(("data/", "tool.sh"), "/app", True, 0o755, 8),
        Run(("/bin/sh", "-c", "sqlite3 shop.db < data.sql &&     rm data.sql"), env, "/app", 9),
        Run(("git", "init", "-q"), env, "/app", 13),
    )


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("RUN a \\\n  b", "a   b"),
        ("RUN a \\  \n\n# no\n   # no\n b", "a  b"),
        ("run\ta", "a"),
        ("RUN echo '# kept' # too", "echo '# kept' # too"),
        ("RUN echo $((1 << 3)) <<< x", "echo $((1 << 3)) <<< x"),
        ("RUN echo 'cat <<EOF'", "echo 'cat <<EOF'"),
        ("RUN [ -e x ]", "[ -e x ]"),
        ("RUN \\\n a", "a"),
        ("RUN []", "[]"),
    ],
)
def test_lines_are_joined_as_docker_joins_them(body: str, line: str) -> None:
    assert command(body) == ("/bin/sh", "-c", line)


def test_shell_changes_what_runs_a_line() -> None:
    assert command('SHELL ["/bin/bash", "-ec"]\nRUN a') == ("/bin/bash", "-ec", "a")


def test_relative_workdirs_add_up() -> None:
    assert steps("WORKDIR a\nWORKDIR b/../c\nWORKDIR /d//e/\n") == (Workdir("/a", 2), Workdir("/a/c", 3), Workdir("/d/e", 4))


def test_variables_come_from_arg_and_env_and_env_wins() -> None:
    plan = dockerfile.plan("ARG A=early\nFROM x\nARG A\nARG B=$A-2\nENV C=${B}\nARG C=no\nENV D=1 E=$D\nRUN x\n")
    last = plan.steps[-1]
    assert isinstance(last, Run)
    assert last.env == {"PATH": PATH, "A": "early", "B": "early-2", "C": "early-2", "D": "1", "E": ""}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A", "1"),
        ("${A}b", "1b"),
        ("$Ab", ""),
        ("x$", "x$"),
        ("$ A", "$ A"),
        (r"\$A", "$A"),
        ("'$A'", "$A"),
        ('"$A b"', "1 b"),
        (r'"\$A\n"', r"$A\n"),
        ("${N:-d}", "d"),
        ("${N:-${A}2}", "12"),
        ("${A:-d}", "1"),
        ("${E:-d}", "d"),
        ("${E-d}", ""),
        ("${N-d}", "d"),
        ("${A:+y}", "y"),
        ("${E:+y}", ""),
        ("${E+y}", "y"),
        ("${N+y}", ""),
        (r"a\ b", "a b"),
        ("a'b'\"c\"", "abc"),
        ('${N:-"a}b"}', "a}b"),
    ],
)
def test_words_are_filled_in(text: str, value: str) -> None:
    assert expand(text, {"A": "1", "E": ""}, Place()) == value


@pytest.mark.parametrize("text", ["'a", '"a', "${A", "${}", "${A:?b}", "${A#b}", "${A:-b", "${A:-" * 30])
def test_words_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        expand(text, {"A": "1"}, Place())


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\n"), min_size=1, max_size=8), max_size=4))
def test_quoted_words_come_back(words: list[str]) -> None:
    quoted = ['"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$") + '"' for word in words]
    assert [expand(word, {}, Place()) for word in raw("  \t".join(quoted))] == words


@given(st.text(alphabet="RUNCOPYEV aFM$\\{}'\"\n#<-=[],:/.", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    refused: BadInput | None = None
    try:
        dockerfile.plan("FROM base\n" + text)
    except BadInput as error:
        refused = error
    assert refused is None or (refused.what and refused.line is not None)


def test_env_in_the_old_form_takes_the_rest_of_the_line() -> None:
    assert dockerfile.plan("FROM x\nENV NOTE two  words\n").env == {"NOTE": "two  words"}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("ADD x /x", "ADD"),
        ("USER nobody", "USER nobody"),
        ("VOLUME /x", "VOLUME"),
        ('ENTRYPOINT ["x"]', "ENTRYPOINT"),
        ("HEALTHCHECK CMD x", "HEALTHCHECK"),
        ("ONBUILD RUN x", "ONBUILD"),
        ("FROM y", "FROM a second time"),
        ("COPY --from=y /a /b", "COPY --from"),
        ("COPY --chown=me x /", "COPY --chown"),
        ("RUN --mount=type=cache,target=/x y", "RUN --mount"),
        ("RUN cat <<EOF\nRUN hidden\nEOF", "RUN with a here-document"),
        ("COPY <<-'E' /x\nRUN\n\tE", "COPY with a here-document"),
    ],
)
def test_what_needs_a_container_engine_is_refused_by_name_and_line(body: str, what: str) -> None:
    plan = dockerfile.plan(f"FROM x\n\n{body}\nRUN after\n", "environment/Dockerfile")
    assert [(refusal.what, refusal.line) for refusal in plan.refused] == [(what, 3)]
    assert isinstance(plan.steps[-1], Run)
    with pytest.raises(BadInput, match=r"environment/Dockerfile:3: .* cannot be done without a container engine; .*containers"):
        plan.checked()


def test_what_changes_nothing_is_passed_over() -> None:
    body = "USER root\nUSER 0:0\nHEALTHCHECK NONE\nEXPOSE 80\nSTOPSIGNAL 9\nMAINTAINER me\nCOPY --link --chown=0:0 a b"
    assert steps(body) == (Copy(("a",), "/b", False, None, 8),)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", None),
        ("# only\n", None),
        ("RUN x\nFROM y\n", 1),
        ("FROM x\nRNU y\n", 2),
        ("FROM x\nRUN\n", 2),
        ("FROM a b\n", 1),
        ("# escape=`\nFROM x\n", 1),
        ("FROM x\nENV A\n", 2),
        ("FROM x\nENV A=1 B\n", 2),
        ("FROM x\nCOPY a\n", 2),
        ("FROM x\nSHELL sh\n", 2),
        ("FROM x\nWORKDIR $NONE\n", 2),
        ("FROM x\nCOPY --chmod=u+x a b\n", 2),
        ("FROM $NONE\n", 1),
        ("FROM x\nRUN <<EOF\nno end\n", 2),
        ("FROM x\nARG 1=2\n", 2),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, line: int | None) -> None:
    with pytest.raises(BadInput) as caught:
        dockerfile.plan(text, "Dockerfile")
    assert caught.value.line == line
    assert caught.value.hint


@pytest.fixture
def context(tmp_path: Path) -> Path:
    tmp_path = tmp_path / "environment"
    for name in ("a.txt", "b.txt", "data/x.csv", "data/deep/y.csv", "data/.hidden", "[odd].txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o640)
    (tmp_path / "data" / "link").symlink_to("x.csv")
    return tmp_path


def placed(folder: Path, line: str) -> dict[str, Placed]:
    step = steps(f"WORKDIR /app\nCOPY {line}")[-1]
    assert isinstance(step, Copy)
    return {entry.inside: entry for entry in Context.open(folder).placed(step)}


@pytest.mark.parametrize(
    ("line", "inside"),
    [
        ("a.txt c.txt", {"/app/c.txt"}),
        ("a.txt .", {"/app/a.txt"}),
        ("/a.txt /x/", {"/x/a.txt"}),
        ("a.txt b.txt /x", {"/x/a.txt", "/x/b.txt"}),
        ("[ab].txt /x", {"/x/a.txt", "/x/b.txt"}),
        ("?.txt /x", {"/x/a.txt", "/x/b.txt"}),
        (r"'\[odd\].txt' /x/", {"/x/[odd].txt"}),
        ('["a.txt", "/x/y z"]', {"/x/y z"}),
        ("data d", {"/app/d", "/app/d/x.csv", "/app/d/deep", "/app/d/deep/y.csv", "/app/d/.hidden", "/app/d/link"}),
        ("data/deep/ d/", {"/app/d", "/app/d/y.csv"}),
    ],
)
def test_what_a_copy_takes_and_where_it_goes(context: Path, line: str, inside: set[str]) -> None:
    assert set(placed(context, line)) == inside


def test_the_whole_context_goes_with_its_modes(context: Path) -> None:
    entries = placed(context, ". .")
    assert entries["/app"] == Placed(".", "/app", "folder", 0o755)
    assert entries["/app/a.txt"] == Placed("a.txt", "/app/a.txt", "file", 0o640)
    assert entries["/app/data/link"].kind == "link"
    assert placed(context, "--chmod=711 data /d")["/d/x.csv"].mode == 0o711
    assert placed(context, "a.txt /x")["/x"].loose
    assert not placed(context, "a.txt /x/")["/x/a.txt"].loose


@pytest.mark.parametrize(
    "source", ["../secret", "data/../../secret", "/../x", "none", "data/none", "data/link", "*.none", "[z-a]"]
)
def test_a_copy_takes_nothing_else(context: Path, source: str) -> None:
    (context.parent / "secret").write_text("secret")
    with pytest.raises(BadInput) as caught:
        placed(context, f"{source} /x")
    assert caught.value.line == 3
    assert ("leaves the build context" in caught.value.what) == (".." in source)


def test_dockerignore_leaves_out_what_docker_leaves_out(context: Path) -> None:
    (context / ".dockerignore").write_text("# remark\n*.txt\n!b.txt\n/data/deep\n**/.hid*\nDockerfile\n")
    assert set(placed(context, ". /")) == {"/", "/b.txt", "/data", "/data/x.csv", "/data/link", "/.dockerignore"}
    with pytest.raises(BadInput, match="dockerignore"):
        placed(context, "a.txt /")


def test_a_fifo_in_the_context_is_refused_if_copied(context: Path) -> None:
    os.mkfifo(context / "data" / "pipe")
    assert set(placed(context, "a.txt /x")) == {"/x"}
    with pytest.raises(BadInput, match="is a fifo"):
        placed(context, "data /x")
