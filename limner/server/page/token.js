// The form that asks for a token in place of the results.

import { hasToken, setToken } from "./api.js";
import { byId } from "./elements.js";
import { tokenForm } from "./notices.js";

/** `onToken()` after somebody has given one. */
export function askToken(onToken) {
  const form = tokenForm(hasToken(), (token, remember) => {
    setToken(token, remember);
    onToken();
  });
  byId("notice").replaceChildren(form);
  byId("forget").hidden = true;
  form.querySelector("input").focus();
}
