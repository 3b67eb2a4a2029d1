"""Asking GitHub: what costs nothing, what is waited for, what is tried again, and what is never believed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter

import github_kit as kit
from assay.errors import BadInput
from assay.judge.github import client
from assay.judge.github.client import AnswerCache, CachedAnswer, GitHub, Gone, Moved, Unread, parse_answer
from assay.judge.github.reading import read_list
from assay.judge.running import RunStopped, Stop
from github_kit import FaultyGithub, GithubFault, sent, status

TOKEN = "ghp_secretsecretsecret"
HOME = f"/repos/{kit.REPOSITORY}"
ISSUES = TypeAdapter(list[client.IssueAnswer])


@contextmanager
def asking(server: FaultyGithub, place: Path, notices: list[tuple[str, float]] | None = None, **more: Any) -> Iterator[GitHub]:
    """A client of the server, with what it keeps in a folder."""
    heard = notices if notices is not None else []
    options: dict[str, Any] = {"attempts": 3, "delay": 0.01} | more
    stop = options.pop("stop", Stop())
    with GitHub(
        server.url, TOKEN, AnswerCache(place / "cache"), stop, tell=lambda why, seconds: heard.append((why, seconds)), **options
    ) as github:
        yield github


@pytest.fixture
def server() -> Iterator[FaultyGithub]:
    with kit.serving(kit.facts([kit.issue(number, 50) for number in range(1, 251)])) as faulty:
        yield faulty


def everything(github: GitHub) -> list[int]:
    return [issue.number for issue in read_list(github, f"{HOME}/issues", ISSUES, lambda issue: issue.number, {"state": "all"})]


def test_what_has_not_changed_costs_nothing(server: FaultyGithub, tmp_path: Path) -> None:
    with asking(server, tmp_path) as github:
        first = github.get(HOME)
        left = server.left
        again = github.get(HOME)
    assert (first.kept, again.kept, again.body) == (False, True, first.body)
    assert server.left == left
    assert server.asked[1][1]["If-None-Match"].startswith('W/"')
    with asking(server, tmp_path) as another:
        assert another.get(HOME).kept
        server.repository["name"] = "acme/renamed"
        server.repository["formerly"] = [kit.REPOSITORY]
        assert b"acme/renamed" in another.get(HOME).body
    assert server.left == left - 1 - 1  # the redirect, and the answer


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"garbage", b'{"digest":1}\nx', b"[" * 100_000])
def test_what_is_kept_and_damaged_is_dropped(server: FaultyGithub, tmp_path: Path, damage: bytes) -> None:
    with asking(server, tmp_path) as github:
        body = github.get(HOME).body
        (path,) = (tmp_path / "cache").iterdir()
        path.write_bytes(damage)
        assert github.get(HOME).body == body
        assert "If-None-Match" not in server.asked[-1][1]
        for old, new in ((b"acme", b"evil"), (b'"name": "widget"', b'"name": "gadget"')):
            assert old in path.read_bytes()
            path.write_bytes(path.read_bytes().replace(old, new))
            assert github.get(HOME).body == body
            assert "If-None-Match" not in server.asked[-1][1]
        assert github.get(HOME).kept


def test_what_is_kept_is_for_its_owner_alone_and_does_not_grow(tmp_path: Path) -> None:
    first = AnswerCache(tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    for name in "abc":
        first.put(name, "json", CachedAnswer("etag", b"body\nof it", None))
    second = AnswerCache(tmp_path / "cache")
    assert second.get("a", "json") == CachedAnswer("etag", b"body\nof it", None)
    assert second.get("a", "star+json") is None
    second.put("d", "json", CachedAnswer("etag", b"", "next"))
    second.drop_unused()
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_several_pages_are_one_list(server: FaultyGithub, tmp_path: Path) -> None:
    with asking(server, tmp_path) as github:
        assert everything(github) == list(range(1, 251))
        left = server.left
        assert everything(github) == list(range(1, 251))
    assert server.left == left
    assert len(server.asked) == 12  # three pages, four times: each reading is read until two agree


def change(server: FaultyGithub, act: Callable[[], object], after: int, times: int = 1) -> None:
    """Changes the facts when one more page has been asked for after some."""

    def now(_handler: Any) -> bool:
        act()
        return False

    server.faults.append(GithubFault("/issues", now, times=times, after=after))


@pytest.mark.parametrize("after", range(1, 9))
def test_a_list_that_changes_once_while_it_is_read_is_read_again(server: FaultyGithub, tmp_path: Path, after: int) -> None:
    change(server, lambda: server.repository["issues"].pop(0), after)
    with asking(server, tmp_path) as github:
        numbers = everything(github)
    gone = len(server.asked) > after  # else it was read before
    assert numbers == list(range(2, 251)) if gone else list(range(1, 251))


def test_a_list_that_never_stands_still_is_an_error(server: FaultyGithub, tmp_path: Path) -> None:
    change(server, lambda: server.repository["issues"].pop(0), after=1, times=1000)
    with asking(server, tmp_path) as github, pytest.raises(Unread, match="the list changes while it is read"):
        everything(github)


def test_an_entry_that_is_there_twice_is_no_list(server: FaultyGithub, tmp_path: Path) -> None:
    server.repository["issues"].append(kit.issue(7, 50))
    with asking(server, tmp_path) as github, pytest.raises(Unread, match="the list changes while it is read"):
        everything(github)


def test_a_full_page_that_is_kept_does_not_hide_the_next_one(server: FaultyGithub, tmp_path: Path) -> None:
    del server.repository["issues"][100:]
    with asking(server, tmp_path) as github:
        assert everything(github) == list(range(1, 101))
        server.repository["issues"].append(kit.issue(101, 50))
        assert everything(github) == list(range(1, 102))


def test_a_list_has_a_bound(server: FaultyGithub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.judge.github.reading.MOST_PAGES", 2)
    with asking(server, tmp_path) as github, pytest.raises(Unread, match="the list has more than 2 pages"):
        everything(github)


@pytest.mark.parametrize(
    ("act", "trouble"),
    [
        (status(502), "GitHub answered 502"),
        (sent(b"[", 5000), "the connection broke"),
        (sent(b"", 5000), "the connection broke"),
        (lambda handler: setattr(handler, "close_connection", True), "the connection broke"),
    ],
    ids=["502", "half", "nothing", "closed"],
)
def test_trouble_is_tried_again_and_then_is_an_error(
    server: FaultyGithub, tmp_path: Path, act: Callable[[Any], None], trouble: str
) -> None:
    notices: list[tuple[str, float]] = []
    server.faults.append(GithubFault("", act, times=2))
    with asking(server, tmp_path, notices) as github:
        assert b"acme/widget" in github.get(HOME).body
    assert [trouble in why for why, _ in notices] == [True, True]
    assert [seconds for _, seconds in notices] == [0.01, 0.04]
    server.faults = [GithubFault("", act)]
    with asking(server, tmp_path) as github, pytest.raises(Unread, match=trouble):
        github.get(f"{HOME}/issues")


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (status(403, "API rate limit exceeded", x_ratelimit_remaining="0", x_ratelimit_reset=str(1762041600 + 1)), None),
        (status(429, retry_after="1"), 1),
        (status(403, "You have exceeded a secondary rate limit", retry_after="1"), 1),
    ],
)
def test_a_rate_limit_is_waited_for(
    server: FaultyGithub, tmp_path: Path, answer: Callable[[Any], None], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=waits.append, monotonic=lambda: sum(waits)))
    notices: list[tuple[str, float]] = []
    server.world.now = server.world.now.fromtimestamp(1762041600, server.world.now.tzinfo)
    server.faults.append(GithubFault("", answer, times=5))  # more often than an error is tried again
    with asking(server, tmp_path, notices) as github:
        github.get(HOME)
    assert len(notices) == 5
    assert all("GitHub was asked too much" in why for why, _ in notices)
    assert {wait for _, wait in notices} == {seconds or 2}
    assert sum(waits) == pytest.approx(sum(wait for _, wait in notices))


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (status(429), 60),
        (status(403, "You have exceeded a secondary rate limit"), 60),
        (status(429, retry_after="9999"), 9999),
        (status(403, x_ratelimit_remaining="0", x_ratelimit_reset="1762048800"), 7201),
    ],
)
def test_who_is_asked_to_wait_too_long_leaves_it_for_another_run(
    server: FaultyGithub, tmp_path: Path, answer: Callable[[Any], None], seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 59.0)
    server.world.now = server.world.now.fromtimestamp(1762041600, server.world.now.tzinfo)
    server.faults.append(GithubFault("", answer))
    with asking(server, tmp_path) as github, pytest.raises(Unread, match=f"the run would have to wait {seconds} s more"):
        github.get(HOME)
    assert len(server.asked) == 1


def test_a_refusal_that_is_no_rate_limit_is_not_waited_for(server: FaultyGithub, tmp_path: Path) -> None:
    for act, error, trouble in (
        (status(403, "Resource not accessible"), Unread, "GitHub answered 403: 'Resource not accessible'"),
        (status(422, "pagination is limited"), Unread, "GitHub answered 422: 'pagination is limited'"),
        (sent(b"[" * 9999, code=400), Unread, "GitHub answered 400"),
        (status(404), Gone, "there is nothing there"),
        (status(410), Gone, "there is nothing there"),
        (status(401), BadInput, "GitHub refuses the token"),
        (status(304), Unread, "GitHub answered 304"),
    ):
        server.faults = [GithubFault("", act, times=1)]
        with asking(server, tmp_path) as github, pytest.raises(error, match=trouble):
            github.get(HOME, fresh=True)
    assert len(server.asked) == 7


def test_a_server_that_hangs_is_given_up(server: FaultyGithub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SECONDS", 0.2)
    server.faults.append(GithubFault("", kit.hang))
    began = time.monotonic()
    with asking(server, tmp_path) as github, pytest.raises(Unread, match="GitHub does not answer"):
        github.get(HOME)
    assert time.monotonic() - began < 30


def test_an_answer_that_drips_is_given_up(server: FaultyGithub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(handler: Any) -> None:
        sent(b"", 1_000_000)(handler)
        while not handler.server.released.wait(0.02):
            handler.wfile.write(b" ")

    monkeypatch.setattr(client, "WHOLE_SECONDS", 0.2)
    server.faults.append(GithubFault("", drip))
    with asking(server, tmp_path, attempts=1) as github, pytest.raises(Unread, match="the answer took longer than"):
        github.get(HOME)


def test_an_answer_without_end_is_not_read(server: FaultyGithub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flood(handler: Any) -> None:
        sent(b"", 10**12)(handler)
        while not handler.server.released.is_set():
            handler.wfile.write(b" " * 65536)

    monkeypatch.setattr(client, "BODY_BYTES", 1_000_000)
    server.faults.append(GithubFault("", flood))
    with asking(server, tmp_path) as github, pytest.raises(Unread, match="the answer is larger than 1000000 bytes"):
        github.get(HOME)
    assert len(server.asked) == 1


def test_redirects_stay_on_the_host_and_end(server: FaultyGithub, tmp_path: Path) -> None:
    with kit.serving(kit.facts()) as elsewhere:
        for location, trouble in (
            (f"{elsewhere.url}{HOME}", "GitHub answered with an address outside its API"),
            ("//evil.example.com/x", "GitHub answered with an "),
            ("http://[", "GitHub answered with an "),
            ("", "GitHub answered with an "),
            (f"{server.url.replace('//', '//me:you@')}/x", "GitHub answered with an address outside its API"),
            (f"{server.url}{HOME}", "is redirected again and again"),
        ):
            server.faults = [GithubFault("", status(301, location=location))]
            with asking(server, tmp_path) as github, pytest.raises(Unread, match=trouble):
                github.get(HOME)
        assert elsewhere.asked == []
    server.faults = [GithubFault("", status(301, location=f"{server.url}/repositories/{kit.REPOSITORY_ID}"), times=1)]
    with asking(server, tmp_path) as github:
        assert b"acme/widget" in github.get(HOME).body
    server.faults = [GithubFault("", status(301, location=f"{server.url}/x"), times=1)]
    with asking(server, tmp_path) as github, pytest.raises(Moved):
        github.get(f"{HOME}/issues/1", follow=False)


def test_a_next_page_elsewhere_is_not_asked_for(server: FaultyGithub, tmp_path: Path) -> None:
    def away(handler: Any) -> None:
        handler.reply(200, b"[]", {"Link": '<http://127.0.0.1:1/next>; rel="next"'})

    server.faults.append(GithubFault("", away))
    with asking(server, tmp_path) as github, pytest.raises(Unread, match="GitHub answered with an address outside its API"):
        everything(github)


def test_an_answer_without_a_date_is_not_believed(server: FaultyGithub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for date in ("yesterday", ""):
        monkeypatch.setattr(kit.SERVER.Handler, "date_time_string", lambda *_, date=date: date)
        with asking(server, tmp_path) as github, pytest.raises(Unread, match="the answer has no date"):
            github.get(HOME)


@pytest.mark.parametrize(
    "body", [b"", b"[", b"{}", b"null", b'[{"id": 1}]', b'[{"id": "1", "number": 1}]', b"[" * 100_000, b'"' + b"x" * 1000 + b'"']
)
def test_an_answer_that_is_not_github_s_is_refused(body: bytes) -> None:
    with pytest.raises(Unread, match="the answer is not whole, or not GitHub's") as refused:
        parse_answer(ISSUES, body, "/repos/x/y/issues")
    assert len(str(refused.value)) < 500


def test_the_token_goes_to_github_and_nowhere_else(server: FaultyGithub, tmp_path: Path) -> None:
    notices: list[tuple[str, float]] = []
    server.faults.append(GithubFault("", status(500, TOKEN), times=2))
    with asking(server, tmp_path, notices) as github:
        assert TOKEN not in repr(github) + repr(vars(github))
        github.get(HOME)
    assert {headers["Authorization"] for _, headers in server.asked} == {f"Bearer {TOKEN}"}
    assert TOKEN not in repr(notices)
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes()
    for wrong in ("a b", "a\nb", "ü"):
        with pytest.raises(BadInput, match="GITHUB_TOKEN") as refused:
            GitHub(server.url, wrong, None, Stop(), attempts=1, delay=1, tell=lambda *_: None)
        assert wrong not in str(refused.value)


def test_who_asks_for_the_end_is_heard_while_it_waits(server: FaultyGithub, tmp_path: Path) -> None:
    stop = Stop()
    server.faults.append(GithubFault("", status(429, retry_after="600")))

    def asked(_why: str, _seconds: float) -> None:
        stop.asked += 1

    with GitHub(server.url, "", None, stop, attempts=1, delay=1, tell=asked) as github, pytest.raises(RunStopped):
        github.get(HOME)
    with GitHub(server.url, "", None, stop, attempts=1, delay=1, tell=asked) as github, pytest.raises(RunStopped):
        github.get(HOME)
    assert len(server.asked) == 1
    assert "Authorization" not in server.asked[0][1]


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(BadInput, match=r"pip install 'assay\[github\]'"):
        GitHub("http://127.0.0.1:1", "", None, Stop(), attempts=1, delay=1, tell=lambda *_: None)
