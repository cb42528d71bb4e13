from pathlib import Path
from typing import Any

import pytest

from limner.errors import SettingsError
from limner.server.configuration import AT_START, ServeSettings, read_settings
from limner.server.settings import ServerSettings


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "server.toml"
    text = 'max_k = 3\nmax-batch = 4\nrate = 5.5\ntoken-file = "secret/token"\nstore = "store"\n'
    # with the mark by which some editors begin
    file.write_text(text, encoding="utf-8-sig")
    return file


def test_flag_before_environment_before_file_before_default(config: Path) -> None:
    environment = {"LIMNER_SERVE_MAX_K": "7", "LIMNER_SERVE_MAX_BATCH": "8", "LIMNER_SERVE_DOCS": "true"}
    read = read_settings({"max_k": 9}, environment, config)
    assert (read.max_k, read.max_batch, read.rate, read.docs, read.port) == (9, 8, 5.5, True, 8000)
    # a flag takes back what the others have switched on
    assert not read_settings({"docs": False}, environment, config).docs


def test_paths_in_the_file_lie_beside_it(config: Path) -> None:
    read = read_settings({}, {}, config)
    assert read.token_file == config.parent / "secret/token"
    assert read.store == str(config.parent / "store")
    config.write_text('store = "s3://bucket/store"\naudit = "/log/audit.jsonl"\n')
    read = read_settings({}, {}, config)
    assert (read.store, read.audit) == ("s3://bucket/store", Path("/log/audit.jsonl"))


def test_the_environment_names_the_file(config: Path) -> None:
    assert read_settings({}, {"LIMNER_SERVE_CONFIG": str(config)}).max_k == 3
    # as a compose file sets what is not there
    assert read_settings({}, {"LIMNER_SERVE_CONFIG": "", "LIMNER_SERVE_PORT": ""}) == ServeSettings()
    assert read_settings({}, {"LIMNER_CACHE": "x"}) == ServeSettings()


@pytest.mark.parametrize(
    ("text", "environment", "message"),
    [
        ("max_kk = 3", {}, r"server\.toml: unknown setting max_kk; did you mean max_k\?$"),
        ("zzzzzz = 3", {}, r"unknown setting zzzzzz; docs/cli\.md"),
        ("[limits]\nmax_k = 3", {}, r"server\.toml: unknown setting limits"),
        ("max_k = 0", {}, r"server\.toml: setting 'max_k': .*greater than or equal to 1, got 0"),
        ("max_k = [", {}, r"server\.toml: is no TOML"),
        ("max_k = 1\nmax-k = 2", {}, r"server\.toml: 'max-k' stands there twice"),
        ("config = 'a'", {}, "unknown setting config"),
        ("", {"LIMNER_SERVE_MAX_KK": "3"}, r"the environment: unknown .*did you mean LIMNER_SERVE_MAX_K\?"),
        ("", {"LIMNER_SERVE_PORT": "many"}, r"the environment: setting 'port': .*got 'many'"),
        # a token in the environment is seen by others on the machine
        ("", {"LIMNER_SERVE_TOKEN": "0123456789abcdef"}, "did you mean LIMNER_SERVE_TOKENS?"),
        ("root_path = 'photos'", {}, "root_path"),
    ],
)
def test_refusals(tmp_path: Path, text: str, environment: dict[str, str], message: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=message) as refusal:
        read_settings({}, environment, file)
    assert "\n" not in str(refusal.value)
    assert "0123456789abcdef" not in str(refusal.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        read_settings({}, {}, tmp_path / "missing.toml")


def test_the_settings_of_the_app() -> None:
    made = ServeSettings(
        max_body=2, max_metadata=3, max_answer=1, rate=0.1, root_path="/a/"
    ).server_settings()
    assert (made.max_body, made.max_metadata, made.max_answer) == (2 * 2**20, 3 * 2**10, 2**20)
    assert (made.burst, made.root_path, made.token) == (1, "/a", None)
    assert made.hosts == ("localhost", "127.0.0.1", "::1", "127.0.0.1")


def test_no_setting_of_the_app_is_forgotten() -> None:
    """Each has a flag of its name, or is made of others."""
    made_of_others = {"token", "hosts", "changes", "alerts", "burst", "max_waiting"}
    assert set(ServerSettings.model_fields) - set(ServeSettings.model_fields) == made_of_others
    assert set(AT_START) <= set(ServeSettings.model_fields)


def test_defaults_are_those_of_the_app() -> None:
    # on one's own machine, which the app alone cannot know
    apart = {"hosts", "show_paths"}
    made: dict[str, Any] = ServeSettings().server_settings().model_dump(exclude=apart)
    assert made == ServerSettings().model_dump(exclude=apart)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, True),
        ({"host": "::1"}, True),
        ({"show_paths": False}, False),
        ({"tokens": True}, False),
        ({"token_file": True}, False),
        ({"tokens": True, "host": "0.0.0.0"}, False),
        ({"tokens": True, "host": "0.0.0.0", "show_paths": True}, True),
        ({"uds": Path("limner.sock")}, False),
        ({"behind_proxy": "127.0.0.1"}, False),
    ],
)
def test_paths_are_shown_on_ones_own_machine(tmp_path: Path, given: dict[str, Any], shown: bool) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    files: dict[str, Any] = {name: tmp_path / "token" for name in ("tokens", "token_file") if name in given}
    assert ServeSettings(**{**given, **files}).server_settings().show_paths is shown
