"""The report opens in a real browser, offline, and can be read and clicked through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from spadework.report import write_report
from tests.report import browser
from tests.report.synthetic_run import write_synthetic_run
from tests.report.test_report import ATTACK

# Long, since a browser on a busy machine takes its time.
WAIT_S = 60

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        browser.chromium() is None,
        reason="needs chromium and chromedriver (Debian: chromium-driver)",
    ),
]


def pictures(tmp_path: Path) -> Path:
    """Where screenshots go; set REPORT_PICTURES to keep them."""
    folder = Path(os.environ.get("REPORT_PICTURES", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (800, True)], ids=["wide-light", "narrow-dark"]
)
def test_a_run_can_be_read_and_clicked_through(tmp_path: Path, width: int, dark: bool) -> None:
    run = write_synthetic_run(tmp_path / "demo")
    page = write_report(run).as_uri()
    with browser.browser(tmp_path / "profile", width=width, dark=dark) as driver:
        driver.get(page)
        wait = WebDriverWait(driver, WAIT_S)
        wait.until(lambda d: d.find_elements(By.CSS_SELECTOR, "#detail .arms"))
        browser.screenshot(driver, pictures(tmp_path) / f"report-{width}.png", width=width)

        # It fits: no sideways scrolling.
        inner, outer = driver.execute_script(
            "return [document.documentElement.scrollWidth, window.innerWidth]"
        )
        assert inner <= outer

        # A row opens its environment: both transcripts, side by side.
        rows = driver.find_elements(By.CSS_SELECTOR, "#row-body tr:not(.refused)")
        env_id = rows[3].get_attribute("data-env")
        driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", rows[3])
        rows[3].click()
        wait.until(lambda d: d.find_element(By.CSS_SELECTOR, "#detail code").text == env_id)
        arms = driver.find_elements(By.CSS_SELECTOR, "#detail .arm")
        assert ["without" in arm.text for arm in arms] == [True, False]
        assert "HINT:" not in arms[0].text
        assert "HINT: Change one wheel" in arms[1].text
        assert abs(arms[0].location["y"] - arms[1].location["y"]) < 2

        # Every tab draws something.
        for tab in driver.find_elements(By.CSS_SELECTOR, "#detail .tabs button"):
            tab.click()
            assert driver.find_element(By.CSS_SELECTOR, "#detail .panel").text, tab.text

        # Filters: refused drafts only.
        everything = driver.find_element(By.ID, "f-count").text
        option = driver.find_element(By.CSS_SELECTOR, "#f-reason option[value=ORACLE]")
        option.click()
        wait.until(lambda d: d.find_element(By.ID, "f-count").text != everything)
        shown = driver.find_elements(By.CSS_SELECTOR, "#row-body tr")
        assert shown
        assert all("ORACLE" in row.text for row in shown)
        driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", shown[0])
        shown[0].click()
        wait.until(lambda d: "gate ORACLE" in d.find_element(By.ID, "detail").text)

        # A line in a chart opens its environment too.
        track = driver.find_element(By.CSS_SELECTOR, ".track")
        driver.execute_script(
            "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", track
        )
        wanted = track.get_attribute("data-env")
        wait.until(lambda d: d.find_element(By.CSS_SELECTOR, "#detail code").text == wanted)

        assert browser.console(driver) == []
        assert [url for url in browser.requests(driver) if url != page] == []


def test_nothing_that_environments_wrote_runs_in_the_page(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "demo", steps=8, extra_text=ATTACK)
    page = write_report(run).as_uri()
    with browser.browser(tmp_path / "profile") as driver:
        driver.get(page)
        wait = WebDriverWait(driver, WAIT_S)
        wait.until(lambda d: d.find_elements(By.CSS_SELECTOR, "#detail .arms"))
        seen = ""
        for row in driver.find_elements(By.CSS_SELECTOR, "#row-body tr")[:6]:
            driver.execute_script("arguments[0].click()", row)
            wanted = row.get_attribute("data-env")
            wait.until(
                lambda d, id=wanted: d.find_element(By.CSS_SELECTOR, "#detail code").text == id
            )
            for tab in driver.find_elements(By.CSS_SELECTOR, "#detail .tabs button"):
                tab.click()
                seen += driver.find_element(By.CSS_SELECTOR, "#detail .panel").text
        assert "{{ 7*7 }}" in seen
        assert driver.execute_script("return window.pwned") is None
        assert driver.find_elements(By.CSS_SELECTOR, "#detail img, #detail script") == []
        assert browser.console(driver) == []
        assert [url for url in browser.requests(driver) if url != page] == []


def test_a_killed_run_opens_without_complaint(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "demo", killed=True)
    page = write_report(run).as_uri()
    with browser.browser(tmp_path / "profile", width=800) as driver:
        driver.get(page)
        assert "has not finished" in driver.find_element(By.CSS_SELECTOR, ".notice").text
        browser.screenshot(driver, pictures(tmp_path) / "report-killed.png", width=800)
        assert browser.console(driver) == []
