"""A page on disk -> the page in headless Chromium, without a network, with all complaints of the browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

__all__ = ["DESKTOP", "NAMES", "PHONE", "VARIABLE", "Visit", "Visitor", "find_chromium", "visitor"]

VARIABLE = "ONNXLEDGER_CHROMIUM"
"""Environment variable with the executable, if it has another name or place."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
DESKTOP, PHONE = ViewportSize(width=1280, height=900), ViewportSize(width=360, height=740)

_REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} forbids ${event.blockedURI}`);
});
"""


@dataclass
class Visit:
    """One page, opened in a separate profile."""

    page: Page
    context: BrowserContext
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings of the console, uncaught exceptions, dialogs, breaches of the page's policy."""
    requests: list[str] = field(default_factory=list)
    """Every requested address, including the page's own."""

    def listen(self) -> None:
        """Record complaints and requests from now on."""
        self.page.on("console", self._record_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dismiss)

    def _record_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _dismiss(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


Visitor = Callable[..., Visit]
"""`visitor(path, size=DESKTOP, scheme="light", scripts=True, calm=False)` opens a page."""


def find_chromium() -> str | None:
    """Return the executable to use; None if there is none.

    A name in the environment variable is used even if it does not exist, so that a mistake is noticed.
    """
    configured = os.environ.get(VARIABLE)
    return shutil.which(configured) if configured else next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def visitor(executable: str) -> Iterator[Visitor]:
    """Start a browser and yield a function that opens pages; at the end the browser is closed with all pages."""
    with sync_playwright() as playwright:
        # Chromium refuses to run as root with its sandbox, as in containers.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=executable, args=["--disable-gpu", *flags])
        try:
            yield lambda path, **how: _visit(browser, path, **how)
        finally:
            browser.close()


def _visit(
    browser: Browser,
    path: Path,
    *,
    size: ViewportSize = DESKTOP,
    scheme: Literal["light", "dark"] = "light",
    scripts: bool = True,
    calm: bool = False,
) -> Visit:
    context = browser.new_context(
        viewport=size,
        color_scheme=scheme,
        java_script_enabled=scripts,
        reduced_motion="reduce" if calm else "no-preference",
        offline=True,
        locale="en-US",
        timezone_id="UTC",
    )
    context.set_default_timeout(60_000)  # for a machine that is busy
    if scripts:
        context.add_init_script(_REPORT_VIOLATIONS)
    visit = Visit(context.new_page(), context)
    visit.listen()
    visit.page.goto(path.resolve().as_uri())
    return visit
