"""The settings of `limner serve`, from flags, the environment and a file.

`ServeSettings` is the one place that names, bounds and describes them: the flags of the command are made of its fields
(`limner.cli.setting_options`), and so are the names in the environment and in the file.

A flag wins over `LIMNER_SERVE_NAME`, that wins over the file, and that over the default. The layers are put together
anew when the server gets SIGHUP.
"""

import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr

from limner.errors import DataError, SettingsError
from limner.server.settings import ServerSettings
from limner.settings import Settings
from limner.text_files import read_text

PREFIX = "LIMNER_SERVE_"
"""Beginning of the names of settings in the environment."""

CONFIG = f"{PREFIX}CONFIG"
"""Name of the file in the environment."""

AT_START = (
    "host",
    "port",
    "uds",
    "root_path",
    "behind_proxy",
    "request_seconds",
    "answer_seconds",
    "max_connections",
    "drain_seconds",
    "log_format",
    "log_level",
)
"""Settings that a running server keeps until it is started again."""


class ServeSettings(Settings):
    """All settings of `limner serve`; the first line of each is the help of its flag."""

    store: str | None = None
    """Folder of the store, or s3://BUCKET/FOLDER."""

    host: str = "127.0.0.1"
    """Address to listen on; any but this machine's own needs a token."""

    port: int = Field(default=8000, ge=0, le=65535)
    """Port; 0 = one that is free."""

    uds: Path | None = None
    """Socket file to listen on in place of a port; its owner and group may connect."""

    root_path: str = Field(default="", pattern=r"^(/[A-Za-z0-9._~-]+)*/?$")
    """Path below which a reverse proxy shows the server, such as /photos."""

    token_file: Path | None = None
    """File with a token that clients may send; it has all rights."""

    tokens: Path | None = None
    """File of named tokens with rights, made by `limner token add`."""

    run: Path | None = None
    """Run folder of the model, if it has moved; or an export of it, which needs no torch."""

    allow_changes: bool = False
    """Let clients delete pictures, add them with --uploads, and save alerts with --watch."""

    uploads: Path | None = None
    """Folder for pictures that clients add; made if it is not there."""

    audit: Path | None = None
    """File that gets a line of JSON for each request: who, when, what, how many."""

    audit_days: int | None = Field(default=None, ge=1)
    """Remove lines of the audit log that are older than so many days."""

    audit_fsync: bool = False
    """Answer only when the line is on the disk, so that it outlives a power cut."""

    watch: bool = False
    """Keep the store what its folders are: index new files, follow moved ones, take out deleted ones."""

    kept_days: float = Field(default=30.0, ge=0)
    """With --watch: days for which the picture of a deleted file waits for it; then it is erased."""

    show_paths: bool | None = None
    """Tell the paths of pictures; if not given, without a token and a proxy, where only this machine asks."""

    keep_metadata: bool = False
    """Send pictures as the files that they are, with EXIF, XMP and IPTC data, the place among them."""

    thumbnail_seconds: int = Field(default=0, ge=0)
    """Seconds for which browsers may keep thumbnails, on their disks, too; 0 = they keep none."""

    max_k: int = Field(default=100, ge=1)
    """Most pictures in one answer."""

    max_rerank: int = Field(default=10_000, ge=0)
    """Most pictures that a query may have re-ranked."""

    query_seconds: float = Field(default=30, ge=0.1)
    """Seconds that a query may take."""

    rate: float = Field(default=50, ge=0)
    """Requests a second that one client may send; 0 = no limit."""

    max_body: int = Field(default=32, ge=1)
    """Largest body of a request, in MiB."""

    max_pixels: int | None = Field(default=None, ge=1)
    """Most pixels that are decoded of a picture that a client sends; as everywhere if not given."""

    max_metadata: int = Field(default=16, ge=1)
    """Largest metadata of a picture that a client adds, in KiB of JSON."""

    max_answer: int = Field(default=4, ge=1)
    """MiB after which a list of pictures, hits or sentences ends early."""

    request_seconds: float = Field(default=30, ge=0.1)
    """Seconds that a request may take to arrive, body included."""

    answer_seconds: float = Field(default=60, ge=0.1)
    """Seconds that a client may take to read an answer."""

    max_connections: int = Field(default=800, ge=1)
    """Most open connections; further ones are refused."""

    max_batch: int = Field(default=64, ge=1)
    """Most queries that are answered together; 1 = each on its own."""

    approximate_from: int | None = Field(default=None, ge=1)
    """From so many pictures on, a graph or lists propose what is scored (needs limner[approximate])."""

    probe_interval: float = Field(default=5, ge=0.1)
    """Seconds between two probes of store and model; /readyz tells of them."""

    probe_limit: float | None = Field(default=None, ge=0.1)
    """Seconds after which a probe counts as failed; without it, 10 more than --query-seconds."""

    drain_seconds: float = Field(default=0, ge=0)
    """Seconds in which a server that stops still takes requests; /readyz says 503."""

    log_format: Literal["text", "json"] = "text"
    """Lines of the log on stderr: text, or JSON for a program that collects them."""

    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """Least level of a line in the log; info has a line for each request."""

    behind_proxy: str | None = None
    """Address of a reverse proxy, or unix with --uds; its X-Forwarded-For names the client."""

    docs: bool = False
    """Show the API at /docs; the page loads scripts from the web."""

    cpu: bool = False
    """Use the CPU even where there is an accelerator."""

    @property
    def needs_token(self) -> bool:
        """True if clients must send a token."""
        return self.token_file is not None or self.tokens is not None

    @property
    def _own_machine(self) -> bool:
        """True if those who ask are on the machine of the pictures: here a port without a token is on loopback."""
        return not self.needs_token and self.behind_proxy is None and self.uds is None

    def server_settings(self) -> ServerSettings:
        """Make the settings of the app; the token is read from its file.

        Raises `SettingsError` for settings that contradict each other, and for a token that cannot be read.
        """
        # here, since it needs the extra `server`, and `limner serve --help` does without
        from limner.server.access import LOCAL, is_loopback, read_token
        from limner.server.listening import UNIX

        if self.uds is not None and (both := {"host", "port"} & self.model_fields_set):
            raise SettingsError(
                f"--uds: a server listens on a socket file or on a port; leave {sorted(both)[0]} out"
            )
        if self.behind_proxy == UNIX and self.uds is None:
            raise SettingsError(
                "--behind-proxy unix: only with --uds FILE; a proxy before a port has an address"
            )
        if self.behind_proxy not in (None, UNIX) and self.uds is not None:
            raise SettingsError(
                f"--behind-proxy {self.behind_proxy}: clients of --uds have no address; write --behind-proxy unix"
            )
        # an error and no warning: whoever reaches the port sees the pictures
        if not self.needs_token and not is_loopback(self.host):
            raise SettingsError(
                f"--host {self.host}: other machines may reach it, which needs --token-file FILE or --tokens FILE; "
                "`openssl rand -hex 24 > FILE` makes one token, `limner token add FILE NAME` a file of them"
            )
        # --uploads says where to and --allow-changes whether, since that allows deletions too
        if self.uploads is not None and not self.allow_changes:
            raise SettingsError("--uploads: clients add pictures only with --allow-changes")
        if self.audit is None and (self.audit_days is not None or self.audit_fsync):
            raise SettingsError("--audit-days, --audit-fsync: there is no audit log without --audit FILE")
        token: SecretStr | None = None if self.token_file is None else read_token(self.token_file)
        same = self.model_dump(include=set(ServerSettings.model_fields) & set(ServeSettings.model_fields))
        return ServerSettings.parse(
            {
                **same,
                "token": token,
                # without a token, only this machine's names: a foreign page may point its own here (DNS rebinding)
                "hosts": () if self.needs_token else (*LOCAL, self.host),
                "changes": self.allow_changes,
                "alerts": self.allow_changes,
                "show_paths": self._own_machine if self.show_paths is None else self.show_paths,
                "root_path": self.root_path.rstrip("/"),
                "max_body": self.max_body * 2**20,
                "max_metadata": self.max_metadata * 2**10,
                "max_answer": self.max_answer * 2**20,
                # at least 1 where there is no limit
                "burst": max(1, round(2 * self.rate)),
            }
        )


def read_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None = None
) -> ServeSettings:
    """Put the settings of flags, of the environment and of a file together.

    `config` is the file; None = the one that the environment names, if any. Raises `SettingsError`, which names where
    a wrong setting stands and the nearest known name.
    """
    given = {name[len(PREFIX) :]: value for name, value in environment.items() if name.startswith(PREFIX)}
    # a compose file with ${NAME:-} sets an empty one
    given = {name: value for name, value in given.items() if value}
    named = given.pop("CONFIG", None)
    names = [field.upper() for field in ServeSettings.model_fields]
    for name in given:
        _expect_known(name, [*names, "CONFIG"], "the environment", PREFIX)
    file = config or (Path(named) if named else None)
    layers = {} if file is None else _layer(_of_file(file), str(file))
    layers |= _layer({name.lower(): value for name, value in given.items()}, "the environment")
    layers |= _layer(flags, "the command line")
    return ServeSettings.parse(layers)


def _of_file(file: Path) -> dict[str, Any]:
    try:
        read = tomllib.loads(read_text(file, may_be_empty=True))
    except DataError as error:
        raise SettingsError(str(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: is no TOML: {error}") from None
    values = {}
    for written, value in read.items():
        # as a flag is written, or as a field is
        name = written.replace("-", "_")
        _expect_known(name, list(ServeSettings.model_fields), str(file))
        if name in values:
            raise SettingsError(f"{file}: {written!r} stands there twice")
        values[name] = _beside(file, name, value)
    return values


def _beside(file: Path, name: str, value: Any) -> Any:
    """Read a path of the file as relative to the file's own folder: a service has no folder where it was started."""
    is_path = Path in getattr(ServeSettings.model_fields[name].annotation, "__args__", ())
    if isinstance(value, str) and (is_path or (name == "store" and "://" not in value)):
        return str(file.absolute().parent / value)
    return value


def _expect_known(name: str, known: Collection[str], where: str, prefix: str = "") -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    # all of them would fill a screen
    hint = f"did you mean {prefix}{near[0]}?" if near else "docs/cli.md has all of them"
    raise SettingsError(f"{where}: unknown setting {prefix}{name[:80]}; {hint}")


def _layer(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check the values of one place, so that an error can say which it is."""
    try:
        return ServeSettings.parse(values).model_dump(exclude_unset=True)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from None
