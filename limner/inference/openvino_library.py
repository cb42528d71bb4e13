"""OpenVINO, imported without its telemetry."""

import sys
from typing import Any

from limner.errors import SettingsError, install_hint


def require_openvino() -> Any:
    """The library, without its telemetry. Raises `SettingsError` if it is not installed."""
    # it tells Google Analytics of its import and of each conversion, and takes a stub where this module is missing
    there = sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        import openvino
    except ImportError:
        raise SettingsError(
            f"engine 'openvino': it is not installed; {install_hint('openvino')}, or take engine 'torch'"
        ) from None
    finally:
        if there is None:
            del sys.modules["openvino_telemetry"]
    return openvino
