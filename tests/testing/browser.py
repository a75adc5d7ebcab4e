"""A headless Chromium that opens a page and reports its messages and requests, controlled by the DevTools protocol over a pipe."""

import base64
import json
import os
import shutil
import subprocess
import time

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")


class Browser:
    """One page. `messages`: its errors and warnings on the console, its exceptions and its dialogs. `requests`: the addresses that it
    requested."""

    def __init__(self, profile):
        to_browser, our_write = os.pipe()
        our_read, from_browser = os.pipe()

        def connect():
            # The browser reads from descriptor 3 and writes to 4. The pipes are first copied to descriptors above these.
            high = [os.dup2(descriptor, 60 + at) for at, descriptor in enumerate((to_browser, from_browser))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--hide-scrollbars",
                     "--disable-dev-shm-usage", "about:blank"]
        self.process = subprocess.Popen([BROWSER, *arguments], preexec_fn=connect, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.input = os.fdopen(our_write, "wb", buffering=0)
        self.output = os.fdopen(our_read, "rb")
        self.pending = b""
        self.number = 0
        self.session = None
        self.messages, self.requests = [], []
        self.has_loaded = False
        target = next(target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(timeout=20)
        self.input.close()
        self.output.close()

    def receive(self):
        while b"\0" not in self.pending:
            part = os.read(self.output.fileno(), 1 << 20)
            if not part:
                raise AssertionError("the browser has ended")
            self.pending += part
        text, self.pending = self.pending.split(b"\0", 1)
        message = json.loads(text)
        parameters = message.get("params", {})
        method = message.get("method")
        if method == "Runtime.exceptionThrown":
            self.messages.append(parameters["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.messages.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.messages.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self.has_loaded = True
        elif method == "Page.javascriptDialogOpening":
            self.messages.append(f"dialog: {parameters['message']}")
        return message

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        self.input.write(json.dumps(request).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, address, width=1400, height=900, scheme="light"):
        self.messages.clear()
        self.requests.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.has_loaded = False
        self.call("Page.navigate", url=address)
        while not self.has_loaded:
            self.receive()

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"]["exception"].get("description", expression))
        return result["result"].get("value")

    def wait_for(self, expression, seconds=20):
        deadline = time.monotonic() + seconds
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {expression}")
            time.sleep(0.05)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, file, whole_page=True):
        image = self.call("Page.captureScreenshot", captureBeyondViewport=whole_page)
        file.write_bytes(base64.b64decode(image["data"]))
