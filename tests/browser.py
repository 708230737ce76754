"""A headless Chromium, driven through its debugging pipe: no driver program and no further package are needed."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

LAUNCH = """
import os, sys
read, write = (os.dup(int(fd)) if int(fd) in (3, 4) else int(fd) for fd in sys.argv[1:3])
os.dup2(read, 3); os.dup2(write, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
FLAGS = (
    *("--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-dev-shm-usage"),
    *("--mute-audio", "--hide-scrollbars"),
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 120.0
"""Seconds to wait for an answer: the machine may be busy."""


def executable() -> str | None:
    """Returns the browser's program, or None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser process; `page` opens a page."""

    def __init__(self) -> None:
        program = executable()
        assert program is not None
        self._profile = tempfile.mkdtemp(prefix="counterpoint-browser-")
        (read_there, self._to), (from_here, write_there) = os.pipe(), os.pipe()
        # A child interpreter moves the pipes to 3 and 4: a preexec function would fork this process, and JAX forbids that.
        launch = [sys.executable, "-S", "-E", "-c", LAUNCH, str(read_there), str(write_there)]
        self._process = subprocess.Popen(
            [*launch, program, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        self._pipe = os.fdopen(from_here, "rb", buffering=0)
        self._answers: Queue[dict[str, Any] | None] = Queue()
        self._count = 0
        self.events: list[dict[str, Any]] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        rest = b""
        while chunk := self._pipe.read(1 << 16):
            *messages, rest = (rest + chunk).split(b"\0")
            for message in messages:
                self._answers.put(json.loads(message))
        self._answers.put(None)

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Sends a command and returns its result; events that arrive meanwhile are kept."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._next(PATIENCE)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self, seconds: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=seconds)
        except Empty:
            raise TimeoutError("the browser does not answer") from None
        if answer is None:
            raise RuntimeError("the browser has ended")
        return answer

    def page(self, width: int = 1000, height: int = 900, dark: bool = False, touch: bool = False, origin: str = "") -> "Page":
        """Opens an empty page. It has no network, or may ask one server: the origin, such as http://127.0.0.1:8000."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, origin)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        page.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.call("Emulation.setEmulatedMedia", features=features)
        if not origin:
            page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        return page

    def close(self) -> None:
        try:
            self.call("Browser.close")
        except (RuntimeError, TimeoutError, OSError):
            self._process.terminate()
        self._process.wait(30)
        os.close(self._to)
        self._pipe.close()
        shutil.rmtree(self._profile, ignore_errors=True)


class Page:
    """One page; what it asks of any other server than its own is a problem."""

    def __init__(self, browser: Browser, session: str, origin: str = "") -> None:
        self._browser, self._session = browser, session
        self._own = ("file:", "about:", *((f"{origin}/", "data:", "blob:") if origin else ()))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def open(self, path: Path) -> None:
        """Opens a file and waits until it is loaded."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def visit(self, address: str) -> None:
        """Opens an address and waits until it is loaded."""
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.protocol === 'http:'")

    def run(self, code: str) -> Any:
        """Returns the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"]["exception"].get("description", "the page raised"))
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        """Waits until a condition is true in the page."""
        done = self.run(
            f"new Promise(done => {{ const end = performance.now() + {1000 * PATIENCE};"
            f" const ask = () => ({condition}) ? done(true) : performance.now() > end ? done(false) : setTimeout(ask, 20);"
            " ask(); })"
        )
        assert done, f"never true: {condition}"

    def problems(self) -> list[str]:
        """Returns errors and warnings of the console, exceptions, and requests for anything but the file itself."""
        self.run("0")
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            name, params = event["method"], event["params"]
            if name == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"].get("exception", {}).get("description", "exception")))
            elif name == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(params["args"]))
            elif name == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif name == "Network.requestWillBeSent" and not params["request"]["url"].startswith(self._own):
                found.append(f"request for {params['request']['url'][:100]}")
            elif name == "Page.javascriptDialogOpening":
                found.append(f"dialog {params['message']}")
                self.call("Page.handleJavaScriptDialog", accept=True)
        return found

    def mouse(self, kind: str, x: float, y: float, held: bool = False) -> None:
        """Sends a mouse event: mousePressed, mouseMoved or mouseReleased."""
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button="none" if kind == "mouseMoved" and not held else "left",
            buttons=1 if held or kind == "mousePressed" else 0,
            clickCount=0 if kind == "mouseMoved" else 1,
        )

    def place(self, selector: str, left: bool = False) -> tuple[float, float]:
        """Scrolls to an element and returns its middle, or its left end."""
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            " const b = e.getBoundingClientRect(); return [b.left + "
            f"{'2' if left else 'b.width / 2'}, b.top + b.height / 2]; }})()"
        )
        return x, y

    def click(self, selector: str, left: bool = False) -> None:
        """Clicks on the middle of an element, or on its left end."""
        x, y = self.place(selector, left)
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y)

    def touch(self, kind: str, *places: tuple[float, float]) -> None:
        """Sends a touch event: touchStart and touchMove with the places of fingers, touchEnd without."""
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y} for x, y in places])

    def tap(self, selector: str) -> None:
        """Taps on the middle of an element."""
        self.touch("touchStart", self.place(selector))
        self.touch("touchEnd")

    def key(self, key: str, down: bool = True, up: bool = True) -> None:
        """Presses and releases a key."""
        codes = {
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
            " ": 32,
            "Escape": 27,
            "Tab": 9,
            "Enter": 13,
            "Home": 36,
            "End": 35,
        }
        facts: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper())), "code": key}
        if len(key) == 1 or key == "Enter":
            facts["text"] = "\r" if key == "Enter" else key
        if down:
            self.call("Input.dispatchKeyEvent", type="keyDown", **facts)
        if up:
            facts.pop("text", None)
            self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Writes a PNG of what is visible, or of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def opened() -> Iterator[Browser]:
    """A browser that is closed at the end."""
    browser = Browser()
    try:
        yield browser
    finally:
        browser.close()


def evaluated(source: str, expression: str) -> Any:
    """Returns the value of an expression after a script, in Node if it is installed, otherwise in the browser."""
    node = shutil.which("node")
    plain = "(_, x) => Number.isFinite(x) || typeof x !== 'number' ? x : String(x)"  # JSON has no infinity
    text = f"(() => {{ {source}\nreturn JSON.stringify({expression}, {plain}); }})()"
    if node:
        done = subprocess.run([node, "-"], input=f"console.log({text})", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)
    with opened() as browser:
        return json.loads(browser.page().run(text))
