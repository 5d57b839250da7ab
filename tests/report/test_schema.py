from __future__ import annotations

from pathlib import Path

from elastic_dit.report import schema
from elastic_dit.report.schema import DemoReport, schema_page

DOCS = Path(__file__).parents[2] / "docs"


def test_page_in_docs_is_the_models() -> None:
    # If this fails: python -m elastic_dit.report.schema > docs/report-schema.md
    assert (DOCS / "report-schema.md").read_text(encoding="utf-8") == schema_page()


def test_every_field_and_model_is_explained() -> None:
    definitions = DemoReport.model_json_schema()["$defs"]
    models = [getattr(schema, name) for name, facts in definitions.items() if "enum" not in facts]
    page = schema_page()
    for model in (DemoReport, *models):
        assert f"## {model.__name__}\n" in page
        for field, info in model.model_fields.items():
            assert info.description, f"{model.__name__}.{field} has no docstring"
            assert f"| `{field}` |" in page
