// The server's API: one function for each endpoint.

import { saveAs } from "./dom.js";

/**
 * An error of the server. `start` and `end` are positions in the mask's text, and `layer` is the index of the faulty mask. `cause` is a key
 * of `CAUSES` in `causes.js`, and `subject` is the label, fact or elementary mask that the error is about. `sizes` is `[batch rows, heads,
 * queries, keys]` of the mask, and `repair` a text that replaces the faulty part. The `status` 0 means that there was no response.
 */
export class ApiError extends Error {
  constructor(status, { message, hint, start, end, layer, cause, name, sizes, repair } = {}) {
    super(message ?? `The server answered with status ${status}.`);
    const given = { hint, start, end, layer, cause, sizes, repair, subject: name };
    Object.assign(this, { status }, Object.fromEntries(Object.entries(given).map(([key, value]) => [key, value ?? null])));
  }
}

/** Returns whether `error`, the error of a request, means that the page itself cancelled the request. */
export const aborted = (error) => error?.name === "AbortError";

/** Returns the message and the hint of an error as text. Returns an empty text if there is no error. */
export const errorWords = (error) => [error?.message, error?.hint].filter(Boolean).join(" ");

// The id of a mask depends only on its content. The server keeps only the latest masks; the page sends the scene of an older one again.
const scenes = new Map();
const REMEMBERED = 256;

function remember(id, scene) {
  scenes.delete(id);
  scenes.set(id, scene);
  if (scenes.size > REMEMBERED) scenes.delete(scenes.keys().next().value);
}

// A mask without a scene was made by the server.
const LOST = {
  message: "This mask came from a file or a text: give the file or the text again.",
  hint: "The server keeps only the latest masks and no longer has this mask.",
};

const pause = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });

async function send(path, { method = "GET", body, type, signal } = {}) {
  // Browsers log every status from 400 on in the console, but an unfinished mask is no fault of the page. So the server is requested to put
  // the status into a header.
  const headers = { "X-Noren-Errors": "200", ...(body !== undefined && { "Content-Type": type ?? "application/json" }) };
  for (let tries = 0; ; tries += 1) {
    let response;
    try {
      response = await fetch(`api/${path}`, { method, body, headers, signal });
    } catch (error) {
      if (aborted(error)) throw error;
      throw new ApiError(0, { message: "The server does not answer.", hint: "Is the server still running?" });
    }
    const status = Number(response.headers.get("X-Noren-Status") ?? response.status);
    if (status < 400) return response;
    if ((status === 429 || status === 503) && tries < 5) {
      await pause(100 * 2 ** tries * (0.7 + 0.6 * Math.random()), signal);
      continue;
    }
    const said = await response.json().catch(() => ({}));
    throw new ApiError(status, said.error);
  }
}

/**
 * Sends a request about the masks with the identities `ids`. If the server no longer has one of these masks, sends the expressions, shapes
 * and facts of the masks again and repeats the request.
 */
async function ask(ids, path, options) {
  const known = ids.filter((id) => id && scenes.has(id));
  for (const id of known) remember(id, scenes.get(id)); // scenes that are in use are kept
  try {
    return await send(path, options);
  } catch (error) {
    if (error.status !== 410) throw error;
    if (known.length < ids.filter(Boolean).length) throw new ApiError(410, LOST);
    await Promise.all(known.map((id) => masks(scenes.get(id), options)));
    return send(path, options);
  }
}

const query = (values) => {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
};

const post = (path, value, { signal } = {}) =>
  send(path, { method: "POST", body: JSON.stringify(value), signal }).then((r) => r.json());

// Values that do not change while the server runs are requested once, and again after a failure.
const once = (path) => {
  let asked = null;
  return () => {
    asked ??= send(path).then((r) => r.json());
    asked.catch(() => (asked = null));
    return asked;
  };
};

export const language = once("language");
export const presets = once("presets");
export const model = once("model");
export const doctorClasses = once("doctor/classes");

/** Returns the response of a file of the page. `what` names the file in an error. */
async function fileOf(path, what) {
  const response = await fetch(path).catch(() => null);
  if (!response?.ok) throw new ApiError(0, { message: `${what} cannot be loaded.`, hint: "Is the server still running?" });
  return response;
}

export const lessons = async () => (await fileOf("lessons.json", "The lessons")).json();
/** The example stacks of the flow view: `patch` is the change of the page's state that shows a stack. */
export const stacks = async () => (await fileOf("flow.json", "The examples")).json();
/** The bytes of an example of the doctor view. */
export const example = async (name) => new Uint8Array(await (await fileOf(`examples/${name}`, "The example")).arrayBuffer());

/**
 * Sends a scene (mask, shape, facts, layer) to the server, which binds the mask. Returns the id, the sizes, the assumed
 * sizes and the patterns (groups of batch rows and heads with equal cells) of the bound mask.
 */
export async function masks(scene, options) {
  const bound = await post("masks", scene, options);
  remember(bound.id, scene);
  return bound;
}

/**
 * Requests a tile of a mask's picture, which has up to 256 by 256 pixels. A pixel shows `2^level` by `2^level` cells of the mask. `row` and
 * `col` are the indices of the tile among the tiles of this level. Returns `{rows, cols, firstQuery, firstKey, cells}`. `cells` has one
 * byte for each pixel. Bits 0 and 1: none, some or all of its cells are allowed (0, 1, 2). With `plan`, bits 2 and 3: skipped, in a mixed
 * tile, in a full tile (0, 1, 2). With `other`, bit 4: some cells are only in this mask; bit 5: some are only in the other mask; bits 6
 * and 7: bits 0 and 1 of the other mask.
 */
export async function tile(id, level, row, col, { batch = 0, head = 0, plan, other, signal } = {}) {
  const path = `masks/${id}/tiles/${level}/${row}/${col}${query({ batch, head, plan: plan ? 1 : null, other })}`;
  const bytes = await (await ask([id, other], path, { signal })).arrayBuffer();
  const [rows, cols, firstQuery, firstKey] = [0, 4, 8, 12].map((at) => new DataView(bytes).getUint32(at, true));
  return { rows, cols, firstQuery, firstKey, cells: new Uint8Array(bytes, 16) };
}

const json = (ids, path, options) => ask(ids, path, options).then((r) => r.json());

/** Requests the reason why query `q` may or may not read key `k`. */
export const explain = (id, { batch = 0, head = 0, q, k, other, signal }) =>
  json([id, other], `masks/${id}/explain${query({ batch, head, q, k, other })}`, { signal });

/**
 * Requests the first cell behind the next border between allowed and denied cells. The search begins at a cell and continues along the row
 * of this cell (if `along` is `keys`) or along its column (`queries`). `back` searches towards smaller positions. Returns `{cell,
 * allowed}`; `cell` is null if there is no border.
 */
export const border = (id, { batch = 0, head = 0, q, k, along, back = false, signal }) =>
  json([id], `masks/${id}/border${query({ batch, head, q, k, along, back: back ? 1 : null })}`, { signal });

/** Reads pasted arrays as facts. Returns `{readings, refused}`; more than one reading means that the text is ambiguous. */
export const recognise = (text, options) => post("facts", { text }, options);

/** Requests the first cell in which two masks differ, and for each mask the number of cells that only this mask allows. */
export const difference = (id, other, { signal } = {}) =>
  json([id, other], `masks/${id}/difference${query({ other })}`, { signal });

/** Requests a mask as code of the library `to`, or the reason why this is not possible. */
export const code = (id, to, { signal } = {}) => json([id], `masks/${id}/code${query({ to })}`, { signal });

/** Requests the predicted cost of attention with a mask, and the cost of attention that computes all cells. */
export const cost = (id, { head_dim, dtype, signal } = {}) => json([id], `masks/${id}/cost${query({ head_dim, dtype })}`, { signal });

/** Requests the predicted costs of a mask for several numbers of tokens. */
export const curve = (scene, { head_dim, dtype, signal } = {}) => post(`curve${query({ head_dim, dtype })}`, scene, { signal });

/** Requests a flow: which tokens influence which tokens over all layers, and whether the policy holds. */
export const flow = (request, options) => post("flow", request, options);

/** Runs a text through the model of the server, and returns the answer. */
export const text = (request, options) => post("text", request, options);

/** Sends a file of at most 64 MiB to the server, which diagnoses the mask in the file. */
const diagnosed = (file, { name, context, meant, repair, signal } = {}) =>
  send(`doctor${query({ name: name ?? file.name, context: context && JSON.stringify(context), meant, repair })}`, {
    method: "POST",
    body: file,
    type: "application/octet-stream",
    signal,
  });

/** Requests the report about the mask in a file. */
export const doctor = (file, options) => diagnosed(file, options).then((r) => r.json());

/** Downloads the repaired array in the shape, number type and convention of the array in the file. Throws ApiError. */
export const downloadRepair = async (file, options) => save(await diagnosed(file, { ...options, repair: 1 }));

/**
 * Requests a mask in the format `as`: svg, png, txt, html, expression, markdown, notebook, json or npy. `rows` and `keys` are the ranges of
 * queries and keys to draw, such as `0..32`. If the server no longer has the mask, sends the mask first.
 */
const exported = (id, { as, batch, head, plan, other, rows, keys }) =>
  ask([id, other], `masks/${id}/export${query({ as, batch, head, plan: plan ? 1 : null, other, rows, keys })}`, {});

/** Returns the content of a mask's export as a blob. Throws ApiError. */
export const exportedBlob = async (id, options) => (await exported(id, options)).blob();

/** Saves the body of a response in a file with the name that the server gives. */
async function save(response) {
  const named = /filename="?([^";]+)"?/.exec(response.headers.get("Content-Disposition") ?? "");
  saveAs(await response.blob(), named?.[1] ?? "noren");
}

/** Downloads a mask in a file. If the server no longer has the mask, sends the mask with its shape and facts first. Throws ApiError. */
export const download = async (id, options) => save(await exported(id, options));

/**
 * Downloads a certificate in a file that `noren verify` checks. `view` is `flow` or `text`, and `request` is a request of this view: that of
 * `flow` or `text` above. Throws ApiError.
 */
export const downloadCertificate = async (view, request) =>
  save(await send(`${view}/certificate`, { method: "POST", body: JSON.stringify(request) }));
