"""The pages in Chromium: nothing goes wrong or to elsewhere, nothing moves, and nobody is kept out.

Each page is loaded in both widths, light and dark, with and without JavaScript. `make test` does this with some pages of each
season, `make full` with all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from assay.competition import open_competition
from assay.imports import ImportOptions, competition, tables
from assay.scheme.model import EpochClock
from assay.serve import report
from assay.serve.season import read
from pages_kit import ARGUMENTS, AXE, CHROMIUM, EXAMPLES, ORIGIN, PagesOfSeason, Visit, large, visiting, with_ledger

WIDTHS, COLOURS = (1280, 390), ("light", "dark")
SOME = {
    "season": "index.html participant-borealis.html participant-fjord.html validators.html epoch.html tasks.html start.html "
    "live.html task-train-spam-filter.html",
    "window": "index.html",
    "verdicts": "index.html bounty.html",
    "large": "index.html board-2.html participant-m000.html",
    "terminal-bench": "index.html",
}
"""Season → the pages of it that every run looks at."""
BARRIERS = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.target.join(" ")).slice(0, 3).join("; ")}`);
}"""
FOCUSED = """() => {
  const all = [...document.querySelectorAll("*")];
  const now = document.activeElement;
  const style = getComputedStyle(now);
  const box = now.getBoundingClientRect();
  return {
    at: all.indexOf(now), body: now === document.body, what: now.outerHTML.slice(0, 80),
    outlined: (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1) || now.matches(".skip"),
    seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
  };
}"""
TABS = 60
PICTURES = Path(__file__).parents[2] / "build" / "pages"
DARK = "() => matchMedia('(prefers-color-scheme: dark)').matches"
MOST = 40
"""Pages of a season that the long run looks at."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.fail("chromium is not installed: `tools/system tests` installs it")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PagesOfSeason]:
    """Seasons that are drawn once."""
    return {}


def site(name: str, sites: dict[str, PagesOfSeason], request: pytest.FixtureRequest) -> PagesOfSeason:
    """The pages of a season, made when they are first wanted."""
    if name not in sites:
        place = request.getfixturevalue("tmp_path_factory").mktemp(name) / name
        folder = EXAMPLES / name
        if name == "season":
            folder = with_ledger(EXAMPLES / "season", place)
        elif name == "large":
            folder = large(place)
        elif name == "terminal-bench":
            source: Path = request.getfixturevalue("shared") / "data" / "terminal-bench-core-0.1.1.trials.csv"
            competition(tables.read(source), place, scheme="term-challenge", options=ImportOptions(count_as="leaderboard"))
            folder = open_competition(place).path
        sites[name] = PagesOfSeason(read(folder))
    return sites[name]


def keep(visit: Visit, season: str, name: str) -> None:
    """Keep a picture of the page that a visit shows, for people to look at: `build/pages/WIDTH-COLOUR/SEASON-PAGE.png`."""
    size = visit.page.viewport_size
    place = PICTURES / f"{0 if size is None else size['width']}-{'dark' if visit.page.evaluate(DARK) else 'light'}"
    place.mkdir(parents=True, exist_ok=True)
    visit.page.screenshot(path=place / f"{season}-{name.removesuffix('.html')}.png", full_page=True)


def looked_at(visit: Visit, season: str, names: list[str], *, script: bool) -> None:
    """Load pages; nothing may go wrong, stand out of the page or move. Of two seasons a picture is kept."""
    for name in names:
        visit.open(name)
        wide = visit.page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} is {wide} px wider than the window"
        if script:
            assert visit.page.evaluate("() => window.shifted") == 0, name
        if season in ("season", "verdicts") and name in SOME[season].split():
            keep(visit, season, name)
    assert visit.wrong == []


@pytest.mark.parametrize("season", SOME)
@pytest.mark.parametrize(
    ("width", "colour", "script"),
    [
        (1280, "light", True),
        (390, "dark", False),
        *(
            pytest.param(width, colour, script, marks=pytest.mark.full)
            for width in WIDTHS
            for colour in COLOURS
            for script in (True, False)
        ),
    ],
)
@pytest.mark.slow
def test_nothing_goes_wrong_or_elsewhere(
    season: str,
    width: int,
    colour: Any,
    script: bool,
    browser: Browser,
    sites: dict[str, PagesOfSeason],
    request: pytest.FixtureRequest,
) -> None:
    drawn = site(season, sites, request)
    every = request.node.get_closest_marker("full") is not None
    with visiting(browser, drawn, width=width, script=script, color_scheme=colour) as visit:
        names = dict.fromkeys([*SOME[season].split(), *(drawn.names[:MOST] if every else ())])
        looked_at(visit, season, [*names], script=script)


@pytest.mark.parametrize("season", SOME)
@pytest.mark.parametrize(
    ("width", "colour"),
    [
        (390, "light"),
        *(pytest.param(width, colour, marks=pytest.mark.full) for width in WIDTHS for colour in COLOURS),
    ],
)
@pytest.mark.slow
def test_axe_finds_no_barrier(
    season: str, width: int, colour: Any, browser: Browser, sites: dict[str, PagesOfSeason], request: pytest.FixtureRequest
) -> None:
    if not AXE.exists():
        pytest.fail("axe is not installed: `tools/contracts` installs it")
    drawn = site(season, sites, request)
    every = request.node.get_closest_marker("full") is not None
    kinds = {re.sub(r"^(participant|task|board)-.*", r"\1", name): name for name in reversed(drawn.names)}
    with visiting(browser, drawn, width=width, color_scheme=colour, bypass_csp=True) as visit:
        for name in {*SOME[season].split(), *(kinds.values() if every else ())}:
            visit.open(name)
            visit.page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
            visit.page.evaluate(AXE.read_text())
            assert visit.page.evaluate(BARRIERS) == [], name


@pytest.mark.parametrize("name", ["index.html", "participant-borealis.html", "validators.html"])
@pytest.mark.slow
def test_the_keyboard_reaches_everything_in_the_order_of_reading(
    name: str, browser: Browser, sites: dict[str, PagesOfSeason], request: pytest.FixtureRequest
) -> None:
    with visiting(browser, site("season", sites, request), width=390, reduced_motion="reduce") as visit:
        visit.open(name)
        reachable = visit.page.locator(
            "main a[href]:visible, main button:visible, main input:visible, main summary:visible"
        ).count()
        before, reached = -1, 0
        for _ in range(TABS):
            visit.page.keyboard.press("Tab")
            focused = visit.page.evaluate(FOCUSED)
            if focused["body"] or focused["at"] <= before:
                break
            assert focused["outlined"], focused["what"]
            assert focused["seen"], focused["what"]
            reached += 'class="skip"' not in focused["what"]
            before = focused["at"]
        outside = visit.page.locator("header.top a").count()
        scrolled = visit.page.locator("main [tabindex='0']").count()
        assert reached >= min(TABS - 1, reachable + outside), (reached, reachable, outside, scrolled)


@pytest.mark.slow
def test_a_board_is_searched_and_sorted_on_the_page(
    browser: Browser, sites: dict[str, PagesOfSeason], request: pytest.FixtureRequest
) -> None:
    with visiting(browser, site("season", sites, request)) as visit:
        visit.open("index.html")
        first = visit.page.locator("[data-board] tbody tr:first-child .c-who a")
        assert first.inner_text() == "Atlas Shell"
        weight = visit.page.get_by_role("button", name="Weight")
        weight.focus()
        visit.page.keyboard.press("Enter")
        visit.page.keyboard.press("Enter")
        assert first.inner_text() == "Ember"
        assert visit.page.locator("th[aria-sort]").get_attribute("data-sort") == "weight"
        assert visit.page.locator("th[aria-sort=ascending]").count() == 1
        assert visit.page.locator(".tie").first.is_hidden()
        visit.page.get_by_role("button", name="#").click()
        assert first.inner_text() == "Atlas Shell"
        assert visit.page.locator(".tie").first.is_visible()
        assert visit.wrong == []
    drawn = site("large", sites, request)
    with visiting(browser, drawn) as visit:
        visit.open("index.html")
        visit.page.get_by_label("Find").fill("Miner 29")
        shown = visit.page.locator("[data-board] tbody tr:visible")
        assert 0 < shown.count() < 20
        assert visit.page.locator("[data-count]").inner_text() == f"{shown.count()} of 256 on this page"
        visit.open("participant-m000.html")
        visit.page.get_by_label("Filter").fill("capture-07")
        assert visit.page.locator(".matrix tbody tr[data-k]:visible").count() == 1
        assert visit.page.locator(".matrix tbody .group:visible").count() == 1
        assert visit.wrong == []


@pytest.mark.slow
def test_a_board_in_one_file_is_searched_and_sorted_without_a_server(
    browser: Browser, sites: dict[str, PagesOfSeason], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    report.write_file(site("large", sites, request).season, tmp_path / "board.html")
    wrong: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(f"file://{tmp_path}/board.html")
    rows = page.locator("[data-board] tbody tr:visible")
    assert rows.count() == 300
    page.get_by_label("Find").fill("Miner 29")
    assert (rows.count(), page.locator("[data-count]").inner_text()) == (rows.count(), f"{rows.count()} of 300")
    assert 0 < rows.count() < 20
    page.get_by_label("Find").fill("")
    page.get_by_role("button", name="Weight").click()
    page.get_by_role("button", name="Weight").click()
    assert int(page.locator("[data-board] tbody tr:first-child .c-rank").inner_text()) > 256
    assert wrong == []
    page.close()


@pytest.mark.slow
def test_a_board_counts_down_to_the_next_epoch(
    browser: Browser, sites: dict[str, PagesOfSeason], request: pytest.FixtureRequest
) -> None:
    season = site("season", sites, request).season
    clock = EpochClock.model_construct(every=7 * 86_400, start=datetime(2026, 11, 2, tzinfo=UTC))
    scheme = season.scheme.model_copy(update={"epoch": clock})
    inputs = replace(season.settlement.inputs, scheme=scheme)
    served = replace(season, address=f"{ORIGIN}/s", settlement=replace(season.settlement, inputs=inputs))
    for script in (True, False):
        with visiting(browser, PagesOfSeason(served), script=script) as visit:
            visit.open("index.html")
            countdown = visit.page.locator("time[data-until]").inner_text()
            assert re.fullmatch(
                r"in (\d+ d \d+ h|\d+ h \d+ min|\d+ min \d\d s)" if script else r"\d+ \w{3} \d{4}, 00:00 UTC", countdown
            )
            assert not script or visit.page.evaluate("() => window.shifted") == 0
            assert visit.wrong == []


@pytest.mark.slow
def test_a_service_is_asked_without_a_script(
    browser: Browser, sites: dict[str, PagesOfSeason], request: pytest.FixtureRequest
) -> None:
    drawn = PagesOfSeason(site("large", sites, request).season, query={})
    with visiting(browser, drawn, script=False) as visit:
        visit.open("index.html")
        visit.page.get_by_role("link", name="Weight").click()
        assert visit.page.url == f"{ORIGIN}/index.html?sort=weight"
        visit.page.get_by_role("link", name="Weight").click()
        assert visit.page.url == f"{ORIGIN}/index.html?sort=weight&order=asc"
        assert visit.page.locator("th[aria-sort=ascending][data-sort=weight]").count() == 1
        visit.page.get_by_role("link", name="Next").first.click()
        assert visit.page.locator(".pager span").first.inner_text().startswith("257–")
        visit.page.get_by_label("Find").fill("m123")
        visit.page.get_by_role("button", name="Go").click()
        assert visit.page.locator("[data-board] tbody .c-who a").all_inner_texts() == ["Miner 123"]
        visit.page.get_by_role("link", name="Show all").click()
        assert visit.page.locator("[data-board] tbody tr").count() == 256
        assert visit.wrong == []


@pytest.mark.slow
def test_a_page_is_printed_and_seen_in_forced_colours(
    browser: Browser, sites: dict[str, PagesOfSeason], request: pytest.FixtureRequest
) -> None:
    drawn = site("season", sites, request)
    with visiting(browser, drawn, width=720) as visit:
        for name in ("index.html", "participant-borealis.html", "epoch.html"):
            visit.open(name)
            visit.page.emulate_media(media="print")
            assert visit.page.locator(".top nav").is_hidden()
            assert visit.page.locator("h1").is_visible()
            assert visit.page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            cut = visit.page.evaluate(
                "() => [...document.querySelectorAll('.scroll')].map((part) => getComputedStyle(part).overflowX)"
            )
            assert {*cut} <= {"visible"}, "what scrolls on a screen is whole on paper"
            visit.page.emulate_media(media="screen", forced_colors="active")
            current = visit.page.evaluate(
                "() => [...document.querySelectorAll('.top nav a')].map((link) => getComputedStyle(link).borderBottomColor)"
            )
            assert len({*current}) == (2 if name != "participant-borealis.html" else 1), "the page shown is marked"
            outlines = visit.page.evaluate(
                "() => [...document.querySelectorAll('main .dot, main .v')].map((dot) => getComputedStyle(dot).stroke)"
            )
            canvas = visit.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
            assert canvas not in outlines
            visit.page.emulate_media(media="screen", forced_colors="none")
        assert visit.wrong == []
