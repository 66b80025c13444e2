"""A survey of many models -> its JSON document."""

from __future__ import annotations

from analyzer.account.ledger import Evidence, Group, Role
from analyzer.documents import inspect as inspect_records
from analyzer.documents import survey as survey_records
from analyzer.formats.json.parts import Fields, head, utf8
from analyzer.reports import SurveyReport
from analyzer.survey import Row, Unreadable


def document_survey(report: SurveyReport) -> survey_records.SurveyDocument:
    """Return the document of `inspect` on many models."""
    survey = report.survey
    return survey_records.SurveyDocument(
        **head(report.stamp),
        models=list(map(_surveyed, survey.rows)),
        totals=survey_records.SurveyTotals(
            models=len(survey.rows),
            readable=len(survey.readable),
            parameters=survey.parameters,
            stored_elements=survey.stored_elements,
            stored_bytes=survey.stored_nbytes,
            file_bytes=survey.file_nbytes,
        ),
    )


def _surveyed(row: Row) -> survey_records.Surveyed | survey_records.Unreadable:
    if isinstance(row, Unreadable):
        return survey_records.Unreadable(path=utf8(row.path), readable=False, error=utf8(row.error))
    roles = {group.name: group for group in row.roles}
    return survey_records.Surveyed(
        path=utf8(row.path),
        readable=True,
        nodes=row.nodes,
        totals=inspect_records.Totals(
            parameters=row.parameters,
            parameters_at_least=row.parameters_at_least,
            parameters_at_most=row.parameters_at_most,
            parameters_unsettled=list(row.unsettled),
            opaque_elements=row.opaque_elements,
            basis={evidence: row.basis.get(evidence, 0) for evidence in Evidence},
            stored_tensors=row.stored_tensors,
            stored_elements=row.stored_elements,
            stored_bytes=row.stored_nbytes,
            shared_bytes=row.shared_nbytes,
            duplicated_bytes=0,  # a row is one file
            wasted_bytes=row.wasted_nbytes,
            file_bytes=row.file_nbytes,
        ),
        roles={
            role: inspect_records.RoleTotals(**_sums(group), parameters=group.parameters)
            for role in Role
            for group in (roles.get(role.value) or Group(role.value),)
        },
        dtypes=[
            inspect_records.DtypeTotals(dtype=group.name, **_sums(group))
            for group in sorted(row.dtypes, key=lambda group: group.name)
        ],
        findings=[
            survey_records.SurveyFinding(
                id=finding.id, severity=finding.severity, message=finding.message, bytes=finding.nbytes
            )
            for finding in row.findings
        ],
    )


def _sums(group: Group) -> Fields:
    return {"tensors": group.tensors, "stored_elements": group.stored_elements, "bytes": group.nbytes}
