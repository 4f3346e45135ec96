// The lessons: a few sentences, a picture and one task each. The task is checked by comparing cells.

import { errorWords, lessons } from "../base/api.js";
import { createBinder, showError } from "../edit/bench.js";
import { MaskCanvas } from "../picture/canvas.js";
import { button } from "../base/dialog.js";
import { el, fill, inline, legendItem, onLink } from "../base/dom.js";
import { Editor } from "../edit/editor.js";
import { segments } from "../edit/fields.js";
import { check, sceneOf } from "./check.js";
import { Latest } from "../base/latest.js";
import { bandsOf, LEGENDS } from "../mask/parts.js";
import { BoundRow, rowSettings } from "../row/bound.js";
import { recall, remember } from "../base/storage.js";

export const id = "learn";
export const title = "Learn";

const KEY = "noren-lessons";

/** Returns the ids of the lessons that the user has solved. */
function done() {
  try {
    const stored = JSON.parse(recall(KEY) ?? "[]");
    return new Set(Array.isArray(stored) ? stored.filter((one) => typeof one === "string") : []);
  } catch {
    return new Set(); // another program wrote there
  }
}

export class View {
  #all = [];
  #lesson = null;
  #case = 0;
  #at = [0, 0]; // batch row, head
  #bound = null;
  #row = {}; // the settings of the row in numbers
  #query = null;
  #checking = new Latest();

  constructor(ctx) {
    this.ctx = ctx;
    this.binder = createBinder(ctx.api, {
      onBound: (bound) => this.#show(bound),
      onError: (error) => {
        showError(this.editor, error, { again: () => this.binder.again(), change: null });
        this.picture.outdate("The answer is not a mask yet. The picture shows the last mask.");
      },
    });
    this.#build();
    this.load();
  }

  #build() {
    const { api, language } = this.ctx;
    this.list = el("ol", { class: "learn-list" });
    this.count = el("p", { class: "soft small" });
    this.heading = el("h1", { tabindex: "-1" });
    this.place = el("p", { class: "eyebrow" });
    this.prose = el("div", { class: "learn-prose" });
    this.task = el("p", { class: "learn-task-says" });
    this.pieces = el("div", { class: "learn-pieces", role: "group", "aria-label": "Parts to insert" });
    this.editor = new Editor({
      label: "Your mask",
      language,
      placeholder: "type, or choose parts",
      labels: () => Object.keys(this.#lesson?.cases[this.#case].facts?.labels ?? {}),
      onInput: (answer) => this.#answer(answer),
    });
    this.feedback = el("div", { class: "learn-feedback", role: "status" });
    this.next = button("Next lesson", () => this.#step(1), { class: "primary" });
    this.checker = button("Check", () => this.#check(), { class: "primary" });
    this.buttons = el("div", { class: "learn-buttons" }, this.checker, button("Hint", () => this.#hint()),
      button("Start again", () => this.#clear()), this.next);
    this.cases = el("div", { class: "learn-cases" });
    this.picture = new MaskCanvas({
      api,
      label: "Your mask",
      onPick: ({ q }) => this.#choose(q),
      onError: (error) => this.ctx.toast(error.message, { kind: "error" }),
    });
    this.shown = el("p", { class: "soft small learn-shown" });
    this.row = new BoundRow({
      api,
      change: (patch) => {
        Object.assign(this.#row, patch);
        this.#showRow();
      },
      onQuery: (q) => this.#choose(q),
    });
    this.rowFold = el("details", { class: "fold panel learn-row", ontoggle: () => this.#showRow() },
      el("summary", {}, "One row in numbers"), this.row.element);
    this.main = el("div", { class: "learn-main" },
      el("div", { class: "learn-words" }, this.place, this.heading, this.prose,
        el("section", { class: "panel learn-task", "aria-label": "Task" }, el("h2", {}, "Task"), this.task, this.editor.element, this.pieces,
          this.buttons, this.feedback)),
      el("section", { class: "panel learn-picture", "aria-label": "Picture" }, this.cases, this.picture.element,
        el("ul", { class: "legend", "aria-label": "Colours" }, LEGENDS.cells.filter(([colour]) => colour !== "some").map(legendItem)), this.shown,
        button("Open in the mask view", () => this.#open(), { class: "plain" })),
      this.rowFold);
    this.main.hidden = true;
    this.wrong = el("p", { class: "notice bad", role: "alert", hidden: true });
    this.root = el("div", { class: "learn" },
      el("nav", { class: "learn-nav", "aria-label": "Lessons" }, el("h2", {}, "Attention masks in twelve lessons"), this.count, this.list,
        button("Forget my progress", () => this.#forget(), { class: "plain" })),
      this.wrong, this.main);
  }

  async load() {
    try {
      this.#all = await lessons();
    } catch (error) {
      this.wrong.hidden = false;
      this.wrong.textContent = errorWords(error);
      return;
    }
    this.main.hidden = false;
    this.update(this.ctx.state.get());
  }

  /**
   * Stores the user's answer in the page's state together with the id of the lesson, because the address of the page may not name a lesson.
   */
  #answer(answer) {
    this.ctx.state.set({ learn: { lesson: this.#lesson.id, answer } }, { replace: true });
  }

  update({ learn }) {
    if (this.#all.length === 0) return;
    const finished = done();
    const lesson = this.#all.find((one) => one.id === learn.lesson) ?? this.#all.find((one) => !finished.has(one.id)) ?? this.#all[0];
    const answer = learn.lesson === lesson.id && typeof learn.answer === "string" ? learn.answer : "";
    if (lesson !== this.#lesson) this.#enter(lesson);
    if (this.editor.value() !== answer) this.editor.setValue(answer);
    if (this.#checked !== answer) {
      this.#checking.stop();
      this.#tell(null);
      this.picture.pin(null);
    }
    this.#bind(answer);
  }

  #checked = null; // the answer to which the feedback belongs

  #bind(answer) {
    const mask = answer.trim() || this.#lesson.start;
    this.binder.bind(sceneOf(mask, this.#lesson.cases[this.#case]));
  }

  /** Shows another lesson, without an answer. */
  #enter(lesson) {
    const at = this.#all.indexOf(lesson);
    this.#lesson = lesson;
    this.#case = 0;
    this.#at = lesson.cases[0].see ?? [0, 0];
    this.#row = {};
    this.#query = lesson.q ?? null;
    this.#tell(null);
    this.place.textContent = `Lesson ${at + 1} of ${this.#all.length}`;
    this.heading.textContent = lesson.title;
    fill(this.prose, lesson.text.map((paragraph) => el("p", {}, inline(paragraph))));
    fill(this.task, inline(lesson.task));
    fill(this.pieces, lesson.pieces.map((piece) =>
      button(el("code", {}, piece.trim()), () => this.#insert(piece), { "aria-label": `Insert ${piece.trim()}` })));
    this.next.hidden = at === this.#all.length - 1;
    this.rowFold.open = Boolean(lesson.row);
    this.#paintCases();
    this.#paintList();
    this.editor.setError(null);
  }

  #paintList() {
    const finished = done();
    const known = this.#all.filter((one) => finished.has(one.id)).length;
    this.count.textContent = `${known} of ${this.#all.length} done`;
    fill(this.list, this.#all.map((one) =>
      el("li", {}, el("a", {
        href: this.ctx.state.link({ view: id, learn: { lesson: one.id } }),
        "aria-current": one === this.#lesson ? "step" : null,
        onclick: onLink(() => this.#go(one)),
      }, el("span", { class: finished.has(one.id) ? "learn-mark done" : "learn-mark", "aria-hidden": "true" }, finished.has(one.id) ? "✓" : ""),
      one.title, finished.has(one.id) && el("span", { class: "hidden-text" }, ", done")))));
    this.next.classList.toggle("primary", finished.has(this.#lesson.id));
  }

  #paintCases() {
    const { cases } = this.#lesson;
    const { shape } = cases[0];
    const choose = (names, label, chosen, set) => {
      const group = segments(Object.fromEntries(names.map((name, at) => [at, name])), label, (at) => set(Number(at)));
      group.choose(String(chosen));
      return group.element;
    };
    const several = (count, name, axis) => count > 1 && choose(Array.from({ length: count }, (_, at) => `${name} ${at}`), name, this.#at[axis], (at) => {
      this.#at = axis === 0 ? [at, this.#at[1]] : [this.#at[0], at];
      this.#paintCases();
      this.#show(this.#bound);
    });
    fill(this.cases,
      cases.length > 1 && choose(cases.map(({ name }) => name), "Case", this.#case, (at) => this.#goCase(at)),
      several(shape.batch ?? 1, "Batch row", 0), several(shape.heads ?? 1, "Head", 1));
    this.cases.hidden = this.cases.children.length === 0;
  }

  #goCase(at) {
    this.#case = at;
    this.#paintCases();
    this.picture.pin(null);
    this.#bind(this.editor.value());
  }

  #words() {
    const { words, queries } = this.#lesson.cases[this.#case];
    return words ? { keys: words, queries: queries ?? words } : null;
  }

  #show(bound) {
    if (!bound) return;
    this.#bound = bound;
    this.editor.setError(null);
    this.picture.outdate("");
    const [batch, head] = [Math.min(this.#at[0], bound.batch - 1), Math.min(this.#at[1], bound.heads - 1)];
    this.picture.show({
      id: bound.id, qLen: bound.q_len, kvLen: bound.kv_len, batch, head, tokens: this.#words() ?? undefined,
      bands: bandsOf(bound, batch, this.#lesson.cases[this.#case].facts?.side),
    });
    const own = this.editor.value().trim() !== "";
    const start = ["The editor is empty, so the picture shows the first mask of the lesson: ", el("code", {}, this.#lesson.start), "."];
    fill(this.shown, own ? "The picture shows your mask." : start);
    this.#showRow();
  }

  #showRow() {
    const bound = this.#bound;
    if (!bound || !this.rowFold.open) return;
    const q = Math.min(this.#query ?? bound.q_len - 1, bound.q_len - 1);
    const [batch, head] = [Math.min(this.#at[0], bound.batch - 1), Math.min(this.#at[1], bound.heads - 1)];
    this.row.show({ bound, batch, head, q, set: rowSettings(this.#row, bound.kv_len, "typed"), words: this.#words() });
  }

  /** Shows the row of a query in numbers. */
  #choose(q) {
    this.#query = q;
    this.rowFold.open = true;
    this.#showRow();
  }

  #insert(piece) {
    const { input } = this.editor;
    // At the start and after an opening bracket, the spaces around an operator are left out.
    const before = input.value.slice(0, input.selectionStart);
    this.editor.type(before === "" || before.endsWith(" ") ? piece.trimStart() : piece);
  }

  /** Shows the feedback `{kind, head, body}` to the answer; null removes it. */
  #tell(feedback) {
    this.#checked = feedback ? this.editor.value() : null;
    this.feedback.className = `learn-feedback ${feedback?.kind ?? ""}`;
    fill(this.feedback, feedback && [el("p", {}, el("strong", {}, feedback.head)), feedback.body && el("p", {}, inline(feedback.body))]);
  }

  #hint() {
    this.#tell({ kind: "hint", head: "Hint", body: this.#lesson.hint });
  }

  #clear() {
    this.#answer("");
    this.editor.focus();
  }

  #check() {
    const answer = this.editor.value();
    const lesson = this.#lesson;
    if (answer.trim() === "") return this.#tell({ kind: "wrong", head: "There is no answer yet.", body: "Write a mask, or choose parts from the list." });
    const refused = (error) => {
      showError(this.editor, error, { again: () => this.binder.again(), change: null });
      this.#tell({ kind: "wrong", head: "This is not a mask yet.", body: errorWords(error) });
    };
    return this.#checking.ask((signal) => check(this.ctx.api, lesson, answer, { signal }), (result) => this.#judge(lesson, result), refused);
  }

  /** Shows the result of a check of the answer to a lesson. */
  #judge(lesson, { right, says, why, at, cell }) {
    if (right) {
      remember(KEY, JSON.stringify([...done().add(lesson.id)]));
      this.#tell({ kind: "right", head: "Right.", body: lesson.cases.length > 1 ? "Every cell is right in every case of the lesson." : "Every cell is right." });
      this.#paintList();
      (this.next.hidden ? this.checker : this.next).focus();
      return;
    }
    this.#tell({ kind: "wrong", head: `Not yet. ${says}`, body: why });
    if (!cell) return;
    this.#at = [cell.batch, cell.head];
    if (at !== this.#case) this.#goCase(at);
    this.#paintCases();
    this.#show(this.#bound);
    this.picture.pin({ q: cell.q, k: cell.k });
  }

  #go(lesson) {
    this.ctx.state.set({ learn: { lesson: lesson.id } });
    this.heading.focus();
    window.scrollTo(0, 0);
  }

  #step(by) {
    const to = this.#all[this.#all.indexOf(this.#lesson) + by];
    if (to) this.#go(to);
  }

  #forget() {
    remember(KEY, "[]");
    this.#paintList();
  }

  #open() {
    const { mask, shape, facts } = sceneOf(this.editor.value().trim() || this.#lesson.start, this.#lesson.cases[this.#case]);
    this.ctx.go("mask", { mask, shape, facts, at: this.#at, layer: null, other: null, camera: null, cell: null });
  }
}
