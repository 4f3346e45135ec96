// The request of the flow view: its valid settings, the request, and examples.

const PATHS = ["both", "back", "reach"];
const FILLS = ["nothing", "finite"];

/** The maximum number of layers that the server accepts. */
export const MOST_LAYERS = 512;

const whole = (value, from, to) => Number.isInteger(value) && value >= from && value <= to;
const texts = (value) => Array.isArray(value) && value.length > 0 && value.every((t) => typeof t === "string");

/**
 * Returns the settings of the flow view, read from a state of the page. Values of a wrong type are replaced by defaults. Values beyond a
 * limit are kept, and the server answers them with an error.
 */
export function settings({ flow, mask, shape, at }) {
  const layers = texts(flow.layers) ? flow.layers : [mask];
  const tokens = tokensOf(shape);
  const token = whole(flow.token, 0, 2 ** 32) ? flow.token : tokens === null ? null : Math.floor(tokens * 0.6);
  return {
    layers,
    // With fewer layers than masks, some masks would be unused.
    depth: Math.max(whole(flow.depth, 1, Number.MAX_SAFE_INTEGER) ? flow.depth : 4, layers.length),
    fill: FILLS.includes(flow.fill) ? flow.fill : "nothing",
    policy: typeof flow.policy === "string" ? flow.policy : "",
    token: tokens === null ? token : Math.min(token, tokens - 1),
    tokens,
    batch: whole(shape.batch, 1, 2 ** 31) ? Math.min(at[0], shape.batch - 1) : at[0], // a row of another shape may be left over
    directions: PATHS.includes(flow.directions) ? flow.directions : "both",
    violation: whole(flow.violation, 0, 1e6) ? flow.violation : null,
    window: Array.isArray(flow.window) && flow.window.length === 2 && flow.window.every(Number.isFinite) ? flow.window : null,
  };
}

/** Returns the number of tokens of a shape. Returns null if only the facts determine this number. */
function tokensOf({ len, kv, past, new: more }) {
  const known = len ?? kv ?? (past === undefined && more === undefined ? undefined : (past ?? 0) + (more ?? 1));
  return whole(known, 1, 2 ** 31) ? known : null;
}

/** Returns the request body for POST /api/flow. */
export function request(state, { layers, depth, fill, policy, token, batch }) {
  const body = { layers, depth, shape: state.shape, facts: state.facts, fill, policy, batch };
  return token === null ? body : { ...body, token };
}

/** Example rules of a policy. */
export const RULES = [
  ["deny: document(i) -> document(j)", "no document influences another document"],
  ["deny: label(pii) -> output", "no token with the label pii influences the output of another token"],
  ["deny: level(2) -> level(0)", "no token of clearance level 2 influences a token of clearance level 0"],
  ["deny: tokens(0..2) -> token(9)", "tokens 0 and 1 do not influence token 9"],
  ["allow: label(pii) -> label(pii)", "an exception: these pairs are not denied"],
];

/** The example stacks: the masks of several layers. `patch` is the change of the page's state that shows an example. */
export const PRESETS = [
  {
    name: "Windows, stacked",
    says: "In each layer of sliding(4), a token reads three more tokens to its left: the receptive field grows by three.",
    patch: { shape: { len: 32 }, facts: {}, flow: { layers: ["sliding(4)"], depth: 8, token: 24 } },
  },
  {
    name: "Some global layers",
    says: "Five layers with windows, then one causal layer, as in Gemma 3: the last token depends on the whole text.",
    patch: {
      shape: { len: 48 },
      facts: {},
      flow: { layers: [...Array(5).fill("sliding(4)"), "causal"], depth: 12, token: 40 },
    },
  },
  {
    name: "Packed documents that leak",
    says: "Documents do not read each other, but every document reads a global token that reads all tokens: after two layers, the documents influence each other.",
    patch: {
      shape: { len: 24 },
      facts: { documents: [[1, 8, 8, 7]] },
      flow: {
        layers: ["documents | global(0)"],
        depth: 4,
        token: 19,
        policy: "# token 0 is the global token, a document of its own\ndeny: document(1) -> document(3)\ndeny: document(3) -> document(1)",
        violation: 0,
      },
    },
  },
  {
    name: "A private label",
    says: "Query 15 may not read the secret. Tokens between the secret and query 15 read the secret, and query 15 reads these tokens.",
    patch: {
      shape: { len: 20 },
      facts: { labels: { pii: [3, 4] } },
      flow: {
        layers: ["causal - (queries(15..) & keys(label=\"pii\"))"],
        depth: 6,
        token: 15,
        policy: "# the answer must not depend on the private label\ndeny: label(pii) -> tokens(15..20)",
        violation: 0,
      },
    },
  },
  {
    name: "A private label, hidden from all",
    says: "If only the secret's own queries read the secret, the secret reaches no other token after any number of layers.",
    patch: {
      shape: { len: 20 },
      facts: { labels: { pii: [3, 4] } },
      flow: {
        layers: ["causal - (keys(label=\"pii\") - queries(label=\"pii\"))"],
        depth: 6,
        token: 15,
        policy: "deny: label(pii) -> output\n# its own tokens may read one another\nallow: label(pii) -> label(pii)",
      },
    },
  },
  {
    name: "65,536 tokens",
    says: "A whole book: five layers with windows of 1,024 tokens and one sparse layer alternate. The picture shows bands. Zoom with the wheel.",
    patch: {
      shape: { len: 65536 },
      facts: {},
      flow: { layers: [...Array(5).fill("sliding(1024)"), "causal & stride(4096)"], depth: 24, token: 40000 },
    },
  },
];
