"""Tests that are skipped where a library is missing."""

import pytest

from limner.errors import SettingsError
from limner.inference.openvino_library import require_openvino


def need_openvino() -> None:
    """Skip a test if OpenVINO is not installed.

    `pytest.importorskip` would import its telemetry too, which copies this process for each report of a conversion.
    """
    try:
        require_openvino()
    except SettingsError as missing:
        pytest.skip(str(missing))
