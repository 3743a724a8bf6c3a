"""A headless Chromium that reads files, and reports what it logged and fetched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium refuses its own sandbox to root, which CI is.
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def chromium() -> str | None:
    """Path of the browser; None where it or its driver is not installed."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    return browser if shutil.which("chromedriver") else None


@contextmanager
def browser(profile: Path, *, width: int = 1280, dark: bool = False) -> Iterator[webdriver.Chrome]:
    """Start a browser with an empty profile."""
    options = Options()
    options.binary_location = chromium() or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            # No smooth scrolling: a click must not chase a moving page.
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.get("about:blank")
        requests(driver)  # forget what the browser's own start page asked for
        resize(driver, width, 900)
        yield driver
    finally:
        driver.quit()


def console(driver: webdriver.Chrome) -> list[str]:
    """What the page wrote to the console, errors and policy violations among it."""
    return [entry["message"] for entry in driver.get_log("browser")]


def requests(driver: webdriver.Chrome) -> list[str]:
    """Addresses that the page asked for since the last call."""
    events = (json.loads(e["message"])["message"] for e in driver.get_log("performance"))
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]


def resize(driver: webdriver.Chrome, width: int, height: int) -> None:
    """Give the page this many CSS pixels, whatever the window can do."""
    shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)


def screenshot(driver: webdriver.Chrome, file: Path, *, width: int = 1280) -> None:
    """Save the whole page, not only the window."""
    height = driver.execute_script("return document.documentElement.scrollHeight")
    resize(driver, width, height)
    driver.save_screenshot(str(file))
    resize(driver, width, 900)
