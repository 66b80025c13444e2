"""What a person does with an open page: enters groups, sorts, searches, turns the light off, presses keys."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

__all__ = ["Reader", "cells", "plain_count"]

IS_FOCUSED = "(element) => element === document.activeElement"
HEADER = 11
"""Pixels from the top of a treemap to the middle of the first group's header."""


def cells(row: Locator) -> list[str]:
    """The texts of a row."""
    return row.locator("td").all_inner_texts()


def plain_count(text: str) -> int:
    """A count as it is shown -> the number."""
    return int(text.replace(",", ""))


@dataclass
class Reader:
    """A page, and the hands on it."""

    page: Page

    def __post_init__(self) -> None:
        """Open the tables that stand for pictures."""
        self.page.locator("details.twin").evaluate_all("all => all.forEach((each) => { each.open = true; })")

    # the treemap

    @property
    def chart(self) -> Locator:
        """The first treemap."""
        return self.page.locator("figure.chart-tree").first

    @property
    def trail(self) -> list[str]:
        """Where the treemap stands: the groups that were entered, from the whole model on."""
        return self.chart.locator("ol.crumbs button").all_inner_texts()

    @property
    def marked(self) -> str:
        """The group that the table below the treemap marks as the one that is shown."""
        return self.chart.locator("tr[aria-current] button:not(.fold)").inner_text()

    def enter_largest(self) -> list[str]:
        """Click on the header of the largest group, which stands at the top left."""
        self.click_picture(30, HEADER)
        return self.trail

    def click_picture(self, x: float, y: float) -> None:
        """Press the mouse's button at a place of the picture."""
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
        """A long table with what belongs to it."""
        region = self.page.get_by_role("region", name=title, exact=True)
        return self.page.locator("div.grid").filter(has=region)

    def heading(self, title: str, column: str) -> Locator:
        """The button in a column's heading."""
        return self.grid(title).get_by_role("columnheader", name=column, exact=True).get_by_role("button")

    def column(self, title: str, column: str) -> list[str]:
        """The cells of a column that are shown."""
        headings = self.grid(title).locator("thead th").all_inner_texts()
        return self.grid(title).locator(f"tbody td:nth-child({headings.index(column) + 1})").all_inner_texts()

    def numbers(self, title: str, column: str) -> list[int]:
        """The same of counts."""
        return list(map(plain_count, self.column(title, column)))

    def sort(self, title: str, column: str) -> str | None:
        """Click on a column's heading; says how it is sorted now."""
        self.heading(title, column).click()
        return self.sorted_by(title, column)

    def sorted_by(self, title: str, column: str) -> str | None:
        """How a column says that it is sorted."""
        heading = self.grid(title).get_by_role("columnheader", name=column, exact=True)
        return heading.get_attribute("aria-sort")

    def search(self, title: str, text: str) -> str:
        """Type into a table's search; says what it answers."""
        self.grid(title).get_by_role("searchbox").fill(text)
        return self.state(title)

    def rows(self, title: str) -> int:
        """How many rows of a table are shown."""
        return self.grid(title).locator("tbody tr").count()

    def state(self, title: str) -> str:
        """Which rows a table says that it shows."""
        return self.grid(title).locator(".state").inner_text()

    # the whole page

    @property
    def colours(self) -> tuple[str, str]:
        """Of the text and of what is behind it."""
        ink, paper = self.page.locator("body").evaluate(
            "(body) => [getComputedStyle(body).color, getComputedStyle(body).backgroundColor]"
        )
        return ink, paper

    def press_until(self, aim: Locator, key: str = "Tab", most: int = 250) -> None:
        """Press a key until it has led to an element."""
        expect(aim).to_have_count(1)
        for _ in range(most):
            self.page.keyboard.press(key)
            if aim.evaluate(IS_FOCUSED):
                return
        raise AssertionError(f"{aim} is not reached with {key}")
