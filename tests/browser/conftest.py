"""A real Chromium, and pages opened in it from disk."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "reports" / "page"))

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
DRIVER = os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-color-profile=srgb",
)  # fmt: skip


def _missing():
    """Why there is no browser to test in, or nothing."""
    for program in (CHROMIUM, DRIVER):
        if shutil.which(program) is None:
            return f"there is no {program}: install Debian's chromium and chromium-driver, or set CHROMIUM and CHROMEDRIVER"
    return None


class Browser:
    """Chromium with what it said and asked for."""

    def __init__(self, driver, downloads):
        self.driver, self.downloads = driver, downloads

    def open(self, path, *, size=(1280, 900), theme=None):
        driver = self.driver
        driver.set_window_size(*size)
        features = [
            {"name": "prefers-color-scheme", "value": theme or "light"},
            # What is scrolled to is there at once.
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.get_log("browser")
        driver.get_log("performance")
        driver.get(path.as_uri())
        self.wait("return document.documentElement.dataset.ready === 'yes'")
        return driver

    def wait(self, script, seconds=15):
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, seconds).until(lambda d: d.execute_script(script))

    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def asked_for(self):
        """Addresses the page's requests went to, other than the file itself and data held in it."""
        import json

        found = {}
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            what = message.get("params", {})
            if message["method"] == "Network.requestWillBeSent":
                found[what["requestId"]] = what["request"]["url"]
            # One that the page's own policy stopped was never sent.
            if message["method"] == "Network.loadingFailed" and what.get("blockedReason") == "csp":
                found.pop(what["requestId"], None)
        return [url for url in found.values() if not url.startswith(("file:", "data:", "blob:"))]

    def downloaded(self, name):
        """The content of a file the page saved."""
        from selenium.webdriver.support.ui import WebDriverWait

        path = self.downloads / name
        WebDriverWait(self.driver, 15).until(lambda _: path.is_file())
        data = path.read_bytes()
        path.unlink()
        return data


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    why = _missing()
    if why is not None:
        if os.environ.get("LMASSAY_BROWSER_REQUIRED"):
            pytest.fail(why)
        pytest.skip(why)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    downloads = tmp_path_factory.mktemp("downloads")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    # Nothing answers: whatever the page asked for would be an error in its console.
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = webdriver.Chrome(service=Service(DRIVER), options=options)
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
    yield Browser(driver, downloads)
    driver.quit()
