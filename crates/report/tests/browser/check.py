"""Opens a page as a wide screen, a phone, a dark phone and paper show it: check.py PAGE FOLDER CHROMIUM

Fails if the console says anything, if anything but the page is asked for, if it is wider than the screen, or if axe finds
something of impact serious or critical. Leaves pictures in FOLDER.
"""

import sys
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright

VIEWS = {
    "wide": {"viewport": {"width": 1400, "height": 900}},
    "phone": {"viewport": {"width": 360, "height": 740}},
    "dark": {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"},
    "print": {"viewport": {"width": 794, "height": 1123}},
}
# Pixels by which the page is wider than the screen.
BEYOND = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def look(browser: Browser, address: str, name: str, folder: Path) -> list[str]:
    """What is wrong with the page as this view shows it."""
    wrong = []
    context = browser.new_context(**VIEWS[name])
    page = context.new_page()
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    is_foreign = lambda url: url != address and not url.startswith("data:")
    page.on("request", lambda request: is_foreign(request.url) and wrong.append(f"request: {request.url}"))
    page.emulate_media(media="print" if name == "print" else "screen")
    page.goto(address)
    if (wide := page.evaluate(BEYOND)) > 0:
        wrong.append(f"{wide} pixels wider than the screen")
    page.screenshot(path=folder / f"{name}.png", full_page=True)
    if name == "print":
        page.pdf(path=folder / "print.pdf", format="A4")
    context.close()
    return wrong + judge(browser, address, name)


def judge(browser: Browser, address: str, name: str) -> list[str]:
    """What axe finds serious. The page lets no script in, by its own policy: the checker is put in beside it."""
    context = browser.new_context(**VIEWS[name], bypass_csp=True)
    page = context.new_page()
    page.emulate_media(media="print" if name == "print" else "screen")
    page.goto(address)
    wrong = []
    for found in Axe().run(page).response["violations"]:
        nodes = found["nodes"]
        line = f"axe: {found['impact']}: {found['id']}: {found['help']} ({len(nodes)}: {nodes[0]['target']})"
        if found["impact"] in ("serious", "critical"):
            wrong.append(line)
        else:
            print(f"{name}: {line}")
    context.close()
    return wrong


def main() -> None:
    page, folder, chromium = sys.argv[1:]
    wrong = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        for name in VIEWS:
            seen = look(browser, Path(page).resolve().as_uri(), name, Path(folder))
            wrong += [f"{name}: {line}" for line in seen]
        browser.close()
    print("\n".join(wrong), file=sys.stderr)
    print(f"checked: {', '.join(VIEWS)}")
    sys.exit(1 if wrong else 0)


main()
