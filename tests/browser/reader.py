"""Actions of a person on an open page: entering groups, sorting, searching, switching to dark, pressing keys."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

__all__ = ["Reader", "cells", "plain_count"]

IS_FOCUSED = "(element) => element === document.activeElement"
HEADER = 11
"""Pixels from the top of a treemap to the middle of the first group's header."""


def cells(row: Locator) -> list[str]:
    """Return the texts of a row."""
    return row.locator("td").all_inner_texts()


def plain_count(text: str) -> int:
    """Return the number of a formatted count."""
    return int(text.replace(",", ""))


@dataclass
class Reader:
    """A page, and the actions on it."""

    page: Page

    def __post_init__(self) -> None:
        """Open the tables that replace pictures."""
        self.page.locator("details.twin").evaluate_all("all => all.forEach((each) => { each.open = true; })")

    # the treemap

    @property
    def chart(self) -> Locator:
        """The first treemap."""
        return self.page.locator("figure.chart-tree").first

    @property
    def trail(self) -> list[str]:
        """Groups that were entered in the treemap, from the whole model on."""
        return self.chart.locator("ol.crumbs button").all_inner_texts()

    @property
    def marked(self) -> str:
        """Group that the table below the treemap marks as current."""
        return self.chart.locator("tr[aria-current] button:not(.fold)").inner_text()

    def enter_largest(self) -> list[str]:
        """Click on the header of the largest group, at the top left."""
        self.click_picture(30, HEADER)
        return self.trail

    def click_picture(self, x: float, y: float) -> None:
        """Click at a position of the picture."""
        picture = self.chart.locator(".canvas")
        picture.scroll_into_view_if_needed()
        box = picture.bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + x, box["y"] + y)
        self.page.mouse.click(box["x"] + x, box["y"] + y)

    def leave_to(self, group: str) -> None:
        """Go back to a group of the trail."""
        self.chart.locator("ol.crumbs").get_by_role("button", name=group, exact=True).click()

    # tables

    def grid(self, title: str) -> Locator:
        """Return a long table with its controls."""
        region = self.page.get_by_role("region", name=title, exact=True)
        return self.page.locator("div.grid").filter(has=region)

    def heading(self, title: str, column: str) -> Locator:
        """Return the button in a column's heading."""
        return self.grid(title).get_by_role("columnheader", name=column, exact=True).get_by_role("button")

    def column(self, title: str, column: str) -> list[str]:
        """Return the visible cells of a column."""
        headings = self.grid(title).locator("thead th").all_inner_texts()
        return self.grid(title).locator(f"tbody td:nth-child({headings.index(column) + 1})").all_inner_texts()

    def numbers(self, title: str, column: str) -> list[int]:
        """Return the visible cells of a column of counts, as numbers."""
        return list(map(plain_count, self.column(title, column)))

    def sort(self, title: str, column: str) -> str | None:
        """Click on a column's heading, and return how the column is sorted now."""
        self.heading(title, column).click()
        return self.sorted_by(title, column)

    def sorted_by(self, title: str, column: str) -> str | None:
        """Return the sort order that a column declares."""
        heading = self.grid(title).get_by_role("columnheader", name=column, exact=True)
        return heading.get_attribute("aria-sort")

    def search(self, title: str, text: str) -> str:
        """Type into a table's search, and return the table's state."""
        self.grid(title).get_by_role("searchbox").fill(text)
        return self.state(title)

    def rows(self, title: str) -> int:
        """Return the number of visible rows of a table."""
        return self.grid(title).locator("tbody tr").count()

    def state(self, title: str) -> str:
        """Return a table's text about the visible rows."""
        return self.grid(title).locator(".state").inner_text()

    # the whole page

    @property
    def colours(self) -> tuple[str, str]:
        """Colours of the text and of the background."""
        ink, paper = self.page.locator("body").evaluate(
            "(body) => [getComputedStyle(body).color, getComputedStyle(body).backgroundColor]"
        )
        return ink, paper

    def press_until(self, aim: Locator, key: str = "Tab", most: int = 250) -> None:
        """Press a key until it has focused an element."""
        expect(aim).to_have_count(1)
        for _ in range(most):
            self.page.keyboard.press(key)
            if aim.evaluate(IS_FOCUSED):
                return
        raise AssertionError(f"{aim} is not reached with {key}")
