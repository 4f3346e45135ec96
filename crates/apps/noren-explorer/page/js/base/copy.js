// Copies the mask to the clipboard: as a picture, as Markdown, or as a cell of a notebook.

/** The formats in which a mask can be copied, each as `[name in the API, title, note]`. */
export const COPIES = [
  ["png", "Copy as PNG", "a picture for a document or a chat"],
  ["svg", "Copy as SVG", "a picture for a drawing program or an editor"],
  ["markdown", "Copy as Markdown", "characters and a command, for an issue"],
  ["notebook", "Copy as notebook cell", "Python that shows the mask"],
];

const TYPES = { png: ["image/png"], svg: ["image/svg+xml", "text/plain"] };
/** The CSS properties that can also be written as SVG attributes. */
const KEPT = /^(fill|stroke|opacity|font-(family|size|weight|style)|text-anchor|dominant-baseline)/;
// Browsers must accept text and PNG; other types are optional.
const REQUIRED = ["text/plain", "image/png"];

/**
 * Returns an SVG document whose style sheet is replaced by attributes of its elements. Browsers remove style sheets from SVG documents in the
 * clipboard, because the policy of this page permits no inline styles. Rules for the dark color scheme are left out.
 */
export function withoutSheet(text) {
  const sheet = new CSSStyleSheet();
  const bare = text.replace(/<style>([\s\S]*?)<\/style>/, (_, rules) => (sheet.replaceSync(rules), ""));
  const { documentElement: svg } = new DOMParser().parseFromString(bare, "image/svg+xml");
  for (const { selectorText, style } of sheet.cssRules) {
    if (!selectorText) continue; // a rule of a media query
    const elements = [svg, ...svg.querySelectorAll("*")].filter((element) => element.matches(selectorText));
    for (const name of style) for (const element of elements) if (KEPT.test(name)) element.setAttribute(name, style.getPropertyValue(name));
  }
  return new XMLSerializer().serializeToString(svg);
}

/**
 * Copies a mask to the clipboard in the format `as`. `request()` returns a promise of the mask in this format, as a blob. Returns a promise
 * of true, or of false if the browser denies access to the clipboard. If `request` fails, the promise is rejected with its error.
 */
export async function copyAs(as, request) {
  const blob = request();
  const content = async (type) => (type === "image/svg+xml" ? withoutSheet(await (await blob).text()) : (await blob).arrayBuffer());
  const typed = async (type) => new Blob([await content(type)], { type });
  const types = (TYPES[as] ?? ["text/plain"]).filter((type) => REQUIRED.includes(type) || ClipboardItem.supports?.(type));
  try {
    // The clipboard gets promises, because some browsers allow access only at the moment of the click.
    await navigator.clipboard.write([new ClipboardItem(Object.fromEntries(types.map((type) => [type, typed(type)])))]);
    return true;
  } catch {
    await blob;
    return false;
  }
}
