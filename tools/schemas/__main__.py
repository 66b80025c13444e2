"""`python -m tools.schemas`: write the package's JSON Schemas, and the tables of the pages, from the records."""

from __future__ import annotations

import json

from analyzer.documents.kinds import DOCUMENTS
from tools.schemas.generate import FOLDER, generate
from tools.schemas.page import PAGES, rewrite


def main() -> None:
    """Write every schema and every table."""
    for name in DOCUMENTS:
        text = json.dumps(generate(name), indent=1, ensure_ascii=False) + "\n"
        (FOLDER / f"{name}.schema.json").write_text(text, encoding="utf-8")
    for page in PAGES:
        page.write_text(rewrite(page), encoding="utf-8")


if __name__ == "__main__":
    main()
