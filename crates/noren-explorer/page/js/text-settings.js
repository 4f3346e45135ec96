// What the text view is asked: its part of the state made sound, and the request.

// However many there are and however long: a secret that is left out here would be read by everybody. The server says what is too much.
const strings = (value) => (Array.isArray(value) ? value.filter((one) => typeof one === "string") : []);
const whole = (value) => Number.isInteger(value) && value >= 0 && value < 4096;

/** The settings of a state; `model` (GET /api/model) says what nobody chose. */
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
    layers,
    heads,
  };
}

/** The body of POST /api/text. */
export function request({ text, mask, hide, words, layer, head }) {
  const body = { text, layer, head };
  if (mask.trim()) body.mask = mask;
  if (hide.length) body.hide = hide;
  if (words.length) body.words = words;
  return body;
}

/** Own words as they are typed: separated by commas or lines. */
export const wordsOf = (typed) => [...new Set(typed.split(/[,\n]/).map((word) => word.trim()).filter(Boolean))];
