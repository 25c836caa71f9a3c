"""The site, built, served from loopback, and opened page by page in Chromium."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urldefrag, urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, async_playwright

ROOT = Path(__file__).parents[2]
REQUIRED_VARIABLE = "DISKLESS_REQUIRE_CHROMIUM"
CHROMIUM = shutil.which("chromium")
Json = Mapping[str, Any]

WIDE, NARROW = 1280, 390
HEIGHT = 900
TABS = 3
TIMEOUT_MS = 240_000

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

MARGIN = 12
"""How far the padding of an inline element may reach into the margin of the text, in pixels; the margin is larger."""

_LOOK = """MARGIN => {
  const screen = document.documentElement
  const column = document.querySelector(".md-content__inner").getBoundingClientRect().right
  const scrolls = element => element.closest("pre, .picture, .highlight")
  const tooWide = [...document.querySelectorAll(".md-content__inner *")]
    .filter(element => !scrolls(element) && element.getBoundingClientRect().right > column + MARGIN)
    .map(element => `${element.tagName} ${element.textContent.trim().slice(0, 40)}`)
  const clipped = [...document.querySelectorAll(".md-typeset__scrollwrap")]
    .filter(box => box.scrollWidth > box.clientWidth + 1)
    .map(box => `table ${box.textContent.trim().slice(0, 40)}`)
  if (screen.scrollWidth > screen.clientWidth) tooWide.push(`page of ${screen.scrollWidth} px`)
  return [...tooWide, ...clipped]
}"""
"""What is cut off, or makes the page scroll sideways. Code and drawings may scroll in boxes of their own."""

_READ = """() => ({
  links: [...document.querySelectorAll("a[href]")].map(link => link.href),
  anchors: [...document.querySelectorAll("[id]")].map(element => element.id),
  empty: [...document.images].filter(image => !image.complete || !image.naturalWidth).map(image => image.src),
})"""


@dataclass(slots=True)
class OpenedPage:
    """What a browser found on one page. `cut_off` has what does not fit, by the width of the screen."""

    links: Sequence[str]
    anchors: frozenset[str]
    empty_images: Sequence[str]
    cut_off: dict[int, list[str]]


@dataclass(slots=True)
class Visit:
    """A visit of all pages, by address, and what a reader did on one of them.

    Attributes:
        requests: every address that was asked for.
        failures: requests without a good answer.
        complaints: errors and warnings on the console, and errors that no code caught.
        found: titles that the search found for "retention".
        copied: what a copy button put into the clipboard.
        schemes: the page's colours and those of a drawing, at first (the system's), and after each use of the switch.
    """

    base: str
    pages: dict[str, OpenedPage] = field(default_factory=dict)
    requests: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    found: Sequence[str] = ()
    copied: str = ""
    schemes: list[tuple[str, str]] = field(default_factory=list)

    def broken_links(self) -> list[str]:
        """Links within the site that lead to no page, or to no place of a page."""
        links = {(page, link) for page, opened in self.pages.items() for link in opened.links}
        return sorted(f"{page} -> {link}" for page, link in links if self._is_broken(link))

    def _is_broken(self, link: str) -> bool:
        address, anchor = urldefrag(link)
        if not address.startswith(self.base):
            return urlsplit(address).scheme not in {"http", "https"}
        page = self.pages.get(address)
        return page is None or (bool(anchor) and anchor not in page.anchors)


def build(folder: Path) -> None:
    """Build the site in a folder; a warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder from loopback; gives the address of its top."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def visit(folder: Path) -> Visit:
    """Open every page of a built site at both widths."""
    with served(folder) as base:
        result = Visit(base)
        addresses = [base + _address(path.relative_to(folder)) for path in sorted(folder.rglob("*.html"))]
        index = json.loads((folder / "search" / "search_index.json").read_text(encoding="utf-8"))
        pages = [address for address in addresses if not address.endswith("404.html")]
        asyncio.run(_visit(result, pages, {**index, "docs": []}))
    return result


def _address(path: Path) -> str:
    return path.as_posix().removesuffix("index.html")


async def _visit(result: Visit, addresses: Sequence[str], empty_index: Json) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        try:
            context = await _context(browser, result)
            left = list(addresses)
            async with asyncio.TaskGroup() as tabs:
                for _ in range(TABS):
                    tabs.create_task(_tab(context, result, left, empty_index))
            await _use(context, result)
        finally:
            await browser.close()


async def _context(browser: Browser, result: Visit) -> BrowserContext:
    context = await browser.new_context(
        viewport={"width": WIDE, "height": HEIGHT},
        reduced_motion="reduce",
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(TIMEOUT_MS)
    context.on("request", lambda request: result.requests.add(request.url))
    context.on("requestfailed", partial(_note_failure, result))
    context.on("response", partial(_note_answer, result))
    context.on("console", partial(_note_message, result))
    context.on("weberror", lambda error: result.complaints.append(str(error.error)))
    return context


def _note_failure(result: Visit, request: Request) -> None:
    if request.failure != "net::ERR_ABORTED":  # the tab went on to the next page
        result.failures.append(f"{request.url}: {request.failure}")


def _note_answer(result: Visit, answer: Response) -> None:
    if answer.status >= 400:
        result.failures.append(f"{answer.url}: {answer.status}")


def _note_message(result: Visit, message: ConsoleMessage) -> None:
    if message.type in {"error", "warning"}:
        result.complaints.append(message.text)


async def _tab(context: BrowserContext, result: Visit, left: list[str], empty_index: Json) -> None:
    page = await context.new_page()
    # each page makes the index of the whole site when it is opened; the search is tried out once, in `_use`
    await page.route("**/search_index.json", lambda route: route.fulfill(json=empty_index))
    while left:
        address = left.pop()
        await page.goto(address)
        read = await page.evaluate(_READ)
        cut_off = {}
        for width in (WIDE, NARROW):
            await page.set_viewport_size({"width": width, "height": HEIGHT})
            cut_off[width] = await page.evaluate(_LOOK, MARGIN)
        result.pages[address] = OpenedPage(read["links"], frozenset(read["anchors"]), read["empty"], cut_off)
    await page.close()


async def _use(context: BrowserContext, result: Visit) -> None:
    """Search, copy, and switch between light and dark, as a reader would."""
    page = await context.new_page()
    await page.goto(result.base)
    await page.locator(".highlight button").first.click()
    await page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
    result.copied = await page.evaluate("navigator.clipboard.readText()")
    for _ in range(4):
        result.schemes.append(await _colours(page))
        await page.locator("label[for^=__palette]:visible").first.click()
    await page.locator(".md-search__input").press_sequentially("retention")
    titles = page.locator(".md-search-result__item :is(h1, h2)")
    await titles.first.wait_for()
    result.found = await titles.all_text_contents()


async def _colours(page: Page) -> tuple[str, str]:
    read = """() => [
      document.body.getAttribute("data-md-color-scheme"),
      getComputedStyle(document.querySelector(".picture rect")).fill,
    ]"""
    scheme, fill = await page.evaluate(read)
    return scheme, fill
