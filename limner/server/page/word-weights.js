// Which words mattered: what the score loses without each.

import { h } from "./elements.js";

export function weightsView(words, weights) {
  if (!weights) return [h("h3", {}, "Which words mattered"), h("p", {}, "One word carries the whole score.")];
  const least = Math.min(0, ...weights);
  const span = Math.max(0, ...weights) - least || 1;
  const zero = (100 * -least) / span;
  const rows = words.map((word, index) => {
    const weight = weights[index];
    const bar = h("span", { class: "bar" });
    bar.style.left = `${weight < 0 ? zero - (100 * -weight) / span : zero}%`;
    bar.style.width = `${(100 * Math.abs(weight)) / span}%`;
    const axis = h("span", { class: "axis", "aria-hidden": "true" }, bar);
    axis.style.setProperty("--zero", `${zero}%`);
    return h(
      "li",
      { class: weight < 0 ? "against" : "for" },
      h("span", { class: "term" }, word),
      axis,
      h("span", { class: "amount" }, signed(weight)),
    );
  });
  return [
    h("h3", {}, "Which words mattered"),
    h("ul", { class: "weights" }, rows),
    h(
      "p",
      { class: "caption" },
      "How much the score falls without the word. Below zero: it rises, so the word speaks against this picture.",
    ),
  ];
}

const signed = (weight) => `${weight < 0 ? "−" : "+"}${Math.abs(weight).toFixed(3)}`;
