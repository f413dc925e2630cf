// The API token of whoever looks, where a service wants one. It stays in this tab, goes along in a
// header, and is in no address.

import { set } from "./dom.js";

const KEY = "spillover-api-token";
const UNKNOWN = 401;
const TOO_LITTLE = 403;
const POSSIBLE = /^[!-~]{1,500}$/; // what a header can carry: `fetch` fails for all else, as if nobody answered

let here = null; // in its place where a browser forbids storage, until the page is left

function kept() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return here;
  }
}

function keep(secret) {
  here = secret;
  try {
    if (secret === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, secret);
  } catch {
    // it is asked for again when the page is loaded again
  }
}

/** As `fetch`, with the API token that was given here. */
export function ask(path, options = {}) {
  const secret = kept();
  const headers = secret === null ? {} : { Authorization: `Bearer ${secret}` };
  return fetch(path, { ...options, headers, cache: "no-store" });
}

/** Whether an answer means that an API token is wanted, or another one. */
export function wantsAnother(answer) {
  return answer.status === UNKNOWN || (answer.status === TOO_LITTLE && kept() !== null);
}

/** The form in the page. `onGiven` is called once there is an API token, or another one. */
export class TokenForm {
  constructor(form, forget, onGiven) {
    this.form = form;
    this.forget = forget;
    this.secret = form.elements.namedItem("secret");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = this.secret.value.trim().replace(/^bearer\s+/i, "");
      this.secret.value = "";
      if (!POSSIBLE.test(given)) {
        this.#ask("This cannot be an API token: expected at most 500 letters, digits and signs of ASCII, without spaces.");
        return;
      }
      keep(given);
      this.hide();
      onGiven();
    });
    forget.addEventListener("click", () => {
      keep(null);
      location.reload();
    });
  }

  /** `why` is what the service said. */
  show(why) {
    const wasGiven = kept() !== null;
    keep(null);
    this.#ask(wasGiven ? `This one does not do: ${why}.` : "This service wants an API token with the role read.");
  }

  hide() {
    this.form.hidden = true;
    this.forget.hidden = kept() === null;
  }

  #ask(words) {
    set(this.form.querySelector("p"), "text", words);
    this.form.hidden = false;
    this.forget.hidden = true;
    this.secret.focus();
  }
}
