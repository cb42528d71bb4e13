import pytest

from limner.conditions import number_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (10**400, 10**400),
        ("1" + "0" * 400, 10**400),
        ("1" * 5000, None),
        ("1e999", None),
        (float("inf"), None),
        (None, None),
        ([1], None),
        (" 7 ", 7),
    ],
)
def test_what_is_a_number(value: object, expected: float | None) -> None:
    assert number_of(value) == expected
