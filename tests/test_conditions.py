from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner import conditions as module
from limner.conditions import Condition
from limner.errors import SettingsError

FACTS = {
    "camera": 3,
    "height": "172",
    "tags": ["red", "long coat"],
    "taken": "2026-11-20T08:15:00",
    "path": "/cam 1/Gate/a[1].jpg",
    "flag": True,
    "odd": "a|b",
    "word": "unknown",
    "things": {"a": 1},
    "none": "",
    "plate": 9007199254740993,
    "code": "007",
    "identity": "007",
    "digits": "1_0",
    "deep": "-2.5",
    "huge": 10**400,
}


@pytest.mark.parametrize(
    "text",
    [
        *("camera=3", "camera=3.0", " camera = 2|3 ", "camera!=4", "camera>2", "camera<=3"),
        *("height>=99", "height<1000", "tags=red", "tags=long coat|x", "tags~*coat"),
        *("taken>=2026-11-20", "taken<2026-11-21", "path~*/gate/*", "path~/CAM*", "flag=true"),
        *(
            "plate=9007199254740993",
            "code=7",
            "identity=007",
            "taken=2026-11-20 08:15",
            "taken<=2026-11-20T08:15",
        ),
        *(
            "taken>=2026-11-20T08:15+05:00",
            "taken!=2026-11-21",
            "path~*[1]*",
            'code="007"',
            "deep>=-3",
            "huge>1",
        ),
        *('odd="a|b"', 'odd=x|"a|b"', "nothing!=1", "camera!=4|5"),
    ],
)
def test_met(text: str) -> None:
    assert Condition.parse(text).holds(FACTS)


@pytest.mark.parametrize(
    "text",
    [
        *("camera=4", "camera=33", "camera!=3", "camera!=2|3", "camera>3", "height<99", "tags=coat"),
        *("tags!=red", "taken<2026-11-20", "path~gate", "nothing=1", "nothing>0", "nothing~*"),
        *("odd=a|b", "camera=", "flag=1"),
        *("word>=170", "flag>0", "things>1", "things<a", "word<170", "none>1", "plate=9007199254740992"),
        *("identity=7", "identity=7.0", 'code="7"', 'camera="3.0"', "taken<2026-11-20 08:15", "path~*[abc]*"),
        *("digits=10", "odd>nan"),
    ],
)
def test_not_met(text: str) -> None:
    assert not Condition.parse(text).holds(FACTS)


@pytest.mark.parametrize("text", ["", "camera", "=3", " = ", "~x"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="NAME=VALUE"):
        Condition.parse(text)


@pytest.mark.parametrize("text", ["camera==3", "height=>170", "height<>170", "name~=a", "camera=!3"])
def test_operators_of_elsewhere_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="expected one of = != < <= > >= ~"):
        Condition.parse(text)
    assert Condition.parse('odd="=>"').holds({"odd": "=>"})


def test_times_must_be_times() -> None:
    with pytest.raises(SettingsError, match="ISO 8601 for 'taken'"):
        Condition.parse("taken>=yesterday")
    assert not Condition.parse("taken>=2026-11-20").holds({"taken": None})


@given(st.text(), st.dictionaries(st.text(), st.none() | st.text() | st.floats() | st.lists(st.integers())))
def test_any_text_is_read_or_refused(text: str, facts: dict[str, object]) -> None:
    try:
        condition = Condition.parse(text)
    except SettingsError:
        return
    assert condition.holds(facts) in (True, False)


def test_times_in_text() -> None:
    assert module.local_time("2026-11-20") == datetime(2026, 11, 20)
    assert module.local_time(" 2026-11-20T08:15:00Z ") == datetime(2026, 11, 20, 8, 15)
    with pytest.raises(ValueError, match="isoformat"):
        module.local_time("last week")


PERIODS = st.one_of(
    st.dates(date(1, 1, 1), date(9999, 12, 30)).map(
        lambda day: (
            day.isoformat(),
            datetime(day.year, day.month, day.day),
            datetime(*(day + timedelta(1)).timetuple()[:3]),
        )
    ),
    st.tuples(st.integers(1, 9998), st.integers(1, 12)).map(
        lambda one: (
            f"{one[0]:04}-{one[1]:02}",
            datetime(*one, 1),
            datetime(one[0] + one[1] // 12, one[1] % 12 + 1, 1),
        )
    ),
    st.integers(1, 9998).map(lambda year: (f"{year:04}", datetime(year, 1, 1), datetime(year + 1, 1, 1))),
)


@given(PERIODS, st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), st.integers(-1, 1), st.booleans())
def test_a_day_a_month_and_a_year_are_all_of_their_time(
    period: tuple[str, datetime, datetime], time: datetime, aside: int, near: bool
) -> None:
    text, start, end = period
    if near:
        # at and beside both ends
        edge = start if aside else end
        time = edge + timedelta(microseconds=aside) if edge > datetime(1, 1, 2) else edge
    within = start <= time < end
    expected = {
        "=": within,
        "!=": not within,
        "<": time < start,
        "<=": time < end,
        ">": time >= end,
        ">=": time >= start,
    }
    found = {one: Condition.parse(f"taken{one}{text}").holds({"taken": time.isoformat()}) for one in expected}
    assert found == expected
    assert not Condition.parse(f"taken={text}").holds({"taken": None})
    # of other names a date is a text
    assert Condition.parse(f"day={text}").holds({"day": text})


@pytest.mark.parametrize("text", ["2026-13", "2026-02-30", "0000", "2026-1-1x", "yesterday"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="2026-11-20T08:15 or 2026-11-20"):
        Condition.parse(f"taken={text}")
