"""The timing of a generation loop -> its JSON document; times are milliseconds."""

from __future__ import annotations

from analyzer.documents import generation as records
from analyzer.documents.time import TimeDocument, TimeModel
from analyzer.formats.json.parts import head, utf8
from analyzer.formats.json.time import document_timing
from analyzer.records import replace
from analyzer.timing.generation import GenerationTiming, StepTiming, size_of
from analyzer.timing.inputs.roles import Roles
from analyzer.timing.record import Point, Timing


def document_generation(report: GenerationTiming) -> records.GenerationDocument:
    """Return the document of `time` on a generation loop."""
    loop, first = report.loop, report.components[0].timing
    token = report.token_ms
    return records.GenerationDocument(
        **head(report.stamp),
        model=TimeModel(path=utf8(report.path), parameters=report.parameters, file_bytes=report.file_nbytes),
        provider=first.settings.provider,
        device=first.environment.device,
        loop=records.GenerationLoop(
            batch=loop.batch,
            source=loop.source,
            source_decided_by=loop.source_reason,
            prompt=loop.prompt,
            prompt_decided_by=utf8(loop.prompt_reason),
            new_tokens=loop.new_tokens,
            caches=list(loop.caches),
        ),
        first_token_ms=report.first_token_ms,
        token_ms=records.TokenMs(first=token[0], last=token[1]),
        tokens_per_second=report.tokens_per_second,
        total_ms=report.total_ms,
        components=[_component(each, report) for each in report.components],
    )


def _component(component: StepTiming, report: GenerationTiming) -> records.GenerationComponent:
    spent = report.spent_ms(component)
    return records.GenerationComponent(
        component=utf8(component.name),
        step=component.step,
        times=report.times(component.step),
        total_ms=spent,
        share=None if spent is None or not report.total_ms else spent / report.total_ms,
        points=[_point(point, component.timing) for point in component.timing.points],
    )


def _point(point: Point, timing: Timing) -> records.GenerationPoint:
    single = document_timing(replace(timing, axis=None, points=(replace(point, value=None),), stamp=None))
    assert isinstance(single, TimeDocument)
    return records.GenerationPoint(cache=size_of(point.axes, Roles.PAST), timing=single)
