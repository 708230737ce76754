"""Who may ask the server of `counterpoint view`: whoever has the token, from this machine, from the page itself.

- The server listens on 127.0.0.1 only, so no other machine reaches it.
- A request needs the token that the printed link holds: in the address, or in the cookie that the first page sets.
- Its Host must be this server. A foreign site whose name resolves to 127.0.0.1 (DNS rebinding) has another one.
- Its Origin, if it has one, must be this server, and so must the page that a browser says it came from: a foreign site can send
  requests here, and nothing that it sends is answered.
- Answers carry a content security policy: scripts from this server only, none in the page's text, no eval; styles from this
  server, and those of Plotly by their hashes; no frame on foreign sites, no connection to anywhere else.
"""

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse

from counterpoint.view.curves import hashed

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

NOTHING = ""
"""The empty style: Plotly adds one to the page and fills it through the browser's interface for styles."""


ADDED = re.compile(r"""createElement\("style"\);\w+\.id="\w+",\w+\.textContent=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
"""How a script adds a style as text."""


def policy(styles: Sequence[str] = (NOTHING,)) -> str:
    """Returns the content security policy of the page: its server's files, and these exact styles in its text.

    Plotly draws a PNG from an image that it makes of data, and hands files over as blobs.
    """
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self' {' '.join(map(hashed, styles))}; img-src 'self' data: blob:;"
        " connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def styles_of(script: str) -> list[str]:
    """Returns the styles that a script adds to its page as text: Plotly's has one, of maps that no chart here uses."""
    added = ADDED.findall(script)
    return [re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text[1:-1]) for text in added]


HEADERS = {
    "cache-control": "no-store",
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
}


class Guard:
    """Answers requests that are not the user's with a refusal, and adds what browsers must know to all answers."""

    def __init__(self, app: App, token: str, port: int, styles: Sequence[str] = ()) -> None:
        self._app, self._token = app, token.encode()
        self._headers = HEADERS | {"content-security-policy": policy([NOTHING, *styles])}
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.cookie = f"counterpoint-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        status, sentence = self.refusal(scope["method"], Headers(scope=scope), QueryParams(scope["query_string"]))
        app: Any = PlainTextResponse(f"{sentence}\n", status) if sentence else self._app
        await app(scope, receive, send_guarded)

    def refusal(self, method: str, headers: Mapping[str, str], query: Mapping[str, str]) -> tuple[int, str]:
        """Returns the status and the sentence with which a request is refused; an empty sentence if it is answered."""
        if headers.get("host", "") not in self._hosts:
            return 403, "This server answers only to 127.0.0.1."
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return 403, "This server answers only to its own page."
        foreign = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        if foreign and headers.get("sec-fetch-dest") != "document":  # a link to the page itself may be anywhere
            return 403, "This server answers only to its own page."
        if method not in ("GET", "HEAD"):
            return 405, "This server only shows runs: there is nothing to change."
        cookies = cookie_parser(headers.get("cookie", ""))
        given = (query.get("token", ""), cookies.get(self.cookie, ""))
        if not any(secrets.compare_digest(one.encode(errors="replace"), self._token) for one in given):
            return 403, "This request has no valid token: open the link that counterpoint view has printed."
        return 200, ""
