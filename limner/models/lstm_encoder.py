"""Dual encoders with an LSTM, above a table of word vectors or above a BERT that is held fixed."""

from collections.abc import Collection
from typing import Any

from torch import nn

from limner.models.dual_encoder import DualEncoder, DualEncoderSettings
from limner.models.text_encoder import FixedText
from limner.models.text_lstm import TextLSTM, TextLSTMSettings


class LSTMEncoderSettings(DualEncoderSettings):
    """The settings of a dual encoder with an LSTM."""

    text: TextLSTMSettings
    """The LSTM."""

    def parts(self) -> frozenset[str]:
        """As of every network; a BERT stands in place of the word vectors."""
        found = super().parts()
        return found if self.text.bert is None else found - {"words"} | {"bert"}

    def check_stage(self, stage: Any) -> None:
        """A BERT is held fixed, and its states are of sentences that stand at the left."""
        if self.text.bert is None:
            return
        if "bert" not in stage.frozen:
            raise ValueError("the LSTM reads a BERT that is held fixed; add 'bert' to the stage's frozen")
        if stage.position_shift:
            raise ValueError(
                "the states of BERT are of sentences that stand at the left; set position_shift=false"
            )


class LSTMEncoder(DualEncoder):
    """A dual encoder whose text encoder is an LSTM."""

    text: TextLSTM

    def kept_words(self, frozen: Collection[str]) -> FixedText | None:
        """BERT, where the LSTM reads one."""
        return self.text.bert if "bert" in frozen else None

    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """As of every network; a BERT with its table is a part of its own in place of the word vectors."""
        found, bert = super().modules_of_parts(), self.text.bert
        if bert is not None:
            found["text"] = [module for module in self.text.children() if module is not bert]
            found["bert"] = [bert]
            del found["words"]
        return found
