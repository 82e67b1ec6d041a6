// Opens pages in headless Chromium and prints, as JSON, what it finds of each: node look.mjs BROWSER FILE...
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.BROWSER_MODULES}/`);
const { chromium } = require("playwright-core");
const [executablePath, ...files] = process.argv.slice(2);

async function look(browser, file, width, colorScheme) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
  const page = await context.newPage();
  const found = { file, width, colorScheme, console: [], requests: [], dialogs: 0 };
  page.on("console", (message) => found.console.push(message.text()));
  page.on("pageerror", (error) => found.console.push(String(error)));
  page.on("dialog", (dialog) => { found.dialogs += 1; dialog.dismiss(); });
  page.on("request", (request) => { if (!request.url().startsWith("data:")) found.requests.push(request.url()); });
  await page.goto(pathToFileURL(file).href, { waitUntil: "load" });
  found.requests = found.requests.filter((url) => url !== pathToFileURL(file).href);
  found.widthOfContent = await page.evaluate(() => document.documentElement.scrollWidth);
  found.height = await page.evaluate(() => document.documentElement.scrollHeight);
  found.endOfChecks = await page.evaluate(() => document.querySelector(".checks").getBoundingClientRect().bottom);
  found.cut = await page.evaluate(() => [...document.querySelectorAll(".scroll")]
    .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.getAttribute("aria-label")));
  found.pictures = await page.evaluate(() =>
    [...document.images].map((image) => image.complete && image.naturalWidth > 0));
  found.closed = await page.locator("details").count();
  for (let reached = 0; reached < 400 && (await page.locator("details:not([open])").count()); reached += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => document.activeElement?.tagName === "SUMMARY" && !document.activeElement.parentElement.open))
      await page.keyboard.press("Enter");
  }
  found.leftClosed = await page.locator("details:not([open])").count();
  found.widthWithDetails = await page.evaluate(() => document.documentElement.scrollWidth);
  await page.evaluate(require("fs").readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  found.violations = violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(" | ")}`);
  found.text = await page.evaluate(() => document.body.innerText);
  await context.close();
  return found;
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const all = [];
for (const file of files)
  for (const width of [1280, 390])
    for (const scheme of ["light", "dark"])
      all.push(await look(browser, file, width, scheme));
await browser.close();
console.log(JSON.stringify(all));
