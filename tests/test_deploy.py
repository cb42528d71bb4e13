"""The examples of `deploy/`, read by the programs that they are for."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import limner
from benchmarks.slow_clients import behind, program_of, temporary_folders
from limner.data.records import Dataset
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.configuration import read_settings
from limner.server.settings import ServerSettings
from tests.server.running import running
from tests.server.serving import COUNT, toy_engine

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
MONITORING = DEPLOY / "monitoring"
TEAM = (ROOT / "docs" / "team.md").read_text(encoding="utf-8")
GIVEN = {
    "LIMNER_HOST": "localhost",
    "LIMNER_DATA": "/data",
    "LIMNER_PICTURES": "/pictures",
    "LIMNER_ETC": "/etc/l",
}
"""What compose.yaml needs in the environment."""
JSON = {"Content-Type": "application/json"}


def tool(name: str) -> str:
    """A program, or the end of the test that needs it."""
    found = program_of(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_the_settings_are_known() -> None:
    read = read_settings({}, {}, DEPLOY / "server.toml")
    assert (read.root_path, read.behind_proxy, read.needs_token) == ("/photos", "127.0.0.1", True)


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    program = tool("systemd-analyze")
    # it looks for the program, which no test installs
    text = (DEPLOY / "limner.service").read_text()
    if _version(program) < 253:
        # the type came with 253
        text = text.replace("Type=notify-reload", "Type=notify")
    unit = tmp_path / "limner.service"

    def verified(text: str) -> str:
        unit.write_text(text.replace("/opt/limner/bin/limner", shutil.which("true") or "/bin/true"))
        done = subprocess.run(
            [program, "verify", "--man=no", unit], capture_output=True, text=True, check=False
        )
        return "\n".join(line for line in done.stderr.splitlines() if unit.name in line)

    assert verified(text) == ""
    assert "Typ" in verified(text.replace("Type=", "Typ="))


def test_systemd_reads_the_units_of_the_page(tmp_path: Path) -> None:
    """The unit for a systemd of before 253, and that of a second store, as docs/team.md makes them."""
    older, second = (
        line.replace("/etc/systemd/system", str(tmp_path))
        for line in TEAM.splitlines()
        if "limner.service" in line and line.startswith("sed ")
    )
    shutil.copy(DEPLOY / "limner.service", tmp_path)
    for command in (older, second):
        subprocess.run(["sh", "-euc", command], check=True)
    program = tool("systemd-analyze")
    texts = [(tmp_path / f"{name}.service").read_text() for name in ("limner", "limner-second")]
    for name, text in zip(("limner", "limner-second"), texts, strict=True):
        assert "\nType=notify\nExecReload=/bin/kill -HUP $MAINPID\n" in text
        unit = tmp_path / f"{name}.service"
        unit.write_text(text.replace("/opt/limner/bin/limner", shutil.which("true") or "/bin/true"))
        done = subprocess.run(
            [program, "verify", "--man=no", unit], capture_output=True, text=True, check=False
        )
        assert [line for line in done.stderr.splitlines() if unit.name in line] == []
    first, other = ({line for line in text.splitlines() if "limner" in line} for text in texts)
    assert other - first == {
        "ExecStart=/opt/limner/bin/limner serve --config /etc/limner/second.toml",
        "RuntimeDirectory=limner-second",
        "LogsDirectory=limner-second",
    }


def test_nginx_reads_its_file_with_a_certificate(tmp_path: Path) -> None:
    program, openssl = tool("nginx"), tool("openssl")
    made = "req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout pictures.key -out pictures.pem"
    subprocess.run([openssl, *made.split()], cwd=tmp_path, check=True, capture_output=True)
    text = (DEPLOY / "nginx.conf").read_text()
    # whoever runs the tests may have no right to these
    for name, ours in (
        ("/etc/ssl/pictures.pem", f"{tmp_path}/pictures.pem"),
        ("/etc/ssl/private/pictures.key", f"{tmp_path}/pictures.key"),
        ("/run/nginx.pid", f"{tmp_path}/pid"),
        ("/var/log/nginx/error.log", f"{tmp_path}/errors"),
        ("listen 443 ssl", f"listen unix:{tmp_path}/listening ssl"),
        ("access_log off;", f"access_log off; {temporary_folders(tmp_path)}"),
    ):
        assert text.count(name) == 1, name
        text = text.replace(name, ours)
    (tmp_path / "nginx.conf").write_text(text)
    done = subprocess.run(
        [program, "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-t"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_systemd_reads_the_unit_and_the_timer_of_indexing(tmp_path: Path) -> None:
    program = tool("systemd-analyze")
    for kind in ("service", "timer"):
        text = (DEPLOY / f"limner-index.{kind}").read_text()
        (tmp_path / f"limner-index.{kind}").write_text(
            text.replace("/opt/limner/bin/limner", shutil.which("true") or "/bin/true")
        )
    for kind, key in (("service", "Type="), ("timer", "OnCalendar=")):
        unit = tmp_path / f"limner-index.{kind}"
        right = unit.read_text()
        for text, sound in ((right.replace(key, f"X{key}"), False), (right, True)):
            unit.write_text(text)
            done = subprocess.run(
                [program, "verify", "--man=no", unit], capture_output=True, text=True, check=False
            )
            assert ([line for line in done.stderr.splitlines() if "limner-index" in line] == []) == sound
    # what the server may write to by itself is what indexing writes to
    served, indexed = ((DEPLOY / name).read_text() for name in ("limner.service", "limner-index.service"))
    for line in ("User=limner", "UMask=0027", "ProtectSystem=strict", "ProtectHome=yes"):
        assert f"\n{line}\n" in served
        assert f"\n{line}\n" in indexed


@pytest.mark.parametrize("where", ["systemd", "compose"])
def test_a_night_indexes_what_is_new(toys: Dataset, toy_run: Path, tmp_path: Path, where: str) -> None:
    """The command of the unit, and the loop of the container for two nights, on a store that holds its model."""
    pictures = tmp_path / "pictures"
    store = tmp_path / "srv" / "current"
    pictures.mkdir()
    for number, record in enumerate(toys.records[:4]):
        shutil.copy(record.image, pictures)
        if number == 2:
            limner.index(toy_run, str(store), pictures)
    program = f"{shlex.quote(sys.executable)} -m limner"
    if where == "systemd":
        text = (DEPLOY / "limner-index.service").read_text()
        (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        script = line.replace("/opt/limner/bin/limner", program).replace("/srv/pictures", str(pictures))
    else:
        # compose turns $$ into $
        (loop,) = compose()["services"]["index"]["command"]
        nights = 'n=0; sleep() { [ "$1" -gt 0 ] && [ "$1" -le 172800 ] && n=$((n+1)) && [ $n -le 2 ]; }'
        script = f'{nights}; limner() {{ {program} "$@"; }}\n{loop}'.replace("$$(", "$(").replace(
            '"$$P', '"$P'
        )
    script = script.replace("/srv/limner", str(store.parent))
    environment = {**os.environ, "PICTURES": str(pictures)}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert "1 added, 0 updated, 3 unchanged" in done.stdout, done.stderr
    assert done.stdout.count("0 added, 0 updated, 4 unchanged") == (where == "compose")


def test_prometheus_reads_its_files(tmp_path: Path) -> None:
    read = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert read["rule_files"] == ["alerts.yml"]
    (job,) = read["scrape_configs"]
    # the rule that asks whether it is up names it
    assert f'up{{job="{job["job_name"]}"}}' in (MONITORING / "alerts.yml").read_text()
    given = tomllib.loads((DEPLOY / "server.toml").read_text())
    assert job["metrics_path"] == f"{given['root_path']}/metrics"
    program = tool("promtool")
    token = tmp_path / "limner.token"
    token.write_text("x")
    shutil.copy(MONITORING / "alerts.yml", tmp_path)
    config = tmp_path / "prometheus.yml"
    text = (MONITORING / "prometheus.yml").read_text()
    config.write_text(text.replace(job["authorization"]["credentials_file"], str(token)))
    # the rules, too
    done = subprocess.run([program, "check", "config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _version(program: str) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split()[1].split(".")[0])


@pytest.mark.parametrize("on_a_file", [False, True])
def test_nginx_before_a_server(tmp_path: Path, on_a_file: bool) -> None:
    tool("nginx")
    assert "server unix:/run/limner/limner.sock" in (DEPLOY / "nginx.conf").read_text()
    settings = ServerSettings(root_path="/photos")
    store = Store(toy_engine(tmp_path))
    file = tmp_path / "limner.sock" if on_a_file else None
    proxy = "unix" if on_a_file else "127.0.0.1"
    with (
        running(create_app(store, settings), settings, proxy, file) as url,
        behind("nginx", url, tmp_path) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}") as client,
    ):
        page = client.get("/photos", follow_redirects=True)
        assert (page.status_code, page.url.path) == (200, "/photos/")
        assert client.get("/photos/page/style.css").status_code == 200
        found = client.post("/photos/v1/search", json={"text": "a square", "k": 1}).json()
        assert found["total"] == COUNT
        # a body without its length, as a program may stream it
        assert client.post(
            "/photos/v1/search", content=iter([b'{"text": ', b'"a"}']), headers=JSON
        ).is_success
        assert client.get("/v1/info").status_code == 404
        # more at once than reach the server: they wait for each other
        with ThreadPoolExecutor(90) as threads:
            found = Counter(
                threads.map(
                    lambda n: (
                        httpx.post(
                            f"http://{host}:{port}/photos/v1/search", json={"text": f"a {n}"}, timeout=60
                        ).status_code
                    ),
                    range(90),
                )
            )
        assert found == {200: 90}


# the container, which nothing here can run: its files are read by the programs that there are


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return read


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    lines = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    words = [line.split(maxsplit=1) for line in lines.replace("\\\n", " ").splitlines() if line.strip()]
    return [(name, rest) for name, rest in words]


def targets_of(service: dict[str, Any]) -> set[str]:
    """The folders of a service that are mounted."""
    # a variable may have a colon, before its message
    return {re.sub(r"\$\{[^}]*\}", "X", one).split(":")[1] for one in service["volumes"]}


def test_compose_reads_its_file() -> None:
    docker, older = shutil.which("docker"), shutil.which("docker-compose")
    plugin = (
        docker is not None
        and not subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode
    )
    if not plugin and older is None:
        pytest.skip("neither docker compose nor docker-compose is installed")
    command = [docker or "", "compose"] if plugin else [older or ""]
    command += ["-f", str(DEPLOY / "compose.yaml"), "config"]
    done = subprocess.run(command, env={**os.environ, **GIVEN}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read = yaml.safe_load(done.stdout)
    assert read["services"].keys() == {"limner", "index", "proxy"}
    for name in GIVEN:
        few = {key: value for key, value in {**os.environ, **GIVEN}.items() if key != name}
        refused = subprocess.run(command, env=few, capture_output=True, text=True, check=False)
        assert refused.returncode != 0, name


@pytest.mark.parametrize("name", ["limner", "index"])
def test_the_container_has_few_rights(name: str) -> None:
    service = compose()["services"][name]
    assert (service["read_only"], service["network_mode"], service["cap_drop"]) == (True, "none", ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    named = dict(instructions())
    assert named["USER"] == "limner"
    (uid,) = re.findall(r"useradd --uid (\d+)", " ".join(rest for _, rest in instructions()))
    assert service["user"] == f"{uid}:{uid}"
    # what it writes lies on volumes, since its root cannot be written
    targets = targets_of(service)
    made = re.findall(r"/(?:run|var)/\S+", next(rest for _, rest in instructions() if "install -d" in rest))
    assert (set(made) <= targets) == (name == "limner")


def test_its_settings_are_known_and_name_its_volumes() -> None:
    service = compose()["services"]["limner"]
    read = read_settings({}, {**service["environment"], "LIMNER_SERVE_TOKENS": ""})
    assert (str(read.uds), read.behind_proxy) == ("/run/limner/limner.sock", "unix")
    targets = targets_of(service)
    for path in (read.store, read.audit, read.uds, Path(service["environment"]["LIMNER_SERVE_TOKENS"])):
        assert str(Path(str(path)).parent) in targets, path
    # as long as the server drains, 12 seconds, and 6 for a web hook
    assert int(service["stop_grace_period"].removesuffix("s")) >= read.drain_seconds + 18
    environment = next(rest for name, rest in instructions() if name == "ENV")
    assert f"LIMNER_SERVE_UDS={read.uds}" in environment


def test_the_image_gets_what_pip_needs_and_nothing_else(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    taken = {line[1:] for line in lines if line.startswith("!")}
    assert taken == {"pyproject.toml", "limner", project["readme"], *project["license-files"]}
    assert "*" in lines
    (extras,) = re.findall(r"/src\[([^]]+)\]", (DEPLOY / "Dockerfile").read_text())
    # a store of the README's first commands is served with no less than what they were installed with
    (own,) = re.findall(
        r"^\$ pip install '\.\[([^]]+)\]'", (ROOT / "README.md").read_text(), flags=re.MULTILINE
    )
    for others in (extras, *re.findall(r"pip install 'CHECKOUT\[([^]]+)\]'", TEAM)):
        assert set(own.split(",")) <= set(others.split(","))
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    # the folders of limner that it would leave out
    assert not [path for path in (ROOT / "limner").rglob("*") if path.name in ("build", "dist", ".git")]


def test_its_health_check_is_that_of_a_server(tmp_path: Path) -> None:
    (check,) = [rest for name, rest in instructions() if name == "HEALTHCHECK"]
    words = json.loads(check[check.index("[") :])
    assert words[0] == "python"
    file = tmp_path / "limner.sock"
    settings = ServerSettings(probe_interval=0.05)

    def asked() -> int:
        environment = {**os.environ, "LIMNER_SERVE_UDS": str(file)}
        return subprocess.run(
            [sys.executable, *words[1:]], env=environment, capture_output=True, check=False
        ).returncode

    assert asked() == 1
    with running(create_app(Store(toy_engine(tmp_path)), settings), settings, file=file):
        assert asked() == 0
        (tmp_path / "store").rename(tmp_path / "away")
        for _ in range(20):
            if asked():
                break
        assert asked() == 1


def test_caddy_before_a_server(tmp_path: Path) -> None:
    tool("caddy")
    file = tmp_path / "limner.sock"
    settings, log = ServerSettings(audit=tmp_path / "audit"), tmp_path / "audit"
    with (
        running(create_app(Store(toy_engine(tmp_path)), settings), settings, "unix", file) as url,
        behind("caddy", url, tmp_path) as (_, port),
        httpx.Client(base_url=f"http://localhost:{port}") as client,
    ):
        assert client.get("/").status_code == 200
        forged = {"X-Forwarded-For": "192.0.2.7", "Authorization": "Bearer 0123456789abcdef"}
        for headers in (forged, {"X-Forwarded-For": "192.0.2.7"}):
            found = client.post("/v1/search", json={"text": "a square", "k": 1}, headers=headers)
            assert found.json()["total"] == COUNT
        assert client.post("/v1/search", content=iter([b'{"text": ', b'"a"}']), headers=JSON).is_success
    # whoever claims another address keeps its own
    assert "192.0.2.7" not in log.read_text()


def test_commands_in_the_files_are_those_of_the_docs() -> None:
    """The first line of each file says how it is used."""
    for name, command in (
        ("Dockerfile", "docker build -f deploy/Dockerfile -t limner ."),
        ("compose.yaml", "docker compose -f deploy/compose.yaml up -d"),
    ):
        assert command in (DEPLOY / name).read_text().splitlines()[0]
        assert shlex.split(command)[0] == "docker"
