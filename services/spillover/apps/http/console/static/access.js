// The API token of whoever looks, where a service wants one. It stays in this tab, goes along in a
// header, and is in no address.

import { set } from "./dom.js";

const KEY = "spillover-api-token";
const UNKNOWN = 401;
const TOO_LITTLE = 403;

/** As `fetch`, with the API token that was given here. */
export function ask(path, options = {}) {
  const secret = sessionStorage.getItem(KEY);
  const headers = secret === null ? {} : { Authorization: `Bearer ${secret}` };
  return fetch(path, { ...options, headers, cache: "no-store" });
}

/** Whether an answer means that an API token is wanted, or another one. */
export function wantsAnother(answer) {
  return answer.status === UNKNOWN || (answer.status === TOO_LITTLE && sessionStorage.getItem(KEY) !== null);
}

/** The form in the page. `onGiven` is called once there is an API token, or another one. */
export class TokenForm {
  constructor(form, forget, onGiven) {
    this.form = form;
    this.forget = forget;
    this.secret = form.elements.namedItem("secret");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, this.secret.value.trim());
      this.secret.value = "";
      onGiven();
    });
    forget.addEventListener("click", () => {
      sessionStorage.removeItem(KEY);
      location.reload();
    });
  }

  /** `why` is what the service said. */
  show(why) {
    const wasGiven = sessionStorage.getItem(KEY) !== null;
    sessionStorage.removeItem(KEY);
    set(this.form.querySelector("p"), "text", wasGiven ? `This one does not do: ${why}.` : "This service wants an API token with the role read.");
    this.form.hidden = false;
    this.forget.hidden = true;
    this.secret.focus();
  }

  hide() {
    this.form.hidden = true;
    this.forget.hidden = sessionStorage.getItem(KEY) === null;
  }
}
