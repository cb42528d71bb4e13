"""The examples of `deploy/`, read by the programs that they are for."""

import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from limner.search.store import Store
from limner.server.app import create_app
from limner.server.configuration import read_settings
from limner.server.settings import ServerSettings
from tests.server.running import running
from tests.server.serving import COUNT, toy_engine

DEPLOY = Path(__file__).parent.parent / "deploy"


def tool(name: str) -> str:
    """A program, or the end of the test that needs it."""
    # Debian's place of servers, which users have not in their PATH
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
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


def _version(program: str) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split()[1].split(".")[0])


@pytest.mark.parametrize("on_a_file", [False, True])
def test_nginx_before_a_server(tmp_path: Path, on_a_file: bool) -> None:
    program = tool("nginx")
    settings = ServerSettings(root_path="/photos")
    store = Store(toy_engine(tmp_path))
    file = tmp_path / "limner.sock" if on_a_file else None
    proxy = "unix" if on_a_file else "127.0.0.1"
    with running(create_app(store, settings), settings, proxy, file) as url:
        site = (DEPLOY / "nginx.conf").read_text()
        assert "http://unix:/run/limner/limner.sock;" in site
        site = site.replace("http://127.0.0.1:8000", f"http://{url}" if on_a_file else url)
        listening = tmp_path / "listening"
        folders = " ".join(
            f"{kind}_temp_path {tmp_path}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = tmp_path / "nginx.conf"
        config.write_text(
            f"daemon off; master_process off; pid {tmp_path}/pid; error_log {tmp_path}/errors;\n"
            f"events {{}}\nhttp {{ access_log off; {folders}\n"
            f"server {{ listen unix:{listening}; server_name localhost;\n{site}\n}} }}\n"
        )
        started = [program, "-p", str(tmp_path), "-c", str(config)]
        subprocess.run([*started, "-t"], check=True, capture_output=True)
        with subprocess.Popen(started, stderr=subprocess.DEVNULL) as nginx:
            try:
                transport = httpx.HTTPTransport(uds=str(listening), retries=5)
                with httpx.Client(transport=transport, base_url="http://localhost") as client:
                    page = client.get("/photos", follow_redirects=True)
                    assert (page.status_code, page.url.path) == (200, "/photos/")
                    assert client.get("/photos/page/style.css").status_code == 200
                    found = client.post("/photos/v1/search", json={"text": "a square", "k": 1}).json()
                    assert found["total"] == COUNT
                    assert client.get("/v1/info").status_code == 404
            finally:
                nginx.terminate()
