"""How long the head of a request may take: uvicorn itself waits for the rest of one for ever."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 10.0


class HeadLimit(H11Protocol):
    """uvicorn's protocol, which closes a connection on which no whole head comes within `SECONDS`."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what comes, and wait as long as it is not a head."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(SECONDS, self._give_up)

    def _give_up(self) -> None:
        # after a whole request uvicorn closes what is idle itself
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
