// Many descriptions at once: a row each, with its first pictures.

import { patiently, Problem, search, showPicture } from "./api.js";
import { closing, download, formButtons } from "./bench.js";
import { byId, h } from "./elements.js";
import { alternativeText } from "./facts.js";
import { t } from "./language.js";
import { sureness } from "./results.js";

const FIRST = 5; // pictures of a row
const AT_ONCE = 4; // the server answers together what comes together
const MOST = 1000;
const LONGEST = 2000; // characters of a description
const FORMS = ["csv", "json", "queries"];
const KEPT = "limner.many"; // in the tab's storage: a reload and the way back find the descriptions again

let doing = {};
let asking = null;
let rows = []; // {name, text, answer}
let file = ""; // that the descriptions are from, as long as nobody has changed them

/** `onOpen(text, id)` shows a description's own results; `onProblem(problem)` says whether it saw to it. */
export function startMany(handlers) {
  doing = handlers;
  byId("many-form").addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  byId("many-file").addEventListener("change", async (event) => {
    const [chosen] = event.target.files;
    event.target.value = "";
    if (!chosen) return;
    byId("many-text").value = await chosen.text();
    nameFile(chosen.name);
    start();
  });
  byId("many-text").addEventListener("input", () => {
    nameFile("");
    keep(false);
  });
  byId("many-stop").addEventListener("click", () => asking?.abort());
  byId("many-forms").replaceChildren(...formButtons(FORMS, exportRows));
  closing(byId("many-export"));
}

function nameFile(name) {
  file = name;
  byId("many-of").textContent = name ? t("fromFileNamed", { name }) : "";
}

function keep(asked) {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify({ text: byId("many-text").value, file, asked }));
  } catch {
    // Without storage, or with more text than it takes, they last as long as the page.
  }
}

export function openMany() {
  document.body.dataset.state = "many";
  document.title = `${t("manyTitle")} · limner`;
  byId("notice").replaceChildren();
  restore();
  byId("many-text").focus();
}

/** What was there before the page was loaded again; what was asked is asked once more. */
function restore() {
  if (byId("many-text").value) return;
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) || "{}");
    byId("many-text").value = kept.text || "";
    nameFile(kept.file || "");
    if (kept.asked) start();
  } catch {
    // Storage may be forbidden.
  }
}

/** Lines as `limner search --queries` reads them: a description, or a name, a tab and a description. */
export function readLines(text) {
  return text
    .split(/\r?\n/)
    .map((line, place) => {
      const [first, ...rest] = line.split("\t");
      return rest.length
        ? { name: first.trim(), text: rest.join(" ").trim() }
        : { name: `${place + 1}`, text: line.trim() };
    })
    .filter((row) => row.text);
}

/** The rows once more, in the language of now. */
export function showRows() {
  nameFile(file);
  rows.filter((row) => row.answer).forEach((row) => fill(row, ...shownOf(row)));
  if (rows.some(isDone)) sayAnswered();
}

export function forgetMany() {
  asking?.abort();
  rows = [];
  byId("many-text").value = "";
  nameFile("");
  try {
    sessionStorage.removeItem(KEPT);
  } catch {
    // Then nothing was kept.
  }
  byId("many-status").textContent = "";
  byId("many-rows").replaceChildren();
  byId("many-export").hidden = byId("many-table").hidden = true;
}

async function start() {
  asking?.abort();
  const found = readLines(byId("many-text").value);
  const wrong =
    (!found.length && t("manyNone")) ||
    (found.length > MOST && t("manyMost", { most: MOST, number: found.length })) ||
    (found.some((row) => row.text.length > LONGEST) && t("manyLongest", { most: LONGEST }));
  byId("many-status").textContent = wrong || "";
  if (wrong) return;
  byId("notice").replaceChildren();
  keep(true);
  rows = found;
  const question = (asking = new AbortController());
  byId("many-rows").replaceChildren(...rows.map(rowOf));
  byId("many-table").hidden = false;
  byId("many-export").hidden = true;
  byId("many-stop").hidden = false;
  let next = 0;
  const work = async () => {
    while (next < rows.length && !question.signal.aborted) {
      const row = rows[next++];
      await answerRow(row, question.signal);
      if (!question.signal.aborted) sayAnswered();
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  } catch (problem) {
    if (problem.name !== "AbortError") {
      question.abort();
      if (!doing.onProblem(problem)) byId("many-status").textContent = problem.detail || String(problem);
    }
  }
  if (asking !== question) return;
  byId("many-stop").hidden = true;
  byId("many-export").hidden = !rows.some(isDone);
}

const isDone = (row) => Boolean(row.answer || row.error);

function sayAnswered() {
  const failed = rows.filter((row) => row.error).length;
  const told = [t("answered", { done: rows.filter((row) => row.answer).length, all: rows.length })];
  if (failed) told.push(t("notAnswered", { n: failed }));
  byId("many-status").textContent = told.join(", ");
}

/** One description; where the server asks to wait, it is asked again. */
async function answerRow(row, signal) {
  try {
    row.answer = await patiently(() => search({ text: row.text, k: FIRST }, signal), signal);
    fill(row, ...shownOf(row));
  } catch (problem) {
    if (!(problem instanceof Problem) || problem.status === 401 || problem.status === 0) throw problem;
    row.error = problem.detail;
    fill(row, h("p", { class: "wrong" }, problem.detail));
  }
}

function rowOf(row) {
  row.pictures = h("div", { class: "first" });
  row.sure = h("td", { class: "sure" }, "…");
  return h(
    "tr",
    {},
    h("th", { scope: "row", dir: "auto" }, row.name),
    h("td", { class: "text" }, h("button", { type: "button", class: "asked", dir: "auto", onclick: () => doing.onOpen(row.text, "") }, row.text)),
    row.sure,
    h("td", {}, row.pictures),
  );
}

function shownOf(row) {
  return row.answer.hits.map((hit) => {
    const { label } = sureness(hit);
    const image = h("img", { alt: `${alternativeText(hit)}, ${label}`, loading: "lazy", draggable: "false" });
    showPicture(image, "thumbnails", hit.id);
    return h("button", { type: "button", "data-id": hit.id, title: label, onclick: () => doing.onOpen(row.text, hit.id) }, image);
  });
}

function fill(row, ...shown) {
  row.pictures.replaceChildren(...shown);
  const best = row.answer?.hits[0];
  row.sure.replaceChildren(
    best ? sureness(best).label : "–",
    row.answer?.good === false ? h("span", { class: "hint" }, t("noGood")) : "",
  );
}

async function exportRows(form) {
  byId("many-export").open = false;
  const searches = rows
    .filter(isDone)
    .map(({ text, answer, error }) => ({
      text,
      error,
      pictures: Object.fromEntries(
        (answer?.hits ?? []).map(({ id, rank, score, probability }) => [id, { rank, score, probability }]),
      ),
    }));
  try {
    await download(form, searches);
    byId("many-status").textContent = t("exportedMany", { n: searches.length });
  } catch (problem) {
    if (!doing.onProblem(problem)) byId("many-status").textContent = t("notExported", { why: problem.detail || String(problem) });
  }
}
