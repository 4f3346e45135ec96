// The violations that axe finds on a page.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { rested } from "./explorer.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Returns a line for each violation of accessibility rules. */
export async function violations(page) {
  await page.evaluate(axe);
  return page.evaluate(async () => {
    const { violations: found } = await window.axe.run(document, { resultTypes: ["violations"] });
    return found.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target.join(" ")}: ${failureSummary}`));
  });
}

/** Returns the violations in the light and then in the dark theme, each when the page rests. */
export async function themed(page) {
  const found = [];
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await rested(page);
    for (const line of await violations(page)) found.push(`${colorScheme}: ${line}`);
  }
  return found;
}
