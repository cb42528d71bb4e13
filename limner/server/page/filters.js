// Filters from what the store knows of its pictures, and grouping.

import { isCondition, nameable, understood, written } from "./conditions.js";
import { byId, h, icon } from "./elements.js";
import { clock, count, either, t } from "./language.js";

const panel = byId("filters");
const toggle = byId("filters-toggle");
const NOTHING = { fields: [], times: null, identities: false };
let info = NOTHING;
let changed = () => {};
let state = null;

/** `onChange(changes)` gets what is to change in the query. */
export function startFilters(onChange) {
  changed = onChange;
  toggle.addEventListener("click", () => showPanel(panel.hidden));
  panel.addEventListener("submit", (event) => event.preventDefault());
  byId("group").addEventListener("change", (event) => changed({ group: event.target.value }));
}

/** Builds the controls for a store. */
export function buildFilters(given) {
  info = given;
  const listed = info.fields.filter(({ name, values }) => values.length && nameable(name));
  const others = info.fields.filter(({ name, values }) => !values.length && nameable(name));
  panel.replaceChildren(...listed.map(choice), ...(info.times ? [times()] : []), freeCondition(others));
  byId("group").querySelector('[value="identity"]').hidden = !info.identities;
  if (state) fillFilters(state);
}

/** Forgets the store. */
export const clearFilters = () => buildFilters(NOTHING);

/** Shows what the address says. */
export function fillFilters(given) {
  state = given;
  for (const box of panel.querySelectorAll("input[type=checkbox]")) {
    box.checked = chosen(box.name).includes(box.value);
  }
  for (const name of ["after", "before"]) {
    const input = panel.querySelector(`input[name=${name}]`);
    if (input) input.value = state[name].slice(0, 16);
  }
  byId("group").value = state.group;
  const chips = activeChips();
  byId("active").replaceChildren(...chips);
  byId("filters-count").textContent = chips.length ? count(chips.length) : "";
}

/** A condition for this value, where the store has the field and the server would read it; else null. */
export function conditionFor(name, value) {
  const known = info.fields.some((field) => field.name === name) && nameable(name);
  if (!(known || name === "identity") || !["string", "number"].includes(typeof value)) return null;
  const condition = written(name, [String(value)]);
  return isCondition(condition) ? condition : null;
}

function showPanel(shown) {
  panel.hidden = !shown;
  toggle.setAttribute("aria-expanded", shown);
}

const conditionsOf = (name) =>
  state.where.filter((condition) => understood(condition, info.fields)?.field.name === name);

const chosen = (name) => conditionsOf(name).flatMap((condition) => understood(condition, info.fields).values);

function choose(name, value, wanted) {
  const values = chosen(name).filter((one) => one !== value);
  if (wanted) values.push(value);
  const others = state.where.filter((condition) => !conditionsOf(name).includes(condition));
  const condition = written(name, values);
  if (values.length && !isCondition(condition)) fillFilters(state);
  else changed({ where: values.length ? [...others, condition] : others });
}

function choice({ name, values }) {
  const boxes = values.map((value) =>
    h(
      "label",
      { class: "chip" },
      h("input", {
        type: "checkbox",
        name,
        value,
        onchange: (event) => choose(name, value, event.target.checked),
      }),
      h("span", { dir: "auto" }, value),
    ),
  );
  return h("fieldset", {}, h("legend", { dir: "auto" }, name), h("div", { class: "chips" }, boxes));
}

function times() {
  const min = String(info.times[0]).slice(0, 16);
  const input = (name) =>
    h("input", {
      type: "datetime-local",
      name,
      min,
      onchange: (event) => changed({ [name]: event.target.value }, { replace: true }),
    });
  return h(
    "fieldset",
    {},
    h("legend", {}, t("taken")),
    h(
      "div",
      { class: "times" },
      h("label", {}, t("from"), input("after")),
      h("label", {}, t("before"), input("before")),
    ),
    h(
      "p",
      { class: "hint" },
      t("timesOfStore", { first: clock(info.times[0]), last: clock(info.times[1]) }),
    ),
  );
}

function freeCondition(others) {
  const input = h("input", {
    type: "text",
    id: "where",
    placeholder: "height>=170",
    spellcheck: "false",
    autocapitalize: "none",
    dir: "ltr", // names and signs, in the order in which the server reads them
    "aria-describedby": "where-wrong",
  });
  const wrong = h("p", { class: "hint wrong", id: "where-wrong", role: "alert" });
  const add = () => {
    const condition = input.value.trim();
    if (!condition) return;
    wrong.textContent = isCondition(condition) ? "" : t("conditionWrong");
    if (wrong.textContent) return;
    input.value = "";
    if (!state.where.includes(condition)) changed({ where: [...state.where, condition] });
  };
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    add();
  });
  const start = (name) => {
    input.value = `${name}=`;
    input.focus();
  };
  const names = others.map(({ name }) =>
    h("button", { type: "button", class: "name", onclick: () => start(name) }, name),
  );
  return h(
    "fieldset",
    {},
    h("legend", {}, h("label", { for: "where" }, t("otherCondition"))),
    h("div", { class: "where" }, input, h("button", { type: "button", onclick: add }, t("add"))),
    wrong,
    h(
      "p",
      { class: "hint" },
      names.length ? [`${t("knownFields")} `, ...names, " — "] : null,
      t("conditionSigns"),
    ),
  );
}

function activeChips() {
  const removable = (label, changes) =>
    h(
      "li",
      {},
      h(
        "button",
        {
          type: "button",
          class: "active",
          "aria-label": t("removeFilter", { label }),
          onclick: () => changed(changes),
        },
        h("span", { dir: "auto" }, label),
        icon("close"),
      ),
    );
  const chips = state.where.map((condition) => {
    const known = understood(condition, info.fields);
    const label = known ? `${known.field.name}: ${either(known.values)}` : condition;
    return removable(label, { where: state.where.filter((one) => one !== condition) });
  });
  if (state.after) chips.push(removable(t("fromTime", { time: clock(state.after) }), { after: "" }));
  if (state.before) chips.push(removable(t("beforeTime", { time: clock(state.before) }), { before: "" }));
  return chips;
}
