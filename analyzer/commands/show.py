"""`onnxledger show`: saved reports as a page, without the models that they are of."""

from __future__ import annotations

from pathlib import Path

import click

from analyzer.commands.help import command


@command(
    short="Show saved reports again, without their models.",
    examples=(
        "onnxledger show report.json -o page.html",
        "onnxledger show inspect.json time.json -o page.html",
    ),
)
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...")
@click.option(
    "-o",
    "outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    required=True,
    metavar="PATH",
    help="The page, a .html file. Repeatable.",
)
def show(reports: tuple[str, ...], outputs: tuple[Path, ...]) -> None:
    """Show saved reports as a page, without their models.

    REPORT is what a command wrote as JSON. Each is a section of the page, the
    first gives it its title.
    """
    from analyzer.commands.run import refuse_inputs, write_files
    from analyzer.errors import UsageError
    from analyzer.render import FORMATS, render_saved
    from analyzer.saved import read_any_report

    html = FORMATS["html"]
    for path in outputs:
        if path.suffix != html.suffix:
            raise UsageError(f"{path}: a saved report is shown as a page; end it in {html.suffix}")
    refuse_inputs(outputs, [Path(each) for each in reports])
    html.check()
    page = render_saved(*map(read_any_report, reports))
    write_files([(path, page) for path in outputs])
