"""While tests run, wrong types and lengths of axes that disagree are errors in limner itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jaxtyping
import numpy as np
import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from limner.errors import SettingsError
from limner.evaluation.ties import row_norms
from limner.losses.sdm import SDMLoss
from limner.store.entry import key_of

if TYPE_CHECKING:
    from limner.errors import LimnerError

# what the import hook calls
checked = jaxtyping.jaxtyped(typechecker=beartype)


@checked
def plain(count: int, error: "LimnerError | None" = None) -> str:
    return "" if count else count  # type: ignore[return-value]


@checked
def summed(
    one: Float[Tensor, "rows dim"], others: list[Float[Tensor, "rows dim"]]
) -> Float[Tensor, "rows dim"]:
    del others
    return one[:-1]


@checked
def yielded(count: int) -> Iterator[int]:
    yield count


@checked
def rows_of(table: Float[Tensor, "rows dim"], other: Float[Tensor, "rows dim"]) -> Iterator[Tensor]:
    yield from (table, other)


@checked
class Wide:
    width = 3

    @checked
    def forward(self, rows: Float[Tensor, "rows {self.width}"]) -> Float[Tensor, "rows {self.width}"]:
        return rows[:, 1:] if rows[0, 0] else rows


@checked
@dataclass
class Held:
    rows: Float[np.ndarray, "rows 2"]


def test_in_limner() -> None:
    with pytest.raises(TypeCheckError):
        key_of(3)  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError):
        row_norms(torch.ones(3))
    loss, groups = SDMLoss(), torch.arange(3)
    loss(torch.eye(3), torch.eye(3), groups)
    # kinds and shapes of a loss are checked without type checks, too
    for images, numbers in ((torch.eye(3), groups.float()), (torch.eye(3)[:2], groups)):
        with pytest.raises(SettingsError):
            loss(images, torch.eye(3), numbers)


def test_each_kind_of_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert plain(1) == ""
    # a name that only type checkers import
    assert plain(1, "anything") == ""  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError):
        plain("one")  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError):
        plain(0)
    with pytest.raises(TypeCheckError):
        summed(torch.ones(3, 2), [torch.ones(2, 3)])
    with pytest.raises(TypeCheckError):
        summed(torch.ones(3, 2), [torch.ones(3, 2)])
    assert "rows=3" in capsys.readouterr().out
    with pytest.raises(TypeCheckError):
        list(yielded("one"))  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError):
        rows_of(torch.ones(3, 2), torch.ones(2, 2))
    wide: Any = Wide()
    assert wide.forward(torch.zeros(2, 3)).shape == (2, 3)
    for wrong in (torch.zeros(2, 4), torch.ones(2, 3)):
        with pytest.raises(TypeCheckError):
            wide.forward(wrong)
    assert len(Held(np.zeros((1, 2))).rows) == 1
    with pytest.raises(TypeCheckError):
        Held(np.zeros((1, 3)))


def test_calls_do_not_share_their_axes() -> None:
    for rows in (2, 3):
        with pytest.raises(TypeCheckError):
            summed(torch.ones(rows, 2), [torch.ones(rows, 2)])
    assert plain.__annotations__["error"] == "LimnerError | None"
