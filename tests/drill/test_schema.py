from __future__ import annotations

from pathlib import Path

from elastic_dit.drill.schema import DrillReport, FaultReport, Totals, schema_page

DOCS = Path(__file__).parents[2] / "docs"


def test_page_in_docs_is_the_models() -> None:
    # If this fails: python -m elastic_dit.drill.schema > docs/drill-schema.md
    assert (DOCS / "drill-schema.md").read_text(encoding="utf-8") == schema_page()


def test_every_field_is_explained() -> None:
    for model in (DrillReport, FaultReport, Totals):
        for name, info in model.model_fields.items():
            assert info.description, f"{model.__name__}.{name} has no docstring"
