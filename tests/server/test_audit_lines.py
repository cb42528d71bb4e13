"""What a line of the audit log tells of a person, whichever field it stands in, is forgotten."""

from typing import Any

import pytest

from limner.server.audit_lines import Said, without

NAME = "Annegret Müller"


@pytest.mark.parametrize(
    "told",
    [
        {"text": f"where is {NAME}"},
        {"where": [f'identity="{NAME}"']},
        {"similar": [NAME]},
        {"unmet": [f'identity="{NAME}"']},
        {"refused": f"{NAME} 280904.jpg: damaged header"},
        {"refused": f"metadata: expected a time under 'taken', got '{NAME}'"},
        {"refused": f"{NAME}: Extra inputs are not permitted"},
        {"after": NAME},
        {"before": NAME},
    ],
    ids=lambda told: next(iter(told)),
)
def test_a_name_is_forgotten_wherever_it_stands(told: dict[str, Any]) -> None:
    line = {"number": 3, "route": "POST /v1/items", "status": 409, **told, "digest": "ab"}
    for text in (NAME, NAME.upper(), "Annegret Mu\u0308ller"):
        bare = without(line, (), Said([text]))
        assert bare == {
            "number": 3,
            "route": "POST /v1/items",
            "status": 409,
            "digest": "ab",
            "forgotten": True,
        }
    # a part of a word is none of it
    assert without(line, (), Said(["Annegret M"])) is line
