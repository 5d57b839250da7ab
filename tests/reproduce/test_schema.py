from __future__ import annotations

from pathlib import Path

from elastic_dit.reproduce import disagfusion_schema, predictor_schema, schema
from elastic_dit.reproduce.disagfusion_schema import DisagFusionReport
from elastic_dit.reproduce.predictor_schema import PredictorReport
from elastic_dit.reproduce.schema import DditReport, MixedReport, schema_page
from elastic_dit.simulate import plan
from elastic_dit.simulate.plan import PlanReport

DOCS = Path(__file__).parents[2] / "docs"


def test_page_in_docs_is_the_models() -> None:
    # If this fails: python -m elastic_dit.reproduce.schema > docs/simulation-schema.md
    assert (DOCS / "simulation-schema.md").read_text(encoding="utf-8") == schema_page()


def test_every_field_and_model_is_explained() -> None:
    page = schema_page()
    for report, home in (
        (DditReport, schema),
        (MixedReport, schema),
        (DisagFusionReport, disagfusion_schema),
        (PredictorReport, predictor_schema),
        (PlanReport, plan),
    ):
        names = report.model_json_schema()["$defs"]
        for model in (report, *(getattr(home, name) for name in names)):
            assert f"## {model.__name__}\n" in page
            for field, info in model.model_fields.items():
                assert info.description, f"{model.__name__}.{field} has no docstring"
                assert f"| `{field}` |" in page
