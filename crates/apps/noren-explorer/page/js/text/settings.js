// The request of the text view: its valid settings, and the body.

// Words are never left out here, because a secret that is left out would be readable. The server refuses too many or too long words.
const strings = (value) => (Array.isArray(value) ? value.filter((one) => typeof one === "string") : []);
const whole = (value) => Number.isInteger(value) && value >= 0 && value < 4096;

/**
 * Returns the settings of the text view from a state of the page. Missing settings get defaults from `model`, the answer of GET /api/model.
 */
export function settings({ text: own }, model) {
  const layers = model.layers ?? 1;
  const heads = model.heads ?? 1;
  return {
    text: typeof own.text === "string" ? own.text : model.example ?? "",
    mask: typeof own.mask === "string" ? own.mask : "",
    hide: strings(own.hide),
    words: strings(own.words),
    layer: whole(own.layer) ? Math.min(own.layer, layers - 1) : Math.floor(layers / 2),
    head: whole(own.head) ? Math.min(own.head, heads - 1) : 0,
    word: whole(own.word) ? own.word : null,
    token: whole(own.token) ? own.token : null,
    off: Array.isArray(own.off) ? [...new Set(own.off.filter(whole))] : [],
    layers,
    heads,
  };
}

/** Returns the request body for POST /api/text. */
export function request({ text, mask, hide, words, layer, head }) {
  const body = { text, layer, head };
  if (mask.trim()) body.mask = mask;
  if (hide.length) body.hide = hide;
  if (words.length) body.words = words;
  return body;
}

/** Splits the words that the user typed at commas and line ends, and removes repetitions. */
export const wordsOf = (typed) => [...new Set(typed.split(/[,\n]/).map((word) => word.trim()).filter(Boolean))];
