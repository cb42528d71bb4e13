// What the score does without each phrase of the description.

import { h } from "./elements.js";
import { decimal, t } from "./language.js";

/** `phrases` as the server has them: text, weight, and the noise in which a weight may lie. */
export function weightsView(phrases, method) {
  if (!phrases.length) return [h("h3", {}, t("weightsTitle")), h("p", {}, t("oneWord"))];
  const hidden = phrases.filter(withinNoise);
  const told = phrases.filter((phrase) => !withinNoise(phrase));
  const least = Math.min(0, ...told.map(({ weight }) => weight));
  const span = Math.max(0, ...told.map(({ weight }) => weight)) - least || 1;
  const zero = (100 * -least) / span;
  const rows = told.map(({ text, weight }) => {
    const bar = h("span", { class: "bar" });
    bar.style.left = `${weight < 0 ? zero - (100 * -weight) / span : zero}%`;
    bar.style.width = `${(100 * Math.abs(weight)) / span}%`;
    const axis = h("span", { class: "axis", "aria-hidden": "true" }, bar);
    axis.style.setProperty("--zero", `${zero}%`);
    return h(
      "li",
      { class: weight < 0 ? "rises" : "falls" },
      h("span", { class: "term" }, t("without", { words: text })),
      axis,
      h("span", { class: "amount" }, t(weight < 0 ? "rises" : "falls", { amount: decimal(Math.abs(weight), 3) })),
    );
  });
  return [
    h("h3", {}, t("weightsTitle")),
    rows.length && h("ul", { class: "weights" }, rows),
    hidden.length && h("p", { class: "caption noise" }, t("withinNoise", { words: namesOf(hidden).join(", ") })),
    h("p", { class: "caption" }, t(CAPTIONS[method] ?? "byLeavingOut")),
  ].filter(Boolean);
}

const CAPTIONS = {
  "masked-regression": "byRegression",
  "leave-one-out": "byLeavingOut",
  substitution: "bySubstitution",
};

const withinNoise = ({ weight, noise }) => noise != null && Math.abs(weight) <= noise;
const namesOf = (phrases) => [...new Set(phrases.map(({ text }) => text))];
