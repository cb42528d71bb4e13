"""LanceDB, imported when it is needed and without the HTTP client that it brings.

`import lancedb` takes 1.3 s of CPU time, of which 0.7 s is the `__init__` of `lance_namespace_urllib3_client`, the
generated client of a remote catalogue service. LanceDB itself needs only that package's data types, which are modules
of their own. So the package is put into `sys.modules` with its real path and spec, but its `__init__` runs only when
somebody asks for a name of it. Nothing is replaced: whoever wants the client gets it. Of the data types, pydantic
builds the validators when one is first used, which saves 0.17 s of the 0.7 that are left. LanceDB's methods are marked
as overriding without a look at bytecode and signatures, which saves another 0.15 s.

Alternatives that lost: `importlib.util.LazyLoader` runs the `__init__` at the first attribute, and the import of a
submodule asks for `__path__`; a stand-in for the data types saves 0.15 s more, and lies.
"""

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict

_CLIENT = "lance_namespace_urllib3_client"
_importing = threading.Lock()


def lancedb() -> Any:
    """Import and return the module `lancedb`."""
    # two threads at once would put the package off twice, and each would run the `__init__` of its own copy
    with _importing:
        # if either was imported before, there is nothing left to save
        if "lancedb" not in sys.modules and _CLIENT not in sys.modules:
            _put_off(_CLIENT)
        with _validators_later(), _overrides_unchecked():
            return importlib.import_module("lancedb")


@contextmanager
def _validators_later() -> Iterator[None]:
    """Have pydantic build the validators of classes that are made meanwhile when they are first used."""
    # inherited; a class that another thread makes meanwhile works as well
    before = BaseModel.model_config
    BaseModel.model_config = ConfigDict(**{**before, "defer_build": True})
    try:
        yield
    finally:
        BaseModel.model_config = before


@contextmanager
def _overrides_unchecked() -> Iterator[None]:
    """Have `overrides.override` mark methods and no more: that they override something is for LanceDB's own tests."""
    try:
        overrides: Any = importlib.import_module("overrides")
    except ImportError:  # a LanceDB that does without it
        yield
        return

    def mark(method: Any) -> Any:
        # what EnforceOverrides asks for
        method.__override__ = True
        return method

    before, overrides.override = overrides.override, mark
    try:
        yield
    finally:
        overrides.override = before


# Each commit leaves 26 KB there, and LanceDB's own limit is 1 GB: a server rose by 85 MB in ten minutes of adds and
# deletes (docs/log/2026-11-24.md). An open table reads a few hundred KB of them.
CACHED = 32 * 2**20
"""Bytes of LanceDB's metadata that are kept in memory, and of its indices, of which limner makes none."""


@cache
def session() -> Any:
    """The caches that all connections of this process share."""
    return lancedb().Session(index_cache_size_bytes=CACHED, metadata_cache_size_bytes=CACHED)


def _put_off(name: str) -> None:
    """Register a package without running its `__init__`, which then runs at the first name that the package lacks."""
    spec = find_spec(name)
    if spec is None or spec.loader is None:  # a LanceDB that does without it
        return
    package = module_from_spec(spec)
    run = spec.loader.exec_module

    def missing(attribute: str) -> Any:
        # the import system asks for names such as __file__ that a module may lack
        if attribute.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        _run_once(package, run)
        return getattr(package, attribute)

    package.__getattr__ = missing  # type: ignore[method-assign]
    sys.modules[name] = package


def _run_once(package: ModuleType, run: Any) -> None:
    del package.__dict__["__getattr__"]
    run(package)
