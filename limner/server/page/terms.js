// What a description takes away or weighs, as buttons that take it out again.

import { byId, h, icon } from "./elements.js";
import { t } from "./language.js";

/** `terms` are an answer's; `go(changes)` searches again. */
export function showTerms(state, terms, go) {
  const { text } = state;
  const without = ({ start, end }) => [...text].toSpliced(start, end - start).join("").replace(/\s+/g, " ").trim();
  const chips = terms.map((term) => {
    const words = term.text;
    const label = term.weight < 0 ? t("termAway", { words }) : t("termMore", { words, n: 1 + term.weight });
    return chip(label, () => go({ text: without(term) }));
  });
  if (terms.length) chips.push(h("li", {}, h("button", { type: "button", class: "quiet", onclick: () => go({ literal: true }) }, t("asSentence"))));
  if (state.literal) chips.push(chip(t("readAsSentence"), () => go({ literal: false })));
  byId("terms").replaceChildren(...chips);
}

const chip = (label, onclick) =>
  h(
    "li",
    {},
    h(
      "button",
      { type: "button", class: "active", "aria-label": t("removeFilter", { label }), onclick },
      h("span", { dir: "auto" }, label),
      icon("close"),
    ),
  );
