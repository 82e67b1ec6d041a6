// Opens pages of the site in headless Chromium and prints, as JSON, what each asks for: node site.mjs BROWSER URL...
import { createRequire } from "node:module";

const require = createRequire(`${process.env.BROWSER_MODULES}/`);
const { chromium } = require("playwright-core");
const [executablePath, ...urls] = process.argv.slice(2);

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const pages = [];
for (const url of urls)
  for (const width of [1280, 390])
    for (const colorScheme of ["light", "dark"]) {
      const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
      const page = await context.newPage();
      const seen = { url, width, errors: [], requests: [] };
      page.on("pageerror", (error) => seen.errors.push(String(error)));
      page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) seen.requests.push(request.url()); });
      await page.goto(url, { waitUntil: "load" });
      if (url.includes("?q=")) await page.waitForSelector("ul.search li a", { timeout: 20000 });
      seen.contentWidth = await page.evaluate(() => document.documentElement.scrollWidth);
      seen.background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      seen.brokenImages = await page.evaluate(() =>
        [...document.images].filter((image) => image.complete && !image.naturalWidth).map((image) => image.src));
      seen.links = await page.evaluate(() => [...document.querySelectorAll("ul.search li a")].map((link) => link.href));
      pages.push(seen);
      await context.close();
    }
await browser.close();
console.log(JSON.stringify(pages));
