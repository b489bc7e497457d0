"""A headless Chromium, driven by its DevTools protocol through a pipe: no driver and no websocket is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One tab."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, os.fdopen(answers, "rb")
        self._number, self._session, self._rest = 0, "", b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; events that arrive before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found
            self.events.append(answer)

    def open(self, url: str) -> None:
        """Load a page."""
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && document.URL !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of a script; promises are waited for."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a script is true."""
        self.run(
            "new Promise((done, fail) => { const ask = (left) => "
            f"({condition}) ? done() : left ? setTimeout(ask, 20, left - 1) : fail('never'); ask(1500); }})"
        )

    def press(self, key: str, *, ctrl: bool = False, alt: bool = False) -> None:
        """Press and release a key that types nothing."""
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9}
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key],
                modifiers=2 * ctrl + alt,
            )  # fmt: skip

    def complaints(self) -> list[str]:
        """Errors of scripts, violations of the policy, failed requests: what the console of a developer shows."""
        self.run("0")
        found = [event["params"]["entry"]["text"] for event in self.events if event.get("method") == "Log.entryAdded"]
        return found + [
            str(event["params"]) for event in self.events if event.get("method") == "Runtime.exceptionThrown"
        ]

    def requests(self) -> list[str]:
        """The URLs that the page asked for."""
        sent = (event for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window in pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path: Path) -> None:
        """Write a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = self._answers.read1(1 << 16)  # type: ignore[attr-defined]
            assert part, "chromium ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def browser() -> Iterator[Page]:
    """A tab of a fresh Chromium."""
    assert PROGRAM is not None
    to_chromium, commands = os.pipe()
    answers, from_chromium = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:

        def place() -> None:  # the protocol is on descriptors 3 and 4
            ends = os.dup(to_chromium), os.dup(from_chromium)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        process = subprocess.Popen(
            [
                PROGRAM, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
                "--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking",
                "--disable-component-update", f"--user-data-dir={profile}", "about:blank",
            ],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_chromium)
        os.close(from_chromium)
        page = Page(commands, answers)
        try:
            yield page
        finally:
            page._session = ""
            os.close(commands)
            page._answers.close()
            process.kill()
            process.wait()
