// The flow view: stacked layers, the tokens that reach a token and that it reaches, and whether a policy holds.

import { AskingView } from "../base/asking-view.js";
import { commandFold, flowCommand } from "../base/command.js";
import { button, iconButton } from "../base/dialog.js";
import { debounce, el, fill, number, plural, saveAs } from "../base/dom.js";
import { Facts } from "../edit/facts.js";
import { choice, labelled, segments } from "../edit/fields.js";
import { LayersPanel, presetsPanel } from "./layers.js";
import { FlowPicture } from "./picture.js";
import { PolicyPanel } from "./policy.js";
import { changing, counts, has, holds, inWords } from "./sets.js";
import { request, settings } from "./settings.js";
import { paintError, repairable } from "../base/repairs.js";

export const id = "flow";
export const title = "Flow";

/**
 * The maximum number of rows of the table. Each row is a layer, with the tokens that reach the chosen token and the tokens that the chosen
 * token reaches.
 */
const MOST_ROWS = 64;

export class View extends AskingView {
  constructor(ctx) {
    super(ctx, id);
    this.asked = null; // the request that was last sent, as text
    this.answer = null;
    this.window = "null"; // the visible tokens, as last stored in the state
    this.layers = new LayersPanel({
      language: ctx.language,
      labels: () => Object.keys(ctx.state.get().facts.labels ?? {}),
      onLayers: (layers) => this.change({ layers }, { typed: true }),
      onDepth: (depth) => this.change({ depth, violation: undefined }),
      onFill: (word) => this.change({ fill: word }),
    });
    this.facts = new Facts({ onChange: (patch) => ctx.state.set(patch, { replace: true }) });
    this.policy = new PolicyPanel({
      onText: (policy) => this.change({ policy, violation: undefined }),
      onViolation: (index) => this.choose(index),
      onCertificate: () => this.certify(),
    });
    this.begin = presetsPanel((patch) => ctx.state.set({ at: [0, 0], ...patch }));
    this.ask = debounce(() => this.send(), 40);
    this.build();
    this.offerModels();
  }

  build() {
    this.buildStage();
    this.root = el("div", { class: "flow" },
      el("header", { class: "flow-head" }, el("h1", {}, "Which tokens reach which"), this.begin.root),
      el("div", { class: "flow-side" }, this.layers.root, this.policy.root,
        el("section", { class: "panel flow-facts", "aria-label": "Shape and facts" }, this.facts.element)),
      el("div", { class: "flow-main" }, this.buildPicture(), this.buildNotes()));
  }

  /** Builds the canvas and its keyboard controls. */
  buildStage() {
    const canvas = el("canvas", { class: "flow-canvas", "aria-hidden": "true" });
    this.stage = el("div", {
      class: "flow-stage", role: "slider", tabindex: 0, "aria-label": "Token", "aria-valuemin": 0, "aria-valuemax": 0,
      "aria-valuenow": 0, "aria-describedby": "flow-keys", onkeydown: (event) => this.key(event),
    }, canvas);
    this.picture = new FlowPicture(canvas, {
      onToken: (token) => this.change({ token }, { replace: false }),
      onView: () => this.keepWindow(),
      onHover: (token, level) => this.hover(token, level),
    });
    this.stage.picture = this.picture; // for the console, and for tests
    this.keepWindow = debounce(() => {
      const window = this.picture.window();
      this.window = JSON.stringify(window);
      this.change({ window: window ?? undefined });
    }, 250);
  }

  /** Builds the panel of the flow picture: the summary, the canvas, the legend and the list of keys. */
  buildPicture() {
    this.summary = el("p", { class: "flow-summary", "aria-live": "polite" });
    this.readout = el("p", { class: "flow-readout soft small" });
    this.problem = el("p", { class: "notice bad", role: "alert", hidden: true });
    this.lacks = el("p", { class: "notice warn flow-lacks", role: "status", hidden: true });
    const keys = (...names) => names.flatMap((name) => [el("kbd", {}, name), " "]);
    return el("section", { class: "panel flow-picture", "aria-label": "Picture" },
      this.buildBar(), this.problem, this.summary, this.stage,
      el("div", { class: "flow-legend small" },
        el("span", { class: "flow-key back" }, "tokens that reach the selected token"), el("span", { class: "flow-key reach" }, "tokens that the selected token reaches"),
        el("span", { class: "flow-key path" }, "a path that the policy denies"), this.readout),
      this.lacks,
      el("p", { class: "soft small", id: "flow-keys" },
        "Click a token to select it. These keys select another token: ", keys("←", "→", "Home", "End"),
        "These keys zoom: ", keys("+", "−", "0")));
  }

  buildBar() {
    this.token = el("input", {
      type: "number", min: 0, inputmode: "numeric",
      oninput: () => this.token.value !== "" && this.token.validity.valid && this.change({ token: Number(this.token.value) }),
    });
    this.batch = choice("Batch row", (row) => this.ctx.state.set({ at: [Number(row), this.state.at[1]] }));
    const directions = { both: "Both", back: "Tokens that reach the selected token", reach: "Tokens it reaches" };
    this.directions = segments(directions, "Directions", (name) => this.change({ directions: name }));
    return el("div", { class: "flow-bar" },
      labelled("Token", this.token, { row: true }), this.batch.element, this.directions.element,
      el("span", { class: "flow-zoom" },
        iconButton("Zoom out", "−", () => this.picture.zoom(1.6)), iconButton("Zoom in", "+", () => this.picture.zoom(1 / 1.6)),
        iconButton("Whole picture", "⤢", () => this.picture.fit()),
        button("Save PNG", () => this.save())));
  }

  /**
   * Builds the notes below the picture: the table of the tokens that are reached after each layer, a list of the paths of information
   * outside of attention (the flow does not cover these paths), and the command.
   */
  buildNotes() {
    this.levels = el("tbody");
    this.assumed = el("p", { class: "soft small", hidden: true });
    this.channels = el("ul", { class: "flow-channels" });
    this.command = commandFold(this.ctx.toast);
    const names = ["Layers", "Inputs that reach the selected output", "which", "Outputs it reaches", "which"];
    const head = el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col" }, name))));
    return el("div", { class: "panel flow-notes" },
      el("details", { class: "fold" }, el("summary", {}, "Layer by layer"),
        el("div", { class: "scroll" }, el("table", { class: "figures flow-table" }, head, this.levels))),
      el("details", { class: "fold" }, el("summary", {}, "Paths of information outside attention, which this result does not cover"), this.channels),
      this.command.root, this.assumed);
  }

  // --- state ------------------------------------------------------------------------------------------------------------------

  update(state) {
    this.state = state;
    this.set = settings(state);
    this.layers.update(this.set);
    this.facts.update({ shape: state.shape, facts: state.facts, layer: state.layer }, null);
    this.policy.text(this.set.policy);
    this.command.show(flowCommand(this.set, state));
    this.directions.choose(this.set.directions);
    const body = JSON.stringify(request(state, this.set));
    if (body !== this.asked) {
      this.asked = body;
      this.ask();
    }
    if (this.answer) this.show();
  }

  async send() {
    const asked = this.state;
    const send = (signal) => this.answerTo(request(asked, this.set), signal);
    const answered = (answer) => {
      this.answer = answer;
      if (!answer.policy_error) this.good = asked;
      this.fail(null);
      this.show();
    };
    await this.askAlone(this.stage, send, answered, (error) => this.fail(error));
  }

  /**
   * Returns the server's answer to a flow request. If the server refuses a request for a batch row above 0, repeats the request for batch
   * row 0, because the batch row may come from an earlier mask with more batch rows.
   */
  async answerTo(body, signal) {
    const told = async (row) => {
      const answer = await this.ctx.api.flow({ ...body, batch: row }, { signal });
      const { back, back_count, reach, reach_count } = answer;
      return { ...answer, row, counts: { back: counts(back, back_count), reach: counts(reach, reach_count) } };
    };
    try {
      return await told(body.batch);
    } catch (error) {
      if (error.status !== 400 || body.batch === 0) throw error;
      return told(0);
    }
  }

  /**
   * Shows an error with its repairs: in the editor of the mask that has the error, or over the picture. Removes the error if `error` is
   * null.
   */
  fail(error) {
    this.facts.mark(null);
    const shown = error && this.repairs(error);
    this.layers.problem(shown, error?.layer ?? null);
    this.root.classList.toggle("stale", error !== null);
    const atMask = Boolean(error) && error.layer !== null; // the row of that mask shows the error
    paintError(this.problem, shown && !atMask ? shown : null);
    if (error) this.facts.blame(shown.control);
  }

  /** Returns the message that the view shows for an error, with the repairs that it offers. */
  repairs(error) {
    const { layer } = error;
    const editor = layer === null || layer === undefined ? null : this.layers.editor(layer);
    const places = { depth: this.layers.depth, policy: this.policy.input };
    return repairable(error, {
      now: this.ctx.state.get(),
      last: this.good
        ? { title: "back to the last layers", shape: this.good.shape, facts: this.good.facts, flow: this.good.flow }
        : { title: "start with causal", shape: { len: 24 }, facts: {}, flow: { layers: ["causal"], depth: 4 } },
      open: (control) => (control === "editor" ? editor?.focusError() : places[control] ? places[control].focus() : this.facts.open(control)),
      change: (patch) => this.ctx.state.set(patch),
      edit: editor && ((fn) => editor.retype(fn(editor.value()))),
      again: () => this.send(),
    });
  }

  async offerModels() {
    const [examples, all] = await Promise.all([this.ctx.api.stacks(), this.ctx.api.presets()].map((list) => list.catch(() => [])));
    const stacks = all.filter((preset) => preset.layers?.length);
    this.begin.show(examples, stacks.map(({ name, says, scene, layers, depth }) => ({
      name,
      says: `${name}: ${says}`,
      patch: { shape: scene.shape ?? {}, facts: scene.facts ?? {}, flow: { layers, depth: depth ?? layers.length } },
    })));
  }

  // --- display ------------------------------------------------------------------------------------------------------------------

  /** Returns the index of the token whose flow is shown: the token in the settings, but at most the last token of the answer. */
  chosen() {
    const { tokens } = this.answer;
    return Math.min(this.set.token ?? tokens - 1, tokens - 1);
  }

  show() {
    const { answer, set } = this;
    const token = this.chosen();
    // While the answer for a new token is loading, the column already moves; the cones of the old token are hidden.
    const own = has(answer.back[0], token);
    const violation = set.violation === null ? null : answer.violations?.[set.violation] ?? null;
    const resized = this.picture.show(answer, {
      token,
      back: own && set.directions !== "reach",
      reach: own && set.directions !== "back",
      path: violation?.witness ?? null,
      cut: violation?.cut ?? null,
    }, set.layers);
    this.lookAt(set.window, resized);
    this.stage.classList.toggle("violated", violation !== null);
    if (document.activeElement !== this.token) this.token.value = token;
    this.token.max = answer.tokens - 1;
    this.batch.element.hidden = !(answer.batch > 1);
    this.batch.show([...Array(Math.min(answer.batch, 1024)).keys()], answer.row);
    this.lacks.hidden = !answer.truncated;
    this.lacks.textContent = answer.truncated
      ? "The picture is incomplete: a layer with too many ranges of tokens shows only the first ranges. The counts include all tokens."
      : "";
    this.policy.show(answer, set.violation, (error) => this.repairs({ ...error, cause: error.cause ?? "policy", layer: null }));
    if (own) this.tell(token);
    fill(this.channels, answer.not_covered.map((channel) => el("li", {}, channel)));
    this.assumed.hidden = !answer.assumed?.length;
    this.assumed.textContent = `Assumed: ${(answer.assumed ?? []).join(", ")}`;
  }

  /**
   * Moves the picture to `window`, the range of tokens in the settings, unless the picture already shows this range. `resized` is true if
   * the number of tokens changed. If `resized` is true and the range is still the earlier one, the range is removed from the settings,
   * because it was chosen for the earlier number of tokens.
   */
  lookAt(window, resized) {
    const wanted = JSON.stringify(window);
    const own = wanted === this.window;
    this.window = wanted;
    if (own && resized && window) return this.change({ window: undefined }); // the range was for another number of tokens
    if (own) return undefined;
    const span = window && Math.min(Math.max(window[1] - window[0], 1), this.answer.tokens);
    return window ? this.picture.look(window[0], span) : this.picture.fit();
  }

  tell(token) {
    const { tokens, depth, back, reach, counts: all } = this.answer;
    const [reads, reached] = [all.back.at(-1), all.reach.at(-1)];
    const inputs = `${number(reads)} of ${plural(tokens, "input")} (${inWords(back.at(-1), 3, reads)})`;
    const outputs = `${plural(reached, "output")} (${inWords(reach.at(-1), 3, reached)})`;
    const words = `After ${plural(depth, "layer")} token ${number(token)} depends on ${inputs} and reaches ${outputs}.`;
    if (this.summary.textContent !== words) this.summary.textContent = words;
    this.stage.setAttribute("aria-valuemax", tokens - 1);
    this.stage.setAttribute("aria-valuenow", token);
    this.stage.setAttribute("aria-valuetext", `token ${token} of ${tokens}`);
    const last = Math.min(Math.max(changing(back, all.back), changing(reach, all.reach)), MOST_ROWS);
    const rows = Array.from({ length: last }, (_, level) =>
      el("tr", {}, el("th", { scope: "row" }, level),
        el("td", {}, number(all.back[level])), el("td", {}, inWords(back[level], 4, all.back[level])),
        el("td", {}, number(all.reach[level])), el("td", {}, inWords(reach[level], 4, all.reach[level]))));
    if (last <= depth) rows.push(el("tr", {}, el("td", { colspan: 5, class: "soft" }, last === MOST_ROWS ? "…" : "later layers add no tokens")));
    fill(this.levels, rows);
  }

  hover(token, level) {
    if (token === null || !this.answer) return void (this.readout.textContent = "");
    const { depth, back, reach, counts: all } = this.answer;
    const place = level === 0 ? "as an input" : level === depth ? "as an output" : `after ${plural(level, "layer")}`;
    const own = this.chosen();
    const reaches = holds(back[depth - level], token, all.back[depth - level]);
    const knows = holds(reach[level], token, all.reach[level]);
    const known = [
      reaches && `reaches output ${number(own)}`,
      knows && `depends on input ${number(own)}`,
      (reaches === null || knows === null) && "is in a layer that the picture shows incompletely",
    ].filter(Boolean);
    this.readout.textContent = `token ${number(token)} ${place}${known.length ? ` ${known.join(" and ")}` : ""}`;
  }

  certify() {
    return this.ctx.api.downloadCertificate("flow", request(this.state, this.set)).catch(this.ctx.refused);
  }

  choose(index) {
    const path = index === null ? null : this.answer.violations[index].witness;
    if (!path) return this.change({ violation: undefined }, { replace: false });
    const target = path.steps.at(-1)?.[1] ?? path.source;
    this.picture.fit();
    this.change({ violation: index, token: target }, { replace: false });
  }

  key(event) {
    if (!this.answer || event.altKey || event.ctrlKey || event.metaKey) return;
    const { tokens } = this.answer;
    const now = this.chosen();
    const page = Math.max(1, Math.round(tokens / 10));
    const steps = {
      ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -page, PageUp: page, Home: -now, End: tokens - 1 - now,
    };
    const by = steps[event.key];
    const zoom = { "+": 1 / 1.6, "=": 1 / 1.6, "-": 1.6 }[event.key];
    if (by !== undefined) {
      const token = Math.min(Math.max(now + by * (event.shiftKey ? 10 : 1), 0), tokens - 1);
      this.change({ token });
      this.picture.reveal(token);
    } else if (zoom) {
      this.picture.zoom(zoom, this.picture.x(now));
    } else if (event.key === "0") {
      this.picture.fit();
    } else {
      return;
    }
    event.preventDefault();
  }

  save() {
    this.picture.canvas.toBlob((blob) => saveAs(blob, "flow.png"));
  }
}
