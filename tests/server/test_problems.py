import pytest

from limner.server.problems import TITLES, RefusedError, declared, problem, refused, without_paths


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("/srv/the store: keeps no maps", "keeps no maps"),
        ("metadata of '/srv/the store/a b.jpg': expected", "metadata of 'a b.jpg': expected"),
        ("built with run /home/ann/runs/a; use that", "built with run a; use that"),
        ("height/width of 3/4, see docs/x.md", "height/width of 3/4, see docs/x.md"),
        ("nothing at /", "nothing at /"),
    ],
)
def test_folders_are_left_out(message: str, told: str) -> None:
    assert without_paths(message, ["/srv", "/srv/the store"]) == told


def test_problems() -> None:
    response = problem(409, "half of a pair: \ud800", headers={"X": "y"})
    assert response.status_code == 409
    assert response.headers["x"] == "y"
    assert response.media_type == "application/problem+json"
    assert refused(RefusedError(503, "later", {"Retry-After": "1"})).headers["retry-after"] == "1"
    assert problem(418, "other").status_code == 418


def test_each_status_has_a_type_of_its_own() -> None:
    assert len({kind for kind, _ in TITLES.values()}) == len(TITLES)
    assert declared(404, 401).keys() == {401, 404}
