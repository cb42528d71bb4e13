"""`limner mcp`: tools for agents, over the Model Context Protocol."""

import os
from typing import Annotated, Any

import typer

from limner.cli.contract import command, group
from limner.cli.options import Cpu, MovedRun, device
from limner.errors import SettingsError

app = group("Mcp.")

_TOKEN = "LIMNER_TOKEN"


# each line of its output is a message of the protocol
@command(app, "mcp", schema=dict[str, Any])
def mcp_command(
    place: Annotated[str, typer.Argument(metavar="STORE", help="Store folder, or the URL of a server.")],
    run: MovedRun = None,
    cpu: Cpu = False,
) -> None:
    """Let agents search a store, over standard input and output; they can look and change nothing.

    Of a server its token is read from LIMNER_TOKEN, and its rights hold.
    """
    from limner.agents import agent_server, serve_agents
    from limner.client import Client
    from limner.search.store import open_store

    if place.startswith(("http:", "https:", "unix:")):
        if run is not None or cpu:
            raise SettingsError("--run and --cpu go with a store; a server has its own model")
        client = Client(place, os.environ.get(_TOKEN))
        # an agent would be told of a server that is not there at its first question
        client.info()
        serve_agents(agent_server(client))
    else:
        serve_agents(agent_server(open_store(place, run=run, device=device(cpu))))
