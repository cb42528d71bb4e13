"""What a line of the audit log tells of a person, whichever field it stands in, is forgotten."""

from typing import Any

import pytest

from limner.server.audit_lines import Said, without

NAME = "Annegret Müller"


def _respelt(value: Any) -> Any:
    """A field in which other blanks part the words of the name."""
    return (
        [_respelt(one) for one in value]
        if isinstance(value, list)
        else value.replace(NAME, "Annegret \u2009\t\nMüller")
    )


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
    blanks = {name: _respelt(value) for name, value in told.items()}
    for text in (NAME, "  Annegret\u00a0\u2003 Müller"):
        assert without(line | blanks, (), Said([text])).get("forgotten")
    # a part of a word is none of it, and blanks alone say nothing
    assert without(line, (), Said([" ", "\u2003"])) is line
    assert without(line, (), Said(["Annegret M"])) is line
