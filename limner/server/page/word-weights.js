// What the score does without each phrase of the description.

import { h } from "./elements.js";

const HEADING = "The score without each phrase";

/** `phrases` as the server has them: text, weight, and the noise in which a weight may lie. */
export function weightsView(phrases, method) {
  if (!phrases.length) return [h("h3", {}, HEADING), h("p", {}, "One word carries the whole score.")];
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
      h("span", { class: "term" }, text),
      axis,
      h("span", { class: "amount" }, `${weight < 0 ? "rises" : "falls"} by ${Math.abs(weight).toFixed(3)}`),
    );
  });
  return [
    h("h3", {}, HEADING),
    rows.length && h("ul", { class: "weights" }, rows),
    hidden.length && h("p", { class: "caption noise" }, `Within noise: ${namesOf(hidden).join(", ")}.`),
    h("p", { class: "caption" }, CAPTIONS[method] ?? CAPTIONS["leave-one-out"]),
  ].filter(Boolean);
}

const CAPTIONS = {
  "masked-regression":
    "What the model’s score does without these words, in the mean over shortened forms of the description.",
  "leave-one-out": "What the model’s score does if these words are left out.",
  substitution: "What the model’s score does if other words of their kind stand in their place.",
};

const withinNoise = ({ weight, noise }) => noise != null && Math.abs(weight) <= noise;
const namesOf = (phrases) => [...new Set(phrases.map(({ text }) => text))];
