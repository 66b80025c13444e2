"""The documents are tests: what README and docs print is what the program prints."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import documents
import pytest
from click.testing import CliRunner

from analyzer.cli import command


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

    groups, terms = map(ast.literal_eval, output.splitlines())
    assert groups == {"embeddings": 23_837_184, "encoder": 85_054_464, "pooler": 590_592}
    assert terms == {"embeddings": 23_837_184, "blocks": 85_054_464, "pooler": 590_592}


def test_the_readme_lists_every_module() -> None:
    listed = set(
        re.findall(r"^\| `((?:analyzer|exporter)/[\w/.]+)`", documents.DOCUMENTS[0].read_text(), re.MULTILINE)
    )

    modules = {
        str(path.relative_to(documents.ROOT))
        for package in ("analyzer", "exporter")
        for path in (documents.ROOT / package).glob("*.py")
        if not path.name.startswith("__")
    }
    folders = {
        f"{path.parent.relative_to(documents.ROOT)}/"
        for package in ("analyzer", "exporter")
        for path in (documents.ROOT / package).glob("*/__init__.py")
    }

    assert listed == modules | folders


@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_command_has_help_and_stands_in_the_readme(name: str) -> None:
    result = CliRunner().invoke(command, [name, "--help"])

    assert result.exit_code == 0
    assert f"`{name} " in documents.DOCUMENTS[0].read_text()
    assert all(len(line) <= 80 for line in result.output.splitlines())
    assert all(
        parameter.help for parameter in command.commands[name].params if parameter.param_type_name == "option"
    )


def test_documents_name_only_files_that_exist() -> None:
    for document in (documents.ROOT / "README.md", *sorted((documents.ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
