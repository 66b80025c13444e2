"""The documents are tests: README and docs show the program's actual output."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import documents
import pytest
from click.testing import CliRunner

from analyzer.cli import command
from tools.map import draw


@pytest.mark.export
@pytest.mark.slow
@pytest.mark.parametrize("document", documents.DOCUMENTS, ids=lambda path: path.name)
def test_every_console_block_prints_what_the_document_says(
    document: Path, printed: dict[Path, list[documents.Step]], request: pytest.FixtureRequest
) -> None:
    results = printed[document]
    if request.config.getoption("--update-golden"):
        documents.rewrite(document, results)

    stale = [step for step in results if not step.is_fresh]

    assert results
    if not request.config.getoption("--update-golden"):
        assert not stale, "\n\n".join(f"$ {step.command}\n{step.found}" for step in stale)


@pytest.mark.export
@pytest.mark.slow
def test_the_python_blocks_of_the_readme_run(
    printed: dict[Path, list[documents.Step]], workplace: Path
) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```$", documents.DOCUMENTS[0].read_text(), re.MULTILINE | re.DOTALL
    )
    assert printed

    (workplace / "block.py").write_text("\n".join(blocks))
    output = documents.run("python3 block.py", workplace)

    assert ast.literal_eval(output) == {"embeddings": 23_837_184, "encoder": 85_054_464, "pooler": 590_592}


@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_command_has_help_and_stands_in_the_readme(name: str) -> None:
    result = CliRunner().invoke(command, [name, "--help"])

    assert result.exit_code == 0
    assert f"`{name} " in documents.DOCUMENTS[0].read_text()
    assert all(len(line) <= 80 for line in result.output.splitlines())
    assert all(
        parameter.help for parameter in command.commands[name].params if parameter.param_type_name == "option"
    )


PAGES = (
    documents.ROOT / "README.md",
    documents.ROOT / "CONTRIBUTING.md",
    documents.ROOT / "CHANGELOG.md",
    *sorted((documents.ROOT / "docs").rglob("*.md")),
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(documents.ROOT)))
def test_a_page_links_only_to_files_and_headings_that_exist(page: Path) -> None:
    for target in re.findall(r"(?<!\\)\]\((?!http)([^)]+)\)", prose(page)):
        name, _, heading = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert not heading or file.suffix != ".md" or heading in headings(file), target


SOURCES = sorted(
    path
    for folder in ("analyzer", "exporter", "tools", "benchmarks", "tests")
    for path in (documents.ROOT / folder).rglob("*")
    if path.suffix in (".py", ".toml")
)


def test_a_page_or_picture_of_ours_that_the_sources_name_exists() -> None:
    references = {
        (str(path.relative_to(documents.ROOT)), name)
        for path in (*SOURCES, documents.ROOT / "Makefile", documents.ROOT / "CHANGELOG.md")
        for name in re.findall(
            r"(?<![\w/.])docs/[a-z/-]+\.(?:md|svg|png)", path.read_text(encoding="utf-8", errors="replace")
        )
    }

    assert len(references) > 20
    assert not [pair for pair in sorted(references) if not (documents.ROOT / pair[1]).exists()]


def test_the_picture_of_the_house_is_that_of_the_import_contracts() -> None:
    picture = documents.ROOT / "docs" / "images" / "house.svg"

    assert picture.read_text(encoding="utf-8") == draw(), "make map"


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def test_every_benchmark_and_every_target_that_measures_stands_on_its_page() -> None:
    page = (documents.ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    scripts = {path.name for path in (documents.ROOT / "benchmarks").glob("*.py")}
    counting = {
        "faults",
        "hostile",
        "matrix",
        "matrix-wide",
        "memory-matrix",
        "rewrites",
        "subgraphs",
        "tamper",
    }
    measuring = {"bench", "differential", "formulas", "fuzz", "sizes", *counting}
    makefile = (documents.ROOT / "Makefile").read_text(encoding="utf-8")

    assert measuring <= set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert not [name for name in sorted(scripts) if name not in page]
    assert not [name for name in sorted(measuring) if f"`make {name}" not in page]


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d[\d,.]*\d|\d", text))


def test_the_numbers_of_the_evidence_stand_on_the_pages_that_the_targets_write() -> None:
    docs = documents.ROOT / "docs"
    evidence = (docs / "evidence.md").read_text(encoding="utf-8")
    checked = 0
    for row in evidence.splitlines():
        link = re.search(r"\| \[[^]]+\]\(([a-z/-]+\.md)", row)
        if link is None:
            continue
        page = (docs / link[1]).read_text(encoding="utf-8")
        known = numbers(page)
        if link[1] == "evidence/blocks.md":
            known.add(str(sum(int(each) for each in re.findall(r"of (\d+) files", page))))
        elif link[1] == "cost.md":
            exact = re.findall(r"^\| torch\.onnx[^|]*\| \d+ \| (\d+) ", page, re.MULTILINE)
            known.add(f"{sum(map(int, exact)):,}")
        shown = numbers("|".join(row.split("|")[1:3]))
        assert not shown - known, (link[1], shown - known)
        checked += len(shown)
    assert checked > 30


def test_the_evidence_that_the_readme_names_stands_in_the_evidence() -> None:
    readme = (documents.ROOT / "README.md").read_text(encoding="utf-8")
    (claim,) = re.findall(r"\[the evidence\]\(docs/evidence\.md\)\.(.*?)\n- ", readme, re.DOTALL)

    evidence = (documents.ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert len(numbers(claim)) > 8
    assert not numbers(claim) - numbers(evidence)
