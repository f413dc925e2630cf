// Drain and resume: two presses, and words where they are not to be had.

import { ask } from "./access.js";
import { el, set } from "./dom.js";

export class Operate {
  /** `ask` are the words before it is done, by action. */
  constructor(ask) {
    this.ask = ask;
    this.place = el("div", { class: "operate" });
    this.told = el("p", { class: "small", role: "status" });
    this.buttons = new Map();
  }

  /** `told.why_not` is null for those who may. */
  hello(told, hint) {
    this.buttons.clear();
    this.place.replaceChildren();
    for (const action of told.actions) {
      const button = el("button", { type: "button", class: "action", "data-action": action, onclick: () => this.#sure(action) });
      set(button, "text", action === "drain" ? "Drain" : "Resume");
      button.disabled = told.why_not !== null;
      this.buttons.set(action, button);
      this.place.append(button);
    }
    this.allowed = told.why_not === null;
    this.hint = el("p", { class: "muted small", id: "why-not" }, told.why_not ?? "", el("br"), hint ? el("code", { text: hint }) : null);
    if (told.why_not !== null) this.place.append(this.hint);
    this.place.append(this.told);
  }

  /** Which make sense now. */
  show(possible) {
    for (const [action, button] of this.buttons) button.disabled = !this.allowed || !possible.includes(action);
    if (this.sure !== undefined && !possible.includes(this.sure.dataset.action)) this.#done();
  }

  #sure(action) {
    this.#done();
    const yes = el("button", { type: "button", class: "action danger", text: "Yes", "data-sure": action, onclick: () => this.#act(action) });
    const no = el("button", { type: "button", class: "action", text: "No", onclick: () => this.#done() });
    this.sure = el("div", { class: "sure", role: "alertdialog", "data-action": action }, el("span", { text: this.ask[action] }), yes, no);
    this.place.append(this.sure);
    yes.focus();
  }

  #done() {
    this.sure?.remove();
    this.sure = undefined;
  }

  async #act(action) {
    this.#done();
    set(this.told, "text", "");
    try {
      const answer = await ask(`console/${action}`, { method: "POST" });
      if (answer.ok) return;
      const problem = await answer.json().catch(() => ({}));
      set(this.told, "text", `Not done: ${problem.detail ?? answer.status}`);
    } catch {
      set(this.told, "text", "Not done: nobody answers there.");
    }
  }
}
