// Opens a page as a wide screen, a phone, a dark phone and paper show it: node check.mjs PAGE FOLDER CHROMIUM MODULES
// Fails if the console says anything, if anything but the page is asked for, if it is wider than the screen, or if axe finds
// something of impact serious or critical. Leaves pictures in FOLDER.
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [page, folder, chromium, modules] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(modules), "x.js"));
const puppeteer = require("puppeteer-core");
const axe = require.resolve("axe-core/axe.min.js");
const address = pathToFileURL(path.resolve(page)).href;
const views = [
  { name: "wide", width: 1400, height: 900, scheme: "light", media: "screen" },
  { name: "phone", width: 360, height: 740, scheme: "light", media: "screen" },
  { name: "dark", width: 390, height: 800, scheme: "dark", media: "screen" },
  { name: "print", width: 794, height: 1123, scheme: "light", media: "print" },
];
const wrong = [];
const browser = await puppeteer.launch({
  executablePath: chromium,
  headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
for (const view of views) {
  const tab = await browser.newPage();
  tab.on("console", (message) => wrong.push(`${view.name}: console: ${message.text()}`));
  tab.on("pageerror", (error) => wrong.push(`${view.name}: error: ${error.message}`));
  tab.on("request", (request) => {
    if (request.url() !== address && !request.url().startsWith("data:")) wrong.push(`${view.name}: request: ${request.url()}`);
  });
  await tab.setViewport({ width: view.width, height: view.height, deviceScaleFactor: 1 });
  await tab.emulateMediaType(view.media);
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: view.scheme }]);
  await tab.goto(address, { waitUntil: "load" });
  const wide = await tab.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) wrong.push(`${view.name}: ${wide} pixels wider than the screen`);
  await tab.screenshot({ path: path.join(folder, `${view.name}.png`), fullPage: true });
  if (view.media === "print") await tab.pdf({ path: path.join(folder, "print.pdf"), format: "A4" });
  // The page lets no script in, by its own policy: the checker is put in beside it.
  const session = await tab.createCDPSession();
  await session.send("Page.setBypassCSP", { enabled: true });
  await tab.reload({ waitUntil: "load" });
  await tab.addScriptTag({ path: axe });
  const found = await tab.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const { impact, id, help, nodes } of found.violations) {
    const line = `${view.name}: axe: ${impact}: ${id}: ${help} (${nodes.length}: ${nodes[0].target} ${nodes[0].any[0]?.message ?? ""})`;
    if (["serious", "critical"].includes(impact)) wrong.push(line);
    else console.log(line);
  }
  await tab.close();
}
await browser.close();
for (const line of wrong) console.error(line);
console.log(`checked: ${views.map((view) => view.name).join(", ")}`);
process.exit(wrong.length > 0 ? 1 : 0);
