// The request of the flow view: its valid settings, the request, and example rules.

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
